"""NumPy's arrays: what their memory is, and new ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import NUMPY, adapter_of, view
from dmlsplit.arrays.packing import packing


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4), "i2"),
        np.zeros((3, 4), "i2")[:, ::-2],
        np.broadcast_to(np.float32(1), (2, 3)),
        np.zeros((0, 4)),
        np.zeros(4, "M8[s]"),
    ],
    ids=["packed", "strided", "read-only", "empty", "no C type"],
)
def test_a_view_says_what_the_array_interface_says(array: np.ndarray) -> None:
    seen = view(array, "array")
    assert seen.owner is array
    assert (seen.address, seen.read_only) == array.__array_interface__["data"]
    assert (seen.shape, seen.strides) == (array.shape, array.strides)
    assert (seen.type, seen.item_bytes, seen.device) == (array.dtype.str, array.itemsize, "cpu")


def test_a_subclass_is_packed_into_a_plain_array() -> None:
    class Wide(np.ndarray):
        """As of NumPy's own matrix, a view of it has two dimensions."""

        def reshape(self, *shape: int) -> Any:
            return np.asarray(self).reshape(-1, 2)

    packed = NUMPY.packed(np.arange(4).reshape(2, 2).T.view(Wide), "array")
    assert type(packed) is np.ndarray
    assert packed.flags.c_contiguous
    assert NUMPY.reinterpreted(packed, "u1", (4, 8)).tobytes() == packed.tobytes()


def test_extension_types_are_kept() -> None:
    kind = pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16").bfloat16
    array = np.arange(4).astype(kind)
    (made,), _ = adapter_of(array).empty(view(array, "array"), packing(((2, 3),), 2))
    assert (made.dtype, made.shape) == (array.dtype, (2, 3))


def test_a_mask_is_not_lost() -> None:
    masked = np.ma.masked_array(np.arange(4), [0, 1, 0, 0])
    with pytest.raises(dml.InvalidArgumentError, match=r"array is masked.*\.data and \.mask"):
        dml.split(masked, 2)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\] is masked"):
        dml.split(np.arange(4), 1, out=[masked])


def test_no_memory_on_the_host_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # One byte, repeated by stride 0: the input is small and its pieces are not.
    huge = np.broadcast_to(np.zeros(1, "u1"), (1 << 46,))
    with pytest.raises(dml.OutOfMemoryError, match=f"{1 << 45} bytes does not fit"):
        dml.split(huge, 2)
