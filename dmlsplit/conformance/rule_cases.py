"""Every rule of descriptors that C can break, broken alone, and values at their limits.

The base has four dimensions and FLOAT32, which every level takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dmlsplit.conformance.case import Case
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import UINT_MAX, TensorDesc

_INPUT = (1, 2, 6, 2)
_PARTS = (2, 1, 3)
_AXIS = 2

# Rules that no case breaks, and why.
NOT_ASKED = {
    "DML-UINT-RANGE": "a C field cannot hold such a value",
    "DML-TENSOR-STRIDE-COUNT": "C has no count of strides apart from DimensionCount",
    "DML-BIND-COUNT": "DxDispatch refuses it before DirectML sees it",
    "DML-BIND-KIND": "a C binding is always a buffer",
    "DML-BIND-RANGE": "DxDispatch always binds the rest of the buffer",
    "DML-BIND-READ-ONLY": "D3D12 buffers of DxDispatch can always be written",
    "DML-ARRAY-DATA-TYPE": "DirectML has no arrays",
    "DML-ARRAY-SHAPE": "DirectML has no arrays",
    "DML-ARRAY-STRIDES": "DirectML has no arrays",
}


def _tensor(**fields: Any) -> TensorDesc:
    return TensorDesc(**{"data_type": "FLOAT32", "sizes": _INPUT, **fields})


def _pieces() -> list[TensorDesc]:
    return [_tensor(sizes=(*_INPUT[:_AXIS], part, *_INPUT[_AXIS + 1 :])) for part in _PARTS]


def _input(**fields: Any) -> SplitOperatorDesc:
    """Return the base with other fields in the input."""
    return SplitOperatorDesc(_tensor(**fields), _pieces(), _AXIS)


def _output(**fields: Any) -> SplitOperatorDesc:
    """Return the base with other fields in the first output."""
    first, *rest = _pieces()
    changed = _tensor(**{"sizes": first.sizes, **fields})
    return SplitOperatorDesc(_tensor(), [changed, *rest], _AXIS)


def _parts(*sizes: int, **fields: Any) -> SplitOperatorDesc:
    return SplitOperatorDesc.from_sizes(_tensor(**fields), axis=_AXIS, sizes=sizes)


def _copy(axis: int = _AXIS, **fields: Any) -> SplitOperatorDesc:
    tensor = _tensor(**fields)
    return SplitOperatorDesc(tensor, [tensor], axis)


# An empty tensor would have a size of 0 as well, which could be refused for another reason.
_EMPTY = {"total_tensor_size_in_bytes": 4}
_HUGE = (1, 1, 4, 1 << 30)  # 2^32 elements

_BROKEN: list[tuple[str, str, SplitOperatorDesc]] = [
    ("DATA-TYPE", "no data type", _copy(data_type="UNKNOWN", total_tensor_size_in_bytes=96)),
    ("DIMENSION-COUNT", "nine dimensions", _copy(8, sizes=(1,) * 8 + (4,))),
    (
        "ZERO-SIZE",
        "an empty output beside one that takes all",
        SplitOperatorDesc(_tensor(), [_tensor(), _tensor(sizes=(1, 2, 0, 2), **_EMPTY)], _AXIS),
    ),
    ("ZERO-SIZE-copy", "an empty input", _copy(sizes=(1, 2, 6, 0), **_EMPTY)),
    ("ELEMENT-COUNT", "2^32 elements", _parts(2, 2, data_type="FLOAT16", sizes=_HUGE)),
    ("SIZE-SMALL-input", "4 bytes too few", _input(total_tensor_size_in_bytes=92)),
    ("SIZE-SMALL-output", "4 bytes too few", _output(total_tensor_size_in_bytes=28)),
    ("SIZE-DWORD-input", "a total of 97 bytes", _input(total_tensor_size_in_bytes=97)),
    ("SIZE-DWORD-output", "a total of 33 bytes", _output(total_tensor_size_in_bytes=33)),
    (
        "SIZE-WRAP",
        "a last element past 2^32; the 32-bit size is 44",
        _input(strides=(0, UINT_MAX, 2, 1)),
    ),
    ("ALIGNMENT-input", "48, no power of two", _input(guaranteed_base_offset_alignment=48)),
    ("ALIGNMENT-output", "2, below the element", _output(guaranteed_base_offset_alignment=2)),
    ("OWNED-OUTPUT", "an output owned by DirectML", _output(flags="OWNED_BY_DML")),
    ("OUTPUT-OVERLAP-zero", "an output with stride 0", _output(strides=(0, 0, 2, 1))),
    ("OUTPUT-OVERLAP-nested", "rows of an output overlap", _output(strides=(8, 4, 1, 1))),
]
_BROKEN = [(f"TENSOR-{name}", about, desc) for name, about, desc in _BROKEN] + [
    ("SPLIT-OUTPUT-COUNT", "no outputs", SplitOperatorDesc(_tensor(), [], _AXIS)),
    ("SPLIT-AXIS-RANGE", "axis 4 of 4 dimensions", _copy(4)),
    ("SPLIT-AXIS-RANGE-minus-one", "axis 2^32-1, which is -1 in C", _copy(UINT_MAX)),
    ("SPLIT-DATA-TYPE-MATCH", "an INT32 output of FLOAT32", _output(data_type="INT32")),
    ("SPLIT-DIMENSION-COUNT-MATCH", "an output of 3 dimensions", _output(sizes=(2, 2, 2))),
    ("SPLIT-SIZE-MATCH", "an output with another size", _output(sizes=(1, 3, 2, 2))),
    ("SPLIT-AXIS-SUM-less", "parts of 5 in sum, of 6", _parts(2, 1, 2)),
    ("SPLIT-AXIS-SUM-more", "parts of 7 in sum, of 6", _parts(2, 2, 3)),
]

_LIMITS = [
    ("alignment-element", "the least alignment", _copy(guaranteed_base_offset_alignment=4)),
    ("alignment-largest", "alignment 2^31", _copy(guaranteed_base_offset_alignment=1 << 31)),
    ("total-larger", "a total with room to spare", _input(total_tensor_size_in_bytes=256)),
    ("total-huge", "a total of nearly 2^64", _copy(total_tensor_size_in_bytes=2**64 - 4)),
    ("elements", "2^32-1 elements", _copy(data_type="FLOAT16", sizes=(1, 1, UINT_MAX, 1))),
    ("index", "a last element at 2^32-1", _input(strides=(0, UINT_MAX - 11, 2, 1))),
    ("owned-input", "an input owned by DirectML", _input(flags="OWNED_BY_DML")),
    ("stride-one", "any stride on an output's dimension of 1", _output(strides=(0, 4, 2, 1))),
]


def rule_cases() -> Iterator[Case]:
    """Yield a case for each way to break a rule, and for each value at its limit."""
    for name, about, desc in _BROKEN:
        yield Case(f"rule-{name}", about, desc)
    for name, about, desc in _LIMITS:
        yield Case(f"limit-{name}", about, desc)
