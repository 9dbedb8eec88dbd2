"""Slices that ONNX Runtime turns into splits.

A Slice that cuts off the front of one axis becomes DML_OPERATOR_SPLIT with two outputs.
Source: microsoft/onnxruntime, DmlOperatorSlice.cpp, GetSplitIndex (pull request 18289).
"""

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.frontends.onnx.operators import CARRIERS, ElementType
from dmlsplit.frontends.onnx.reader import WireError
from dmlsplit.frontends.onnx.values import Call
from dmlsplit.frontends.site import Implied

_WHY = "ONNX Runtime turns this Slice into a DirectML Split (onnxruntime pull request 18289)"


def implied_split(call: Call) -> Implied | None:
    """The split that a node of the default domain becomes, if its sizes are known."""
    if call.node.op_type != "Slice" or not call.inputs or not call.inputs[0].is_static:
        return None
    element_type = call.inputs[0].element_type or ElementType.UNDEFINED
    carrier, lanes = CARRIERS.get(element_type, (None, 1))
    if carrier is None or lanes > 1:
        return None
    shape = [size for size in call.shape(0) if isinstance(size, int)]  # all of them
    offsets, sizes = [0] * len(shape), list(shape)
    try:
        for axis, part in call.slices():
            if part.step != 1:
                return None
            offsets[axis], end, _ = part.indices(shape[axis])
            sizes[axis] = end - offsets[axis]
    except (ValueError, IndexError, TypeError, WireError):
        return None
    cut_axes = [axis for axis, offset in enumerate(offsets) if offset]
    if len(cut_axes) != 1 or min(sizes) <= 0:
        return None
    (axis,) = cut_axes
    if sizes[axis] < shape[axis] - offsets[axis]:
        return None
    front = [*shape[:axis], offsets[axis], *shape[axis + 1 :]]
    outputs = [TensorDesc(carrier, front), TensorDesc(carrier, sizes)]
    desc = SplitOperatorDesc(TensorDesc(carrier, shape), outputs, axis)
    return Implied(_WHY, desc, (offsets[axis], sizes[axis]))
