"""The standard ONNX nodes that replace a split.

A split that is refused for its rank, an 8-bit type, an empty piece or a sequence output becomes
as many of ``Reshape, Cast, Split, Cast, Reshape`` as it needs. Empty pieces become constants, and
``SequenceConstruct`` makes a sequence. 64-bit integers are split as low and high halves.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from dmlsplit.directml.levels import TensorSupport, capability_table
from dmlsplit.errors import UnsupportedError
from dmlsplit.lint.judge import IN_HALVES, rewriting_obstacle
from dmlsplit.lint.onnxruntime import MOST_DIMENSIONS
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Verdict

NewName = Callable[[str], str]
_HALF = np.array(2**32, np.int64)

# Reshape takes its shape as an input since opset 5, and Cast its type as a number since 6;
# arithmetic broadcasts by itself since 7.
_LEAST_OPSET = 7
_INT32, _UINT32, _INT64 = (int(getattr(onnx.TensorProto, t)) for t in ("INT32", "UINT32", "INT64"))


def name_maker(used: set[str]) -> NewName:
    """A function that makes a name that `used` lacks, ending in its argument."""
    prefix = "dmlsplit_"
    while any(name.startswith(prefix) for name in used):
        prefix += "_"
    numbers = count(1)
    return lambda what: f"{prefix}{next(numbers)}_{what}"


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

    def reshape(self, value: str, shape: Sequence[int], output: str) -> str:
        wanted = self.constant(np.array(shape, np.int64), self.new_name("shape"))
        return self.add("Reshape", [value, wanted], output)

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

    def restore(self, part: str, piece: str, kind: int, shape: Sequence[int] | None) -> None:
        """Cast a part to `kind` unless that is 0, and reshape it unless `shape` is None."""
        if kind:
            output = piece if shape is None else self.new_name("narrow")
            part = self.add("Cast", [part], output, to=kind)
        if shape is not None:
            self.reshape(part, shape, piece)


def replacement(
    node: NodeProto, name: str, verdict: Verdict, target: Target, opset: int, new_name: NewName
) -> list[NodeProto]:
    """The nodes that replace a refused split, with a Split called `name`; else UnsupportedError."""
    site, value, nodes = verdict.site, node.input[0], _Nodes(new_name, opset)
    if obstacle := rewriting_obstacle(verdict, target.level):
        raise UnsupportedError(obstacle)
    if verdict.lacks_only_count:
        counted = NodeProto()
        counted.CopyFrom(node)
        counted.name = name
        counted.attribute.append(helper.make_attribute("num_outputs", len(node.output)))
        return [counted]
    if opset < _LEAST_OPSET:
        raise UnsupportedError(f"the opset is {opset}; rewriting needs {_LEAST_OPSET} or later")
    sizes, axis = tuple(size for size in site.shape if isinstance(size, int)), site.axis
    before, after = sizes[:axis], sizes[axis + 1 :]
    support = capability_table()[target.level].input_tensor
    reshaped = len(sizes) not in _dimension_counts(support, target)
    own = site.descriptors[0].input_tensor.data_type
    cast = own not in support.data_types
    in_halves = cast and own in IN_HALVES
    if reshaped:
        rows = 1, prod(before), sizes[axis], prod(after)
        value, axis = nodes.reshape(value, rows, new_name("rows")), 2
    high = ""
    if in_halves:
        value, high = nodes.halves(value)
    elif cast:
        value = nodes.add("Cast", [value], new_name("wide"), to=_INT32)
    is_sequence = node.op_type == "SplitToSequence"
    squeezed = is_sequence and _drops_axis(node)
    pieces = [new_name("piece") for _ in site.pieces] if is_sequence else list(node.output)
    # If nothing has to be undone, Split makes the pieces directly. An unused piece has no name, but
    # Split still has to output it.
    direct = not (cast or reshaped or squeezed)
    parts = [piece if direct and piece else new_name("part") for piece in pieces]
    lengths = {part: size for part, size in zip(parts, site.pieces, strict=True) if size}
    nodes.split(value, lengths, axis, name)
    if in_halves:
        highs = {part: new_name("high") for part in lengths}
        nodes.split(high, {highs[part]: size for part, size in lengths.items()}, axis)
    kind = onnx.TensorProto.DataType.Value(site.element_type)
    for piece, part, size in zip(pieces, parts, site.pieces, strict=True):
        shape = (*before, *([] if squeezed else [size]), *after)
        if piece and not size:
            nodes.constant(np.empty(shape, helper.tensor_dtype_to_np_dtype(kind)), piece)
        elif piece:
            changed = shape if reshaped or squeezed else None
            part = nodes.whole(part, highs[part]) if in_halves else part
            nodes.restore(part, piece, kind if cast else 0, changed)
    if is_sequence:
        nodes.add("SequenceConstruct", pieces, node.output[0])
    return nodes


def _dimension_counts(support: TensorSupport, target: Target) -> range:
    if target.via == "ort":
        return range(1, MOST_DIMENSIONS + 1)
    return range(support.minimum_dimensions, support.maximum_dimensions + 1)


def _drops_axis(node: NodeProto) -> bool:
    """Whether a SplitToSequence drops the axis of its pieces, possible only without sizes."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    has_sizes = len(node.input) > 1 and bool(node.input[1])
    return not has_sizes and not attributes.get("keepdims", 1)
