"""Finds the descriptor of a split node of a scanned model, or why it is unknown."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PureWindowsPath

import numpy as np

from dmlsplit.checks import axis_from_front
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.lowering import lowered_site
from dmlsplit.frontends.onnx.arguments import (
    Arguments,
    Lengths,
    check_types,
    node_arguments,
    refuse,
)
from dmlsplit.frontends.onnx.lowering import described, lower_sizes, output_count, output_sizes
from dmlsplit.frontends.onnx.messages import (
    MAXIMUM_VALUES,
    Attribute,
    Node,
    Shape,
    Tensor,
    shown_name,
)
from dmlsplit.frontends.onnx.operators import (
    CARRIERS,
    ElementType,
    OperatorVersion,
    operator_version,
)
from dmlsplit.frontends.onnx.reader import Reader, WireError
from dmlsplit.frontends.onnx.values import UNKNOWN, Call, Value, elements
from dmlsplit.frontends.site import Cause, NotKnownError, SplitSite
from dmlsplit.geometry import piece_shapes
from dmlsplit.messages import counted


def describe(
    site: SplitSite,
    call: Call,
    attributes: Mapping[str, Attribute | None],
    opset: int | None,
    most_outputs: int,
) -> tuple[SplitSite, tuple[Value, ...]]:
    """The completed site of a node, and what is known about its outputs.

    An attribute is None if a function's unknown caller sets it; `opset` is None if the model
    imports no default domain. A split into more than `most_outputs` stays unknown.
    """
    node, (data, lengths) = call.node, (*call.inputs, UNKNOWN, UNKNOWN)[:2]
    try:
        if opset is None:
            raise InvalidArgumentError(f"{node.op_type}: the model imports no opset of ai.onnx")
        operator = operator_version(node.op_type, opset)
        site = replace(site, operator=str(operator), shape=data.shape or ())
        check_types(operator, data.element_type, lengths.element_type)
        if data.element_type:
            site = replace(site, element_type=data.element_type.name)
        arguments = _arguments(operator, call, attributes)
        warnings = (*arguments.assumed, *_portability(node, arguments))
        pieces = arguments.split if isinstance(arguments.split, tuple) else ()
        site = replace(site, warnings=warnings, sized_by=arguments.sized_by, pieces=pieces)
        site, values = _lowered(site, arguments, data, len(node.output), most_outputs)
    except InvalidArgumentError as error:
        return replace(site, problem=error.message), ()
    except NotKnownError as reason:
        site, values = _unknown(site, reason, data), ()
    return replace(site, value=node.input[0], missing=tuple(_missing(site, data, node))), values


def _lowered(
    site: SplitSite, arguments: Arguments, data: Value, outputs: int, most_outputs: int
) -> tuple[SplitSite, tuple[Value, ...]]:
    operator, shape = arguments.operator, data.shape
    if shape is None:
        raise data.gap_error("the input's shape is dynamic")
    for index, size in enumerate(shape):
        if isinstance(size, int) and size < 0:
            refuse(operator, f"the input's dimension {index} is {size}", "it must be at least 0")
    axis = axis_from_front(arguments.axis, len(shape), operator)
    site = replace(site, axis=axis)
    try:
        sizes = _sizes(arguments, data, axis, most_outputs)
    except NotKnownError as reason:
        warnings = (*site.warnings, *_dynamic_num_outputs(arguments, shape[axis]))
        site = _unknown(replace(site, warnings=warnings), reason, data, outputs)
        return site, _output_values(arguments, data, shape, axis, ("?",) * outputs)
    values = _output_values(arguments, data, shape, axis, sizes)
    gap = None if data.is_static else data.gap_error(_dynamic(shape))
    if data.element_type is None:
        gap = NotKnownError("the input's data type is not known", Cause.TYPE)
        return _unknown(replace(site, pieces=sizes), gap, data), values
    least = tuple(size if isinstance(size, int) else 1 for size in shape)
    lowering = lower_sizes(arguments, data.element_type, least, axis, sizes)
    found = [*site.warnings, *lowering.warnings]
    if lowering.carrier is None:
        found.append("DirectML has no strings; the host splits them")
    return replace(lowered_site(site, lowering, found, gap), shape=shape), values


def _unknown(site: SplitSite, reason: NotKnownError, data: Value, outputs: int = 1) -> SplitSite:
    """A site with the reason why it has no descriptor, and with the smallest possible one."""
    kind = data.element_type or ElementType.FLOAT
    # Lanes add a dimension.
    unknown_rank = (1,) * (5 - CARRIERS.get(kind, (None, 1))[1])
    shape = [max(0, size) if isinstance(size, int) else 1 for size in data.shape or unknown_rank]
    axis = max(site.axis, 0)
    if shape and data.shape and isinstance(data.shape[axis], str):
        shape[axis] = sum(site.pieces) or outputs
    smallest = described(kind, tuple(shape), axis, (shape[axis],))[1] if shape else None
    return replace(site, unknown=str(reason), cause=reason.cause, smallest=smallest)


def _missing(site: SplitSite, data: Value, node: Node) -> Iterator[tuple[str, int]]:
    """The sizes that would make a site known, in the form of `FixedSizes`."""
    if not site.unknown or site.cause not in (Cause.DYNAMIC, Cause.UNTRACKED, Cause.TYPE):
        return
    axis = node.attributes.get("axis", Attribute()).i or 0
    shape = data.shape or ("?",) * max(axis + 1, -axis, 2)
    for index, size in enumerate(shape):
        if isinstance(size, str) and not (size == "?" and "()" in site.path):
            name = f"{node.input[0]}.{index}" if size == "?" else size
            is_axis = index == (axis + len(shape) if axis < 0 else axis)
            yield name, (sum(site.pieces) or len(node.output)) if is_axis else 1


def _sizes(arguments: Arguments, data: Value, axis: int, most_outputs: int) -> tuple[int, ...]:
    shape = data.shape or ()
    dimension = shape[axis]
    if isinstance(arguments.split, Lengths):
        raise NotKnownError(f"split is dynamic: it is {arguments.split.value}", Cause.LENGTHS)
    if isinstance(dimension, str):
        raise data.gap_error(_dynamic(shape, axis))
    count = output_count(arguments, dimension)
    if count > most_outputs:
        what = counted(count, "piece")
        raise NotKnownError(f"it makes {what}, too many for a scan to describe", Cause.COUNT)
    return output_sizes(arguments, dimension)


def _arguments(
    operator: OperatorVersion, call: Call, attributes: Mapping[str, Attribute | None]
) -> Arguments:
    node = call.node
    if not any(node.input[:1]):
        refuse(operator, "the node has no input", "it must have one")
    values = {}
    for key, attribute in attributes.items():
        if attribute is None:
            text = f"attribute {key!r} is dynamic: the function's caller sets it"
            raise NotKnownError(text, Cause.CALLER)
        value = attribute.value
        if value is None and key in operator.attributes:
            allowed = f"it must be an integer or a list of at most {MAXIMUM_VALUES} integers"
            refuse(operator, f"attribute {key!r} has a value of another kind", allowed)
        values[key] = value
    lengths = [
        _lengths(operator, value, name, call.reader) if name else None
        for name, value in zip(node.input[1:], call.inputs[1:], strict=True)
    ]
    return node_arguments(operator, values, lengths, len(node.output))


def _lengths(
    operator: OperatorVersion, value: Value, name: str, reader: Reader
) -> np.ndarray | Lengths:
    constant = value.constant
    if constant is None:
        return Lengths.AS_INPUT if value.source == name else Lengths.AT_RUN_TIME
    if isinstance(constant, Tensor) and constant.location is not None:
        path = PureWindowsPath(constant.location)  # knows both slashes, and drives
        if path.anchor or ".." in path.parts:
            found = f"split is in external data at {shown_name(constant.location)!r}"
            refuse(operator, found, "the path must stay inside the model's folder")
        raise NotKnownError("split is in external data, which is not opened", Cause.WEIGHTS)
    try:
        return elements(reader, constant)
    except WireError as error:
        raise InvalidArgumentError(f"{operator}: split: {error}") from None


def _dynamic(shape: Shape, *only: int) -> str:
    """The dynamic dimensions, with their names."""
    return ", ".join(
        f"dimension {index}{', the axis,' * bool(only)} is dynamic"
        + ("" if size == "?" else f" ({shown_name(size)})")
        for index, size in enumerate(shape)
        if isinstance(size, str) and (index in only or not only)
    )


def _output_values(
    arguments: Arguments, data: Value, shape: Shape, axis: int, sizes: tuple[int | str, ...]
) -> tuple[Value, ...]:
    if arguments.output_count is None:
        return ()  # A sequence.
    return tuple(Value(data.data_type, piece) for piece in piece_shapes(shape, axis, sizes))


def _portability(node: Node, arguments: Arguments) -> Iterator[str]:
    if arguments.operator.makes_sequence:
        yield "ONNX Runtime's DirectML provider has no SplitToSequence; the node runs on the CPU"
        return
    sized = arguments.split is not None or arguments.num_outputs is not None
    if "" in node.output and sized and arguments.operator.since >= 13:
        yield (
            f"output {node.output.index('')} has no name; ONNX Runtime 1.31 crashes on such a "
            "node. Fix: name every output"
        )
    if "" in node.input[1:2] and arguments.num_outputs is not None:
        yield (
            "split is an input without a name next to num_outputs, which ONNX Runtime refuses. "
            "Fix: remove the input"
        )


def _dynamic_num_outputs(arguments: Arguments, dimension: int | str) -> Iterator[str]:
    count = arguments.num_outputs
    if isinstance(dimension, str) and count is not None and count > 2:
        yield (
            f"num_outputs={count} on a dynamic axis works only for sizes d with "
            f"ceil(d / {count}) * {count - 1} < d; for others, implementations disagree"
        )
