"""What arrays of any kind say of their memory, and how to make more of the same kind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from dmlsplit.errors import InvalidArgumentError, OutOfMemoryError
from dmlsplit.geometry import packed_byte_strides

# DLDeviceType of the DLPack standard.
_DLPACK_CPU = 1


@dataclass(frozen=True, slots=True)
class ArrayView:
    """The memory of one array.

    Attributes
    ----------
    owner : object
        Keeps the memory alive.
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


def view(array: Any, name: str) -> ArrayView:
    """Describe an array of NumPy, or of anything with DLPack or an array interface.

    Raises
    ------
    InvalidArgumentError
        If `array` is no array, holds Python objects, or cannot be reached without a copy.
    """
    if isinstance(array, np.ndarray):
        return _numpy_view(array, name)
    if hasattr(array, "__dlpack_device__"):
        kind, _ = array.__dlpack_device__()
        if kind == _DLPACK_CPU:
            return _numpy_view(_numpy_alias(array, name), name)
        raise InvalidArgumentError(
            f"{name} is a {_type_name(array)} on DLPack device type {kind}; it must be on the CPU"
        )
    if hasattr(array, "__array_interface__"):
        return _numpy_view(np.asarray(array), name)
    raise InvalidArgumentError(
        f"{name} is a {_type_name(array)}; it must be an array of NumPy, CuPy or any library "
        "with DLPack. Fix: numpy.asarray(...)"
    )


def _numpy_alias(array: Any, name: str) -> np.ndarray:
    try:
        return np.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name}, a {_type_name(array)}, cannot be shared without a copy: {error}. "
            "Fix: view its bytes as an integer type of the same size"
        ) from None


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
        array.dtype.str,
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


def same_kind(result: np.ndarray, model: Any) -> Any:
    """Hand `result` over as an array of the library that `model` belongs to, without a copy."""
    library = type(model).__module__.partition(".")[0]
    if isinstance(model, np.ndarray) or library not in sys.modules:
        return result
    if hasattr(model, "__array_namespace__"):
        return model.__array_namespace__().from_dlpack(result)
    module = sys.modules[library]
    return module.from_dlpack(result) if hasattr(module, "from_dlpack") else result


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}."
    return f"{module}{kind.__qualname__}"
