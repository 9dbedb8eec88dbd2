"""NumPy's arrays."""

from collections.abc import Iterator, Sequence
from ctypes import addressof, c_char
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Allocation, Requirements, Shape, allocate
from dmlsplit.arrays.array_view import EXTENSION, ArrayView, type_string, view_of
from dmlsplit.arrays.packing import Packing
from dmlsplit.arrays.slices import Slices
from dmlsplit.arrays.types import Stream
from dmlsplit.errors import InvalidArgumentError

_WHOLE_KINDS = "?biufcmMSU"
_MEMORY = attrgetter("shape", "strides", "dtype", "flags.writeable")


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
        address, typestr, width = _address(array), type_string(dtype), dtype.itemsize
        shape, strides, read_only = array.shape, array.strides, not array.flags.writeable
        return view_of(
            ArrayView, (array, address, shape, strides, typestr, width, "cpu", read_only)
        )

    def empty(self, like: ArrayView, packing: Packing, stream: Stream | None = None) -> Allocation:
        # The type itself, because extensions such as bfloat16 share one string.
        dtype = like.owner.dtype if packing.dtype is None else packing.dtype
        arrays = allocate(like, _empty, packing.shapes, dtype)
        return arrays, list(map(_address, arrays))

    def strided(self, packed: np.ndarray, shape: Shape, strides: Shape) -> np.ndarray:
        return np.ndarray(shape, packed.dtype, packed, 0, strides)

    def copies(self, array: np.ndarray, slices: Slices) -> list[np.ndarray] | None:
        if type(array) is not np.ndarray or not _is_whole(array.dtype):
            return None
        try:
            return [array[index].copy() for index in slices]
        except MemoryError:  # Fall through: the allocating path raises an error with the size.
            return None

    def exact_addresses(self, arrays: Sequence[Any], required: Requirements) -> list[int] | None:
        if set(map(type, arrays)) != {np.ndarray}:
            return None
        if (memories := required.native.get(self)) is None:
            memories = [_memory(*entry) for entry in required.outputs]
            required.native[self] = memories
        return list(map(_address, arrays)) if list(map(_MEMORY, arrays)) == memories else None

    def packed(self, array: np.ndarray, name: str) -> Any:
        # Subclasses may override `view`.
        return super().packed(np.asarray(array), name)


@lru_cache(maxsize=256)
def _is_whole(dtype: np.dtype) -> bool:
    """Whether NumPy copies elements byte for byte. It skips the padding between fields."""
    return dtype.kind in _WHOLE_KINDS and dtype.isbuiltin != EXTENSION


def _memory(
    shape: Shape, strides: Shape, name: str, item_bytes: int, device: str, read_only: bool
) -> tuple[Any, ...] | None:
    """The `_MEMORY` of an array that is as required; None if its type's name is not the type."""
    is_exact = name[0] in "<>|" and device == "cpu" and not read_only
    return (shape, strides, np.dtype(name), True) if is_exact else None


def _empty(shapes: Iterator[Shape], dtype: np.dtype) -> list[np.ndarray]:
    return list(map(np.empty, shapes, repeat(dtype)))


def _address(array: np.ndarray) -> int:
    try:
        # Three times as fast as the interface, which makes a dictionary each time.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty, or of no C type
        return int(array.__array_interface__["data"][0])


NUMPY = _Numpy()
