"""NumPy's arrays."""

from collections.abc import Iterator, Sequence
from ctypes import addressof, c_char
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Made, Shape, allocate
from dmlsplit.arrays.array_view import EXTENSION, ArrayView, type_string, view_of
from dmlsplit.arrays.packing import Cut, Packing
from dmlsplit.arrays.types import Stream
from dmlsplit.errors import InvalidArgumentError

_WHOLE_KINDS = "?biufcmMSU"
_LAYOUT = attrgetter("shape", "dtype", "flags.c_contiguous", "flags.writeable")


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
        at, kind, width = _address(array), type_string(dtype), dtype.itemsize
        shape, strides, read_only = array.shape, array.strides, not array.flags.writeable
        return view_of(ArrayView, (array, at, shape, strides, kind, width, "cpu", read_only))

    def empty(self, like: ArrayView, wanted: Packing, stream: Stream | None = None) -> Made:
        # The type itself, because extensions such as bfloat16 share one string.
        kind = like.owner.dtype if wanted.dtype is None else wanted.dtype
        made = allocate(like, _empty, wanted.shapes, kind)
        return made, list(map(_address, made))

    def strided(self, packed: np.ndarray, shape: Shape, strides: Shape) -> np.ndarray:
        return np.ndarray(shape, packed.dtype, packed, 0, strides)

    def copies(self, array: np.ndarray, cut: Cut) -> list[np.ndarray] | None:
        if type(array) is not np.ndarray or not _is_whole(array.dtype):
            return None
        try:
            return [array[one].copy() for one in cut.slices]
        except MemoryError:  # Fall through: the allocating path raises an error with the size.
            return None

    def packed_addresses(
        self, like: np.ndarray, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> list[int] | None:
        if set(map(type, arrays)) != {np.ndarray}:
            return None
        wanted = [(shape, like.dtype, True, True) for shape in shapes]
        return list(map(_address, arrays)) if list(map(_LAYOUT, arrays)) == wanted else None

    def copy_into(self, array: np.ndarray, cut: Cut, outputs: Sequence[Any]) -> bool:
        if {type(array), *map(type, outputs)} != {np.ndarray} or not _is_whole(array.dtype):
            return False
        for output, one in zip(outputs, cut.slices, strict=True):
            output[...] = array[one]
        return True

    def packed(self, array: np.ndarray, name: str) -> Any:
        # Subclasses may override `view`.
        return super().packed(np.asarray(array), name)


@lru_cache(maxsize=256)
def _is_whole(dtype: np.dtype) -> bool:
    """Whether NumPy copies elements byte for byte. It skips the padding between fields."""
    return dtype.kind in _WHOLE_KINDS and dtype.isbuiltin != EXTENSION


def _empty(shapes: Iterator[Shape], dtype: np.dtype) -> list[np.ndarray]:
    return list(map(np.empty, shapes, repeat(dtype)))


def _address(array: np.ndarray) -> int:
    try:
        # Three times as fast as the interface, which makes a dictionary each time.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty, or of no C type
        return int(array.__array_interface__["data"][0])


NUMPY = _Numpy()
