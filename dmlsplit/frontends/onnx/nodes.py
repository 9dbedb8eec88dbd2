"""One Split or SplitToSequence of a scanned model: what it becomes, or why that is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PureWindowsPath

import numpy as np

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.onnx.arguments import Arguments, Lengths, node_arguments
from dmlsplit.frontends.onnx.lowering import (
    check_type,
    front_axis,
    lower,
    piece_count,
    piece_sizes,
)
from dmlsplit.frontends.onnx.messages import Attribute, Node, Shape, Tensor, shown_name
from dmlsplit.frontends.onnx.operators import ElementType, OperatorVersion, operator_version
from dmlsplit.frontends.onnx.shapes import UNKNOWN, Value
from dmlsplit.frontends.onnx.wire import WireError


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a split: the fields of a `SplitSite`, and its outputs' shapes."""

    operator: str
    outputs: tuple[Value, ...] = ()
    descriptors: tuple[SplitOperatorDesc, ...] = ()
    problem: str = ""
    unknown: str = ""
    warnings: tuple[str, ...] = ()
    element_type: str = ""
    shape: tuple[int, ...] = ()
    axis: int = -1
    pieces: tuple[int, ...] = ()


class _NotKnownError(Exception):
    """Something that the descriptor depends on is not in the file."""


def describe(
    node: Node,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Attribute | None],
    opset: int | None,
    read: Callable[[Tensor], np.ndarray],
    most_pieces: int,
) -> Described:
    """Describe a split node.

    Parameters
    ----------
    node
        The node.
    inputs
        What is known of its inputs; None for an omitted one.
    attributes
        Its attributes; None for one that the caller of a function gives.
    opset
        Of the default domain; None if the model imports none.
    read
        Reads the values of a small tensor.
    most_pieces
        How many pieces a sequence may have to be described.
    """
    name = node.op_type
    warnings: list[str] = []
    try:
        if opset is None:
            raise InvalidArgumentError(f"{name}: the model imports no opset of ai.onnx")
        operator = operator_version(name, opset)
        name = str(operator)
        arguments = _arguments(operator, node, inputs, attributes, read)
        warnings += [*arguments.assumed, *_portability(node, inputs, arguments)]
        data = inputs[0] or UNKNOWN
        if not data.data_type:
            return _lowered(arguments, data, node, warnings, most_pieces)
        kind = _element_type(data)
        check_type(operator, kind)
        found = _lowered(arguments, data, node, warnings, most_pieces)
        return replace(found, element_type=kind.name)
    except InvalidArgumentError as error:
        return Described(name, problem=str(error), warnings=tuple(warnings))
    except _NotKnownError as error:
        return Described(name, unknown=str(error), warnings=tuple(warnings))


def _lowered(
    arguments: Arguments, data: Value, node: Node, warnings: list[str], most_pieces: int
) -> Described:
    name, shape = str(arguments.operator), data.shape
    if shape is None:
        return Described(name, unknown="the input's shape is dynamic", warnings=tuple(warnings))
    for index, size in enumerate(shape):
        if isinstance(size, int) and size < 0:
            raise InvalidArgumentError(
                f"{name}: the input's dimension {index} is {size}; it must be at least 0"
            )
    axis = front_axis(arguments, len(shape))
    dimension = shape[axis]
    sizes: tuple[int | str, ...] = ("?",) * len(node.outputs)
    unknown = ""
    if arguments.split is Lengths.AT_RUN_TIME:
        unknown = "split is dynamic: it is computed when the model runs"
    elif isinstance(dimension, str):
        unknown = f"the axis, {_dynamic(shape, axis)}"
        warnings += _dynamic_num_outputs(arguments)
    elif piece_count(arguments, dimension) > most_pieces:
        unknown = f"{piece_count(arguments, dimension)} pieces; too many for a scan to describe"
    else:
        sizes = piece_sizes(arguments, dimension)
        unknown = _dynamic(shape)
    outputs = _output_values(arguments, data, shape, axis, sizes)
    if not unknown and not data.data_type:
        unknown = "the input's data type is not known"
    if unknown:
        return Described(name, outputs, unknown=unknown, warnings=tuple(warnings))
    numbers = tuple(size for size in shape if isinstance(size, int))
    lowering = lower(arguments, _element_type(data), numbers)
    found = (*warnings, *lowering.warnings)
    if lowering.carrier is None:
        found += ("DirectML has no strings; they are split on the host",)
    descriptors = () if lowering.descriptor is None else (lowering.descriptor,)
    return Described(
        name,
        outputs,
        descriptors,
        warnings=found,
        shape=numbers,
        axis=axis,
        pieces=lowering.sizes,
    )


