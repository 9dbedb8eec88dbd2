"""Finds every split of an OpenVINO IR, including the bodies of If, Loop and similar layers."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from dmlsplit.checks import axis_from_front, path_text
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.errors import InvalidArgumentError, path_in_errors, prefix_errors
from dmlsplit.files.kinds import name_kind_in_errors
from dmlsplit.geometry import piece_shapes
from dmlsplit.messages import Note, counted, shown
from dmlsplit.models.lowering import Lowering, lowered_state, split_descriptor
from dmlsplit.models.openvino.ir import (
    Graph,
    Layer,
    checked_integer,
    constant_shape,
    integers,
    read_ir,
)
from dmlsplit.models.openvino.lowering import (
    SPLIT,
    VARIADIC_SPLIT,
    check_axis_shape,
    check_lengths,
    lower_sizes,
    resolve_count,
    resolve_lengths,
)
from dmlsplit.models.site import Cause, Invalid, SplitSite, Unknown, UnknownSplitError

_OPERATORS = {"VariadicSplit": VARIADIC_SPLIT, "Split": SPLIT}

# The type that carries a port's elements, by precision. Elements without whole bytes are absent.
_CARRIERS = {
    **{
        member.name.replace("FLOAT", "FP").replace("UINT", "U").replace("INT", "I"): member
        for member in TensorDataType
        if member is not TensorDataType.UNKNOWN
    },
    "BF16": TensorDataType.UINT16,
    **dict.fromkeys(("BOOL", "F8E4M3", "F8E5M2", "F8E8M0"), TensorDataType.UINT8),
}


# A Convert to one of these types does not change an axis or a length.
_INDEX_TYPES = ("i32", "i64")


class _Node(NamedTuple):
    """A split, the graph that has it, and its file."""

    layer: Layer
    graph: Graph
    xml: Path

    @property
    def operator(self) -> str:
        """The operator with its version."""
        return _OPERATORS[self.layer.type]

    def input_layer(self, position: int, layer: Layer | None = None) -> Layer | None:
        """The layer that feeds an input of the node, or of another layer."""
        layer = layer or self.layer
        if position >= len(layer.inputs):
            return None
        origin = self.graph.edges.get((layer.id, layer.inputs[position].id))
        return self.graph.layers.get(origin[0]) if origin else None

    def constant(self, position: int, name: str) -> tuple[Layer, tuple[int, ...]]:
        """The Const that feeds an input, maybe through a Convert, and its shape."""
        layer = self.input_layer(position)
        if layer and layer.type == "Convert" and layer.data.get("destination_type") in _INDEX_TYPES:
            source = self.input_layer(0, layer)
            layer = source if source and source.type == "Const" else layer
        if layer is None:
            raise InvalidArgumentError(f"no edge leads to its input {name}; a Const must feed it")
        if layer.type != "Const":
            text = f"{name} is dynamic: it is computed by {layer.type[:40]!r}"
            cause = Cause.AXIS if name == "axis" else Cause.LENGTHS
            raise UnknownSplitError(text, Cause.ORDER if layer is self.layer else cause)
        with prefix_errors(name):
            return layer, constant_shape(layer)

    def values(self, layer: Layer, name: str) -> list[int]:
        """The integers of a Const, named in errors."""
        with prefix_errors(name):
            return integers(layer, self.xml)


def scan(path: str | PathLike[str]) -> list[SplitSite]:
    """Find the splits of an IR file.

    The weights are in the .bin file of the same name. Only axes and lengths are read from it.

    Parameters
    ----------
    path : str or os.PathLike
        A model.xml of version 10 or 11.

    Returns
    -------
    list of SplitSite
        The splits in the order of the file.

    Raises
    ------
    InvalidArgumentError
        If the file is not such a model, or its weights are needed and cannot be read.

    See Also
    --------
    dmlsplit.frontends.SplitSite : A split that a scan found.

    Examples
    --------
    >>> [site.operator for site in scan("tests/data/cut.xml")]
    ['Split-1']
    """
    xml = Path(path_text(path))
    with path_in_errors(path), name_kind_in_errors(path):
        try:
            return list(_scan(read_ir(xml), xml, str(path), ""))
        except OSError as error:
            raise InvalidArgumentError(error.strerror or str(error)) from None


def _scan(graph: Graph, xml: Path, file: str, parent_path: str) -> Iterator[SplitSite]:
    """The splits of a graph, then those of the bodies in its layers."""
    name = f"{parent_path}{graph.name}"
    for layer in graph.layers.values():
        if layer.type in _OPERATORS:
            yield _site(_Node(layer, graph, xml), file, name)
        for body in layer.bodies:
            yield from _scan(body, xml, file, f"{name}/{layer.name}.")


def _site(node: _Node, file: str, graph: str) -> SplitSite:
    """The site of a split."""
    layer = node.layer
    blank = SplitSite(file, graph, layer.name, layer.position, node.operator, format="openvino")
    if layer.version != "opset1":
        text = f"operation set is {layer.version[:40]!r}, not 'opset1'"
        return replace(blank, state=Unknown(text, Cause.OPERATION_SET))
    data_type = shape = None
    try:
        with prefix_errors(node.operator):
            data_type = _data_type(node)
            shape = _shape(node)
            lowering = _lower_node(node, data_type, shape)
    except InvalidArgumentError as error:
        return replace(blank, state=Invalid(error.message))
    except UnknownSplitError as reason:
        sizes = _smallest(shape or (1,) * 4)
        smallest = split_descriptor(data_type or TensorDataType.FLOAT32, sizes, 0, sizes[:1])
        return replace(blank, state=Unknown(str(reason), reason.cause, smallest))
    dynamic = [f"dimension {axis}" for axis, size in enumerate(shape or ()) if size is None]
    gap = _dynamic_size_error(dynamic[0]) if dynamic else None
    return replace(
        blank,
        state=lowered_state(lowering, gap, missing=[(name, 1) for name in dynamic]),
        warnings=tuple(_warnings(node, lowering, is_static=not dynamic)),
        shape=lowering.shape,
        axis=lowering.axis,
    )


def _lower_node(
    node: _Node, data_type: TensorDataType | None, shape: tuple[int | None, ...] | None
) -> Lowering:
    """The split of data whose type and shape may be unknown."""
    if data_type is None:
        raise UnknownSplitError("the data type is not in the file", Cause.TYPE)
    if shape is None:
        raise _dynamic_size_error("the rank")
    constant, axis_shape = node.constant(1, "axis")
    check_axis_shape(node.operator, axis_shape)
    axis = axis_from_front(node.values(constant, "axis")[0], len(shape))
    sizes = _piece_sizes(node, axis, shape[axis])
    return lower_sizes(_smallest(shape), axis, sizes, data_type)


def _piece_sizes(node: _Node, axis: int, axis_size: int | None) -> tuple[int, ...]:
    """The size of each output; wrong lengths or counts are refused for a dynamic axis too."""
    if node.operator == VARIADIC_SPLIT:
        lengths = _lengths(node, axis)
        check_lengths(lengths)
        if axis_size is not None:
            return resolve_lengths(lengths, axis, axis_size)
    else:
        text = node.layer.data.get("num_splits", "")
        count = checked_integer("num_splits", text, 1)
        _check_outputs(node, count)
        if axis_size is not None:
            return resolve_count(count, axis, axis_size)
    raise _dynamic_size_error(f"dimension {axis}")


def _smallest(shape: Iterable[int | None]) -> tuple[int, ...]:
    """The shape with 1 for each dynamic size."""
    return tuple(1 if size is None else size for size in shape)


def _data_type(node: _Node) -> TensorDataType | None:
    """The type that carries the data; None if the file does not name it."""
    # Version 10 writes the precision of outputs only, but a split keeps the type.
    ports = [*node.layer.inputs[:1], *node.layer.outputs]
    precision = next((port.precision for port in ports if port.precision), "")
    if precision.upper() in ("", "UNSPECIFIED"):
        return None
    if precision.upper() not in _CARRIERS:
        raise InvalidArgumentError(
            f"data has type {precision[:20]!r}, whose elements DirectML cannot carry; it must be "
            f"one of {', '.join(_CARRIERS)}"
        )
    return _CARRIERS[precision.upper()]


def _shape(node: _Node) -> tuple[int | None, ...] | None:
    """The shape of the data, with None for dynamic sizes; None if its rank is dynamic."""
    if not node.layer.inputs:
        raise InvalidArgumentError("the layer has no input; its first input must be the data")
    dims = node.layer.inputs[0].known_dims("its input")
    if dims:
        return tuple(dims)
    # Without a <dim> it is a scalar or has a dynamic rank; only a Parameter or Const says which.
    layer = node.input_layer(0)
    declared = layer.data.get("shape") if layer else None
    if declared is not None and not declared.strip():
        raise InvalidArgumentError("data is a scalar; it must have a dimension")
    return None


def _dynamic_size_error(size: str) -> UnknownSplitError:
    """The error about a size, or the rank, that is not in the file."""
    return UnknownSplitError(f"{size} of the data is dynamic", Cause.DYNAMIC)


def _lengths(node: _Node, axis: int) -> list[int]:
    """The lengths that a constant has, or otherwise those that the outputs declare."""
    try:
        layer, shape = node.constant(2, "split_lengths")
        if len(shape) != 1:
            raise InvalidArgumentError(f"split_lengths has shape {list(shape)}; it must be 1-D")
        # Checked before the values are read, because a tiny file may claim any number of them.
        _check_outputs(node, shape[0])
        return node.values(layer, "split_lengths")
    except UnknownSplitError:
        sizes = [port.dims[axis] for port in node.layer.outputs if axis < len(port.dims)]
        declared = [size for size in sizes if size is not None]
        if not declared or len(declared) < len(node.layer.outputs):
            raise
        return declared


def _check_outputs(node: _Node, pieces: int) -> None:
    """Refuse a split whose number of pieces is not that of its outputs."""
    outputs = len(node.layer.outputs)
    if pieces != outputs:
        raise InvalidArgumentError(
            f"it makes {counted(pieces, 'piece')}; the layer has {counted(outputs, 'output')}, and "
            "must have as many as pieces"
        )


def _warnings(node: _Node, lowering: Lowering, *, is_static: bool) -> Iterator[str]:
    """What is to be said about empty outputs and about wrong declarations."""
    shapes = piece_shapes(lowering.shape, lowering.axis, lowering.sizes)
    empty = [index for index, shape in enumerate(shapes) if 0 in shape]
    if empty:
        fault = f"outputs {shown(empty)} are empty; DirectML accepts no empty tensor"
        yield Note(fault, "drop them")
    if not is_static:
        return
    ports = zip(node.layer.outputs, shapes, strict=True)
    for index, (port, shape) in enumerate(ports):
        if port.dims and None not in port.dims and port.dims != list(shape):
            yield f"output {index} is declared as {port.dims}; the split makes {list(shape)}"
