"""What arrays of any kind say of their memory, and how to make more of the same kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from dmlsplit import cuda_arrays
from dmlsplit.backends import driver
from dmlsplit.backends.cuda import stream_handle
from dmlsplit.errors import InvalidArgumentError, OutOfMemoryError
from dmlsplit.geometry import packed_byte_strides

# DLDeviceType of the DLPack standard.
_DLPACK_CPU = 1

_NATIVE = "<" if sys.byteorder == "little" else ">"

# Shape, bytes per stride, data type, bytes to reserve where there are strides.
Allocate = Callable[[Sequence[int], Sequence[int] | None, np.dtype, int], Any]


@dataclass(frozen=True, slots=True)
class ArrayView:
    """The memory of one array.

    Attributes
    ----------
    owner : numpy.ndarray or cupy.ndarray
        An array on the memory; keeps it alive.
    address : int
        Of the first element.
    shape : tuple of int
        Elements per dimension.
    strides : tuple of int
        Bytes per dimension.
    type : str
        NumPy type string, such as ``<f4``.
    item_bytes : int
        Bytes of one element.
    read_only : bool
        Whether writing is forbidden.
    device : str
        ``cpu`` or ``cuda:N``.
    """

    owner: Any
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: str
    item_bytes: int
    read_only: bool
    device: str

    @property
    def span(self) -> tuple[int, int]:
        """First byte reached, and the one behind the last."""
        if 0 in self.shape:
            return self.address, self.address
        reaches = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.address + sum(reach for reach in reaches if reach < 0)
        high = self.address + sum(reach for reach in reaches if reach > 0)
        return low, high + self.item_bytes

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie behind each other, row-major."""
        packed = packed_byte_strides(self.shape, self.item_bytes)
        rows = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(n == 1 or s == p for n, s, p in rows)

    @property
    def extent(self) -> np.ndarray:
        """An array to reason about addresses; its elements must not be read."""
        if isinstance(self.owner, np.ndarray):
            return self.owner
        return np.asarray(_Extent(self))


class _Extent:
    """The addresses of a view, in the form that NumPy reads."""

    def __init__(self, of: ArrayView) -> None:
        self.__array_interface__ = {
            "data": (of.address, False),
            "shape": of.shape,
            "strides": of.strides,
            "typestr": f"|V{of.item_bytes}",
            "version": 3,
        }


def view(array: Any, name: str) -> ArrayView:
    """Describe an array of NumPy, or of anything with DLPack or an array interface.

    Raises
    ------
    InvalidArgumentError
        If `array` is no array, holds Python objects, or cannot be reached without a copy.
    """
    if isinstance(array, np.ndarray):
        return _numpy_view(array, name)
    if driver.is_array(array):
        return _cuda_view(array, name)
    if hasattr(array, "__dlpack_device__"):
        kind = _dlpack_device_type(array, name)
        if kind == _DLPACK_CPU:
            return _numpy_view(_numpy_alias(array, name), name)
        if kind in cuda_arrays.DLPACK_CUDA:
            return _cuda_view(array, name)
        raise InvalidArgumentError(
            f"{name} is a {_type_name(array)} on DLPack device type {kind}; "
            "it must be on the CPU (1) or on CUDA (2 or 13)"
        )
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_view(array, name)
    if hasattr(array, "__array_interface__"):
        return _numpy_view(np.asarray(array), name)
    raise InvalidArgumentError(
        f"{name} is a {_type_name(array)}; it must be an array of NumPy, CuPy or any library "
        "with DLPack. Fix: numpy.asarray(...)"
    )


def _dlpack_device_type(array: Any, name: str) -> int:
    try:
        return int(array.__dlpack_device__()[0])
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name}, a {_type_name(array)}, is on no one device: {error}"
        ) from None


def _numpy_alias(array: Any, name: str) -> np.ndarray:
    try:
        return np.from_dlpack(_known_to_numpy(array))
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name}, a {_type_name(array)}, cannot be shared without a copy: {error}. "
            "Fix: view its bytes as an integer type of the same size"
        ) from None