def _arguments(
    operator: OperatorVersion,
    node: Node,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, Attribute | None],
    read: Callable[[Tensor], np.ndarray],
) -> Arguments:
    if not inputs or inputs[0] is None:
        raise InvalidArgumentError(f"{operator}: the node has no input")
    values = {}
    for key, attribute in attributes.items():
        if attribute is None:
            raise _NotKnownError(f"attribute {key!r} is dynamic: the function's caller gives it")
        value = attribute.value
        if value is None and key in operator.attributes:
            raise InvalidArgumentError(
                f"{operator}: attribute {key!r} is neither an integer nor a list of at most 65536"
            )
        values[key] = value
    lengths = [_lengths(operator, value, read) for value in inputs[1:]]
    return node_arguments(operator, values, lengths, len(node.outputs))


def _lengths(
    operator: OperatorVersion, value: Value | None, read: Callable[[Tensor], np.ndarray]
) -> np.ndarray | Lengths | None:
    if value is None:
        return None
    if operator.split_types and value.data_type and value.data_type not in operator.split_types:
        allowed = " or ".join(sorted(kind.name for kind in operator.split_types))
        found = _element_type(value).name
        raise InvalidArgumentError(f"{operator}: split has type {found}; it must be {allowed}")
    source = value.source
    if source is None:
        return Lengths.AT_RUN_TIME
    if not isinstance(source, Tensor):
        return np.array(source, np.int64)
    if source.location is not None:
        _refuse_escape(operator, source.location)
        raise _NotKnownError("split lies in external data, which is not opened")
    try:
        return read(source)
    except WireError as error:
        raise InvalidArgumentError(f"{operator}: split: {error}") from None


def _refuse_escape(operator: OperatorVersion, location: str) -> None:
    path = PureWindowsPath(location)  # It knows both kinds of slashes, and drives.
    if path.anchor or ".." in path.parts:
        raise InvalidArgumentError(
            f"{operator}: split lies in external data at {shown_name(location)!r}; the path must "
            "stay inside the model's folder"
        )


def _element_type(value: Value) -> ElementType:
    try:
        return ElementType(value.data_type)
    except ValueError:
        return ElementType.UNDEFINED


def _dynamic(shape: Shape, *only: int) -> str:
    """Say which dimensions are dynamic, and under what names."""
    found = [
        f"dimension {index} is dynamic" + ("" if size == "?" else f" ({shown_name(size)})")
        for index, size in enumerate(shape)
        if isinstance(size, str) and (index in only or not only)
    ]
    return ", ".join(found)


def _output_values(
    arguments: Arguments,
    data: Value,
    shape: Shape,
    axis: int,
    sizes: tuple[int | str, ...],
) -> tuple[Value, ...]:
    if arguments.output_count is None:
        return ()  # A sequence.
    return tuple(Value(data.data_type, (*shape[:axis], size, *shape[axis + 1 :])) for size in sizes)


def _portability(node: Node, inputs: Sequence[Value | None], arguments: Arguments) -> list[str]:
    found = []
    if arguments.operator.makes_sequence:
        found.append(
            "ONNX Runtime's DirectML provider has no SplitToSequence; the node runs on the CPU"
        )
        return found
    omitted = [index for index, name in enumerate(node.outputs) if not name]
    sized = arguments.split is not None or arguments.num_outputs is not None
    if omitted and sized and arguments.operator.since >= 13:
        found.append(
            f"output {omitted[0]} has no name; ONNX Runtime 1.31 crashes on such a node. "
            "Fix: name every output"
        )
    if len(inputs) > 1 and inputs[1] is None and arguments.num_outputs is not None:
        found.append(
            "split is omitted by an empty name beside num_outputs; ONNX Runtime refuses that. "
            "Fix: drop the input"
        )
    return found


def _dynamic_num_outputs(arguments: Arguments) -> list[str]:
    count = arguments.num_outputs
    if count is None or count < 3:
        return []
    return [
        f"num_outputs={count} on a dynamic axis works only for sizes d with "
        f"ceil(d / {count}) * {count - 1} < d; elsewhere implementations disagree"
    ]
