"""Splits that ONNX Runtime makes of other operators.

- A Slice that cuts off the front of one axis becomes DML_OPERATOR_SPLIT with two outputs.
  Source: microsoft/onnxruntime, DmlOperatorSlice.cpp, GetSplitIndex (pull request 18289).
- RotaryEmbedding is a function with Splits, which run if a runtime has no kernel for it.
  Source: ONNX, RotaryEmbedding-23.
"""

from collections.abc import Iterator

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.frontends.onnx.operators import CARRIERS, ElementType
from dmlsplit.frontends.onnx.reader import WireError
from dmlsplit.frontends.onnx.values import Call
from dmlsplit.geometry import ceil_div

# A descriptor, the sizes of the pieces, and why the node becomes such a split.
ImpliedSplit = tuple[SplitOperatorDesc, tuple[int, ...], str]


def implied_splits(call: Call) -> list[ImpliedSplit]:
    """The splits that a node of the default domain becomes, if its sizes are known."""
    find = _FINDERS.get(call.node.op_type)
    if find is None or not call.inputs or not call.inputs[0].is_static:
        return []
    element_type = call.inputs[0].element_type or ElementType.UNDEFINED
    carrier, lanes = CARRIERS.get(element_type, (None, 1))
    if carrier is None or lanes > 1:
        return []
    try:
        return list(find(call, carrier.name))
    except (ValueError, IndexError, TypeError, WireError):
        return []


def _slice(call: Call, data_type: str) -> Iterator[ImpliedSplit]:
    shape = [int(size) for size in call.shape(0)]
    offsets, sizes = [0] * len(shape), list(shape)
    for axis, part in call.slices():
        if part.step != 1:
            return
        offsets[axis], end, _ = part.indices(shape[axis])
        sizes[axis] = end - offsets[axis]
    cut_axes = [axis for axis, offset in enumerate(offsets) if offset]
    if (
        len(cut_axes) != 1
        or min(sizes) <= 0
        or sizes[cut_axes[0]] < shape[cut_axes[0]] - offsets[cut_axes[0]]
    ):
        return
    (axis,) = cut_axes
    front = [*shape[:axis], offsets[axis], *shape[axis + 1 :]]
    outputs = [TensorDesc(data_type, front), TensorDesc(data_type, sizes)]
    why = "ONNX Runtime turns this Slice into a DirectML Split (onnxruntime pull request 18289)"
    desc = SplitOperatorDesc(TensorDesc(data_type, shape), outputs, axis)
    yield desc, (offsets[axis], sizes[axis]), why


def _rotary_embedding(call: Call, data_type: str) -> Iterator[ImpliedSplit]:
    shape = [int(size) for size in call.shape(0)]
    if len(shape) == 4:
        batch, heads, length, width = shape
    else:
        batch, length, whole = shape
        heads = call.number("num_heads", 0)
        width = whole // heads if heads > 0 else 0
    rotated = call.number("rotary_embedding_dim", 0) or width
    if not 0 < rotated <= width:
        return
    why = "the body of the function RotaryEmbedding contains this Split"
    splits = [(width, rotated)]
    if not call.number("interleaved", 0):
        splits.append((rotated, ceil_div(rotated, 2)))
    for whole, first in splits:
        pieces = first, whole - first
        tensor = TensorDesc(data_type, (batch, length, heads, whole))
        filled = [size for size in pieces if size]
        yield SplitOperatorDesc.from_sizes(tensor, axis=3, sizes=filled), pieces, why


_FINDERS = {"Slice": _slice, "RotaryEmbedding": _rotary_embedding}
