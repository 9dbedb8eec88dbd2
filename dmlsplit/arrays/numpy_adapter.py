"""NumPy's arrays."""

from collections.abc import Callable
from ctypes import addressof, c_char
from itertools import repeat

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Allocation, NewArrays, Shape, allocation_error
from dmlsplit.arrays.array_view import ArrayView, new_array_view, type_string
from dmlsplit.arrays.types import Stream
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import Note


class _Numpy(Adapter):
    """NumPy, and memory of the CPU in general."""

    def view(self, array: np.ndarray, name: str) -> ArrayView:
        dtype = array.dtype
        if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
            fault = f"{name} is masked; its pieces would lose the mask"
            raise InvalidArgumentError(Note(fault, "split .data and .mask"))
        if dtype.hasobject:
            fault = f"{name} has data type {dtype}; Python objects cannot be split as bytes"
            fix = "numpy.split, or an array of another data type"
            raise InvalidArgumentError(Note(fault, fix))
        fields = (
            array,
            _address(array),
            array.shape,
            array.strides,
            type_string(dtype),
            dtype.itemsize,
            "cpu",
            not array.flags.writeable,
        )
        return new_array_view(ArrayView, fields)

    def empty(self, like: ArrayView, new: NewArrays, stream: Stream | None = None) -> Allocation:
        # The view has only the type's string, which extensions such as bfloat16 share.
        dtype = like.owner.dtype if new.dtype is None else new.dtype
        # `empty` is faster, but makes strings of no bytes one character long.
        make: Callable[..., np.ndarray] = np.empty if dtype.itemsize else np.ndarray
        remaining = iter(new.shapes)
        try:
            arrays = list(map(make, remaining, repeat(dtype)))
        except (MemoryError, ValueError) as error:  # the second: more than 2^63 bytes
            raise allocation_error(like, new.shapes, remaining, dtype, error) from None
        return arrays, list(map(_address, arrays))

    def strided(self, packed: np.ndarray, shape: Shape, strides: Shape) -> np.ndarray:
        return np.ndarray(shape, packed.dtype, packed, 0, strides)


def _address(array: np.ndarray) -> int:
    """The address of an array's first element."""
    try:
        # This is three times as fast as the array interface, which makes a dictionary each time.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty, or of no C type
        return int(array.__array_interface__["data"][0])


NUMPY = _Numpy()
