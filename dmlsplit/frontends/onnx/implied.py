"""Splits that no node is named after: what other operators become in ONNX Runtime.

- A Slice that cuts off the front of one axis becomes DML_OPERATOR_SPLIT with two outputs.
  Source: microsoft/onnxruntime, DmlOperatorSlice.cpp, GetSplitIndex (pull request 18289).
- RotaryEmbedding is a function whose body has Splits. A runtime without a kernel for it runs
  the body. Source: ONNX, RotaryEmbedding-23.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.frontends.onnx.operators import CARRIERS, ElementType
from dmlsplit.frontends.onnx.reader import WireError
from dmlsplit.frontends.onnx.values import Call


class Implied(NamedTuple):
    """The fields that the site of such a split has."""

    descriptors: tuple[SplitOperatorDesc]
    implied: str
    pieces: tuple[int, ...]


def implied_splits(call: Call) -> list[Implied]:
    """The splits that a node of the default domain becomes, where its sizes are known."""
    find = _FINDERS.get(call.node.op_type)
    if find is None or not call.inputs or not call.inputs[0].is_static:
        return []
    kind = call.inputs[0].element_type or ElementType.UNDEFINED
    carrier, lanes = CARRIERS.get(kind, (None, 1))
    if carrier is None or lanes > 1:
        return []
    try:
        return list(find(call, carrier.name))
    except (ValueError, IndexError, TypeError, WireError):
        return []


def _slice(call: Call, kind: str) -> Iterator[Implied]:
    shape = [int(size) for size in call.shape(0)]
    offsets, sizes = [0] * len(shape), list(shape)
    for at, part in call.slices():
        if part.step != 1:
            return
        offsets[at], end, _ = part.indices(shape[at])
        sizes[at] = end - offsets[at]
    moved = [at for at, offset in enumerate(offsets) if offset]
    if len(moved) != 1 or min(sizes) <= 0 or sizes[moved[0]] < shape[moved[0]] - offsets[moved[0]]:
        return
    (at,) = moved
    front = [*shape[:at], offsets[at], *shape[at + 1 :]]
    outputs = [TensorDesc(kind, front), TensorDesc(kind, sizes)]
    why = "ONNX Runtime makes a DirectML Split of this Slice (onnxruntime pull request 18289)"
    desc = SplitOperatorDesc(TensorDesc(kind, shape), outputs, at)
    yield Implied((desc,), why, (offsets[at], sizes[at]))


def _rotary_embedding(call: Call, kind: str) -> Iterator[Implied]:
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
    why = "the body of the function RotaryEmbedding has this Split"
    before = (batch, length, heads)
    yield _along_last((*before, width), (rotated, width - rotated), kind, why)
    if not call.number("interleaved", 0):
        half = -(-rotated // 2)
        yield _along_last((*before, rotated), (half, rotated - half), kind, why)


def _along_last(shape: tuple[int, ...], pieces: tuple[int, ...], kind: str, why: str) -> Implied:
    filled = [size for size in pieces if size]
    last = len(shape) - 1
    desc = SplitOperatorDesc.from_sizes(TensorDesc(kind, shape), axis=last, sizes=filled)
    return Implied((desc,), why, pieces)


_FINDERS = {"Slice": _slice, "RotaryEmbedding": _rotary_embedding}
