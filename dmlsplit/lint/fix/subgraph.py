"""The standard ONNX nodes that replace a split.

A split that is refused for its rank, an 8-bit type, an empty piece or a sequence output becomes
as many of ``Unsqueeze, Cast, Split, Cast, Squeeze`` as it needs; above the greatest rank, Reshape
replaces Unsqueeze and Squeeze. All of them serve every size of a dynamic dimension. Empty pieces
become constants, and ``SequenceConstruct`` makes a sequence. 64-bit integers are split as low and
high halves.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from dmlsplit.directml.levels import capability_table
from dmlsplit.errors import UnsupportedError
from dmlsplit.frontends import Known, SplitSite, Unknown
from dmlsplit.lint.rewritable import (
    IN_HALVES,
    described,
    dimension_counts,
    is_static,
    merged,
    rewriting_obstacle,
)
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Verdict

NewName = Callable[[str], str]
_HALF = np.array(2**32, np.int64)

_INT32, _UINT32, _INT64 = (int(getattr(onnx.TensorProto, t)) for t in ("INT32", "UINT32", "INT64"))


def name_maker(used: set[str]) -> NewName:
    """A function that makes a name that `used` lacks, ending in its argument."""
    prefix = "dmlsplit_"
    while any(name.startswith(prefix) for name in used):
        prefix += "_"
    numbers = count(1)
    return lambda what: f"{prefix}{next(numbers)}_{what}"


class _Source(NamedTuple):
    """The value that is split."""

    value: str
    shape: tuple[int | str, ...]
    axis: int
    drops_axis: bool

    def piece(self, size: int) -> tuple[int | str, ...]:
        """The shape of a piece of this size along the axis."""
        own = () if self.drops_axis else (size,)
        return *self.shape[: self.axis], *own, *self.shape[self.axis + 1 :]


class _Nodes(list[NodeProto]):
    """Nodes in execution order. A method adds nodes and returns the name of their output."""

    def __init__(self, new_name: NewName, opset: int) -> None:
        self.new_name = new_name
        self.opset = opset

    def add(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or self.new_name(operator.lower())
        self.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: np.ndarray, output: str) -> str:
        return self.add("Constant", [], output, value=numpy_helper.from_array(value, output))

    def shape(self, sizes: Iterable[int | str]) -> str:
        """A constant shape; a dynamic size follows from the others."""
        known = [size if isinstance(size, int) else -1 for size in sizes]
        return self.constant(np.array(known, np.int64), self.new_name("shape"))

    def reshape(self, value: str, shape: str, output: str) -> str:
        return self.add("Reshape", [value, shape], output)

    def with_axes(self, operator: str, value: str, axes: Sequence[int], output: str) -> str:
        """A Squeeze or Unsqueeze."""
        if self.opset < 13:
            return self.add(operator, [value], output, axes=axes)
        name = self.constant(np.array(axes, np.int64), self.new_name("axes"))
        return self.add(operator, [value, name], output)

    def piece_shape(self, source: "_Source", size: int) -> str:
        """The shape of a piece: constant if at most one size is dynamic, so that it follows."""
        sizes = source.piece(size)
        if sum(isinstance(n, str) for n in sizes) < 2:
            return self.shape(sizes)
        return self.computed_shape(source, size)

    def computed_shape(self, source: "_Source", size: int) -> str:
        """The shape of a piece, computed from that of the input."""
        whole = self.add("Shape", [source.value])
        ends = range(source.axis), range(source.axis + 1, len(source.shape))
        first, last = (
            [self.add("Gather", [whole, self.shape(end)], axis=0)] if end else [] for end in ends
        )
        own = [] if source.drops_axis else [self.shape([size])]
        return self.add("Concat", [*first, *own, *last], axis=0)

    def empty(self, source: "_Source", kind: int, output: str) -> None:
        """An empty piece."""
        sizes = source.piece(0)
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        if is_static(sizes):
            self.constant(np.empty([int(n) for n in sizes], dtype), output)
            return
        zero = numpy_helper.from_array(np.zeros(1, dtype))
        self.add("ConstantOfShape", [self.computed_shape(source, 0)], output, value=zero)

    def halves(self, value: str) -> tuple[str, str]:
        """The low halves of 64-bit integers as UINT32, and the high ones as INT32."""
        value = self.add("Cast", [value], to=_INT64)
        low = self.add("Cast", [value], to=_UINT32)  # drops the high bits (ONNX, Cast)
        high = self.add("Sub", [value, self.add("Cast", [low], to=_INT64)])
        high = self.add("Div", [high, self.constant(_HALF, self.new_name("half"))])  # exact
        return low, self.add("Cast", [high], to=_INT32)

    def whole(self, low: str, high: str) -> str:
        """The 64-bit integers of two halves."""
        high, low = (self.add("Cast", [half], to=_INT64) for half in (high, low))
        half = self.constant(_HALF, self.new_name("half"))
        return self.add("Add", [self.add("Mul", [high, half]), low])

    def split(self, value: str, lengths: Mapping[str, int], axis: int, name: str = "") -> None:
        inputs, sizes = [value], list(lengths.values())
        attributes: dict[str, Any] = {"axis": axis}
        if self.opset < 13:
            attributes["split"] = sizes
        else:
            inputs.append(self.constant(np.array(sizes, np.int64), self.new_name("sizes")))
        self.append(helper.make_node("Split", inputs, list(lengths), name, **attributes))


class _Form(NamedTuple):
    """How the target can split a value: what is done before the Split, and undone after it."""

    source: _Source
    kind: int  # of its elements, in ONNX
    rows: list[int | str] | None  # the shape with merged dimensions, if there are too many
    ones: list[int]  # the axes of dimensions that are added, if there are too few
    axis: int  # of the Split
    is_cast: bool
    in_halves: bool

    @property
    def squeezed(self) -> list[int]:
        """The axes that a Squeeze removes from each piece."""
        return [] if self.rows else [*self.ones, *[self.axis] * self.source.drops_axis]

    @property
    def is_direct(self) -> bool:
        """Whether nothing has to be undone."""
        return not (self.is_cast or self.rows or self.squeezed)


def replacement(
    node: NodeProto, verdict: Verdict, target: Target, opset: int, new_name: NewName
) -> list[NodeProto]:
    """The nodes that replace a refused split, with a Split of its name; else UnsupportedError."""
    if obstacle := rewriting_obstacle(verdict, target):
        raise UnsupportedError(obstacle)
    if verdict.lacks_only_count:
        counted = NodeProto()
        counted.CopyFrom(node)
        counted.attribute.append(helper.make_attribute("num_outputs", len(node.output)))
        return [counted]
    state = verdict.site.state
    assert isinstance(state, Known | Unknown)  # otherwise, there is an obstacle
    nodes, form = _Nodes(new_name, opset), _form(node, verdict.site, target)
    is_sequence = node.op_type == "SplitToSequence"
    pieces = [new_name("piece") for _ in state.pieces] if is_sequence else list(node.output)
    _split(nodes, form, list(zip(pieces, state.pieces, strict=True)), node.name)
    if is_sequence:
        nodes.add("SequenceConstruct", pieces, node.output[0])
    return nodes


def _form(node: NodeProto, site: SplitSite, target: Target) -> _Form:
    desc, shape, axis = described(site), site.shape or (), site.axis
    assert desc  # otherwise, there is an obstacle
    least, greatest = dimension_counts(target)
    merger = merged(shape, axis, least, greatest) if len(shape) > greatest else None
    ones = list(range(max(0, least - len(shape))))
    rows, split_axis = merger or (None, axis + len(ones))
    own = desc.input_tensor.data_type
    is_cast = own not in capability_table()[target.level].input_tensor.data_types
    drops_axis = node.op_type == "SplitToSequence" and _drops_axis(node)
    source = _Source(node.input[0], shape, axis, drops_axis)
    kind = onnx.TensorProto.DataType.Value(site.element_type)
    return _Form(source, kind, rows, ones, split_axis, is_cast, is_cast and own in IN_HALVES)


def _split(nodes: _Nodes, form: _Form, pieces: Sequence[tuple[str, int]], name: str) -> None:
    """Split the value into pieces, each with its name and size."""
    value, high = _prepared(nodes, form)
    # An unused piece has no name, but Split still has to output it.
    parts = [p if form.is_direct and p else nodes.new_name("part") for p, _ in pieces]
    lengths = {part: size for part, (_, size) in zip(parts, pieces, strict=True) if size}
    nodes.split(value, lengths, form.axis, name)
    highs = {part: nodes.new_name("high") for part in lengths} if form.in_halves else {}
    if form.in_halves:
        nodes.split(high, {highs[part]: size for part, size in lengths.items()}, form.axis)
    for part, (piece, size) in zip(parts, pieces, strict=True):
        if piece and not size:
            nodes.empty(form.source, form.kind, piece)
        elif piece and not form.is_direct:
            whole = nodes.whole(part, highs[part]) if form.in_halves else part
            _restore(nodes, form, whole, piece, size)


def _prepared(nodes: _Nodes, form: _Form) -> tuple[str, str]:
    """The value that Split takes; in halves, the low and the high one."""
    value = form.source.value
    if form.rows:
        value = nodes.reshape(value, nodes.shape(form.rows), nodes.new_name("rows"))
    elif form.ones:
        value = nodes.with_axes("Unsqueeze", value, form.ones, nodes.new_name("padded"))
    if form.in_halves:
        return nodes.halves(value)
    if form.is_cast:
        value = nodes.add("Cast", [value], nodes.new_name("wide"), to=_INT32)
    return value, ""


def _restore(nodes: _Nodes, form: _Form, part: str, piece: str, size: int) -> None:
    """Give a part the type and the shape of its piece."""
    if form.is_cast:
        is_last = not (form.rows or form.squeezed)
        output = piece if is_last else nodes.new_name("narrow")
        part = nodes.add("Cast", [part], output, to=form.kind)
    if form.rows:
        nodes.reshape(part, nodes.piece_shape(form.source, size), piece)
    elif form.squeezed:
        nodes.with_axes("Squeeze", part, form.squeezed, piece)


def _drops_axis(node: NodeProto) -> bool:
    """Whether a SplitToSequence drops the axis of its pieces, possible only without sizes."""
    keepdims = next(
        (attribute.i for attribute in node.attribute if attribute.name == "keepdims"), 1
    )
    return not any(node.input[1:]) and not keepdims