def _known_to_numpy(array: Any) -> Any:
    """Return a tensor whose type NumPy lacks (bfloat16) as the unsigned integers of its size."""
    if not cuda_arrays.is_torch(array):
        return array
    carried = cuda_arrays.torch_carrier_type(array.dtype, array.element_size())
    known = getattr(sys.modules["torch"], carried.name)
    return array if array.dtype == known else array.view(known)


def _cuda_view(array: Any, name: str) -> ArrayView:
    carried = cuda_arrays.carrier(array, name)
    return ArrayView(
        carried,
        carried.data.ptr,
        carried.shape,
        carried.strides,
        _type(carried.dtype),
        carried.dtype.itemsize,
        cuda_arrays.is_read_only(array),
        f"cuda:{driver.device_of(carried)}",
    )


def _type(dtype: np.dtype) -> str:
    """Return the type string; types that are not NumPy's own go by their size."""
    return f"{_NATIVE}u{dtype.itemsize}" if cuda_arrays.is_user_type(dtype) else dtype.str


def _numpy_view(array: np.ndarray, name: str) -> ArrayView:
    if array.dtype.hasobject:
        raise InvalidArgumentError(
            f"{name} has data type {array.dtype}; Python objects cannot be split as bytes"
        )
    return ArrayView(
        array,
        array.__array_interface__["data"][0],
        array.shape,
        array.strides,
        _type(array.dtype),
        array.dtype.itemsize,
        not array.flags.writeable,
        "cpu",
    )


def empty(
    shape: Sequence[int], strides: Sequence[int] | None, dtype: np.dtype, size_in_bytes: int
) -> np.ndarray:
    """Allocate an array on the CPU.

    Parameters
    ----------
    shape
        Elements per dimension.
    strides
        Bytes per dimension; None for a packed array.
    dtype
        Data type.
    size_in_bytes
        Bytes to reserve where there are strides.

    Raises
    ------
    OutOfMemoryError
        If there is not that much memory.
    """
    try:
        if strides is None:
            return np.empty(shape, dtype)
        store = np.empty(size_in_bytes, np.uint8)
    except MemoryError:
        wanted = size_in_bytes if strides is not None else prod(shape) * dtype.itemsize
        raise OutOfMemoryError(f"an output of {wanted} bytes does not fit in memory") from None
    return np.ndarray(shape, dtype, store, 0, strides)


def allocator(model: Any, device: str) -> Allocate:
    """Return what allocates arrays on a device, of the library of `model` where that is known.

    Its result goes through `same_kind` before the caller sees it.
    """
    if device == "cpu":
        return empty
    return partial(cuda_arrays.empty, model, int(device.removeprefix("cuda:")))


def allocating_for(model: Any, device: str, stream: Any) -> AbstractContextManager[object]:
    """Return a context in which `allocator` takes memory that a stream may write at once.

    Memory pools hand memory on as soon as its last use is queued, so that it is ready on the
    stream that was current, and on no other.

    Raises
    ------
    InvalidArgumentError
        If `stream` is no stream of the device.
    """
    if stream is None or device == "cpu":
        return nullcontext()
    number = int(device.removeprefix("cuda:"))
    return cuda_arrays.on_stream(model, number, stream_handle(stream, number))


def on_stream_of(array: Any) -> AbstractContextManager[object]:
    """Return a context in which CuPy works on the current stream of the array's library."""
    current = cuda_arrays.stream_of(array)
    return nullcontext() if current is None else driver.on_stream(array.device.index, current())


def same_kind(result: Any, model: Any) -> Any:
    """Hand `result` over as an array of the library that `model` belongs to, without a copy."""
    library = type(model).__module__.partition(".")[0]
    if isinstance(model, np.ndarray) or type(result) is type(model) or library not in sys.modules:
        return result
    if cuda_arrays.is_torch(model):
        tensor = sys.modules["torch"].from_dlpack(result)
        same_size = tensor.element_size() == model.element_size()
        return tensor.view(model.dtype) if same_size else tensor
    if hasattr(model, "__array_namespace__"):
        return model.__array_namespace__().from_dlpack(result)
    module = sys.modules[library]
    return module.from_dlpack(result) if hasattr(module, "from_dlpack") else result


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}."
    return f"{module}{kind.__qualname__}"
