"""The split that the samples of rules change in one thing: FLOAT32[1,2,6,2], at every level."""

from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc

SIZES, AXIS = (1, 2, 6, 2), 2
_SHORT = {
    "total": "total_tensor_size_in_bytes",
    "alignment": "guaranteed_base_offset_alignment",
}


def tensor(**fields: Any) -> TensorDesc:
    """FLOAT32[1,2,6,2] with other fields; `total` and `alignment` stand for the long names."""
    named = {_SHORT.get(name, name): value for name, value in fields.items()}
    return TensorDesc(**{"data_type": "FLOAT32", "sizes": SIZES, **named})


def parts(*sizes: int, **fields: Any) -> SplitOperatorDesc:
    """A tensor with some fields, in parts of some sizes."""
    return SplitOperatorDesc.from_sizes(tensor(**fields), axis=AXIS, sizes=sizes)


# The split that breaks no rule.
GOOD = parts(2, 1, 3)


def with_input(**fields: Any) -> SplitOperatorDesc:
    """GOOD with other fields in its input."""
    return SplitOperatorDesc(tensor(**fields), GOOD.output_tensors, AXIS)


def with_output(**fields: Any) -> SplitOperatorDesc:
    """GOOD with other fields in its first output."""
    first, *rest = GOOD.output_tensors
    changed = tensor(**{"sizes": first.sizes, **fields})
    return SplitOperatorDesc(GOOD.input_tensor, [changed, *rest], AXIS)


def copy_of(axis: int = AXIS, **fields: Any) -> SplitOperatorDesc:
    """A split of a tensor with some fields into itself."""
    copied = tensor(**fields)
    return SplitOperatorDesc(copied, [copied], axis)
