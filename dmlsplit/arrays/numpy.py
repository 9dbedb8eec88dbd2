"""NumPy's arrays."""

from __future__ import annotations

from ctypes import addressof, c_char
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Shape, allocate
from dmlsplit.arrays.array_view import ArrayView, type_string, view_of
from dmlsplit.arrays.packing import Packing
from dmlsplit.errors import InvalidArgumentError


class _Numpy(Adapter):
    def view(self, array: np.ndarray, name: str) -> ArrayView:
        dtype = array.dtype
        if dtype.hasobject:
            raise InvalidArgumentError(
                f"{name} has data type {dtype}; Python objects cannot be split as bytes"
            )
        if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
            raise InvalidArgumentError(
                f"{name} is masked; its pieces would lose the mask. Fix: split .data and .mask"
            )
        return view_of(
            (
                array,
                _address(array),
                array.shape,
                array.strides,
                type_string(dtype),
                dtype.itemsize,
                not array.flags.writeable,
                "cpu",
            )
        )

    def empty(
        self, like: ArrayView, wanted: Packing, dtype: str | None = None
    ) -> tuple[list[np.ndarray], list[int]]:
        # The type itself: its string does not tell extensions, such as bfloat16, apart.
        kind = like.owner.dtype if dtype is None else np.dtype(dtype)
        made = allocate(like, np.empty, wanted.shapes, kind)
        return made, list(map(_address, made))

    def strided(
        self, like: ArrayView, shape: Shape, strides: Shape, dtype: str, size: int
    ) -> np.ndarray:
        (store,) = allocate(like, np.empty, [(size,)], np.dtype("u1"))
        return np.ndarray(shape, dtype, store, 0, strides)

    def packed(self, array: np.ndarray, name: str) -> Any:
        # A view of a subclass need not be what NumPy's is.
        return super().packed(np.asarray(array), name)


def _address(array: np.ndarray) -> int:
    try:
        # Three times as fast as the interface, whose dictionary is made anew each time.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty, or of no C type
        return int(array.__array_interface__["data"][0])


NUMPY = _Numpy()
