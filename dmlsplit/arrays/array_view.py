"""A description of the memory of an array of any library."""

from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.geometry import packed_byte_strides

# numpy.dtype.isbuiltin of a type that another library has registered.
EXTENSION = 2


class ArrayView(NamedTuple):
    """The memory of one array. A tuple, because one is made at every call."""

    owner: Any  # keeps the memory alive
    address: int  # of the first element
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    type: str  # see `type_string`
    item_bytes: int
    device: str  # "cpu" or "cuda:N"
    read_only: bool

    @property
    def span(self) -> tuple[int, int]:
        """Half-open range of addresses, ``[start, end)``, that the elements occupy."""
        low, high = byte_bounds(self.shape, self.strides, self.item_bytes)
        return self.address + low, self.address + high

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order."""
        packed = packed_byte_strides(self.shape, self.item_bytes)
        dims = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(size == 1 or stride == step for size, stride, step in dims)

    @property
    def window(self) -> np.ndarray:
        """The memory as an array of opaque elements, for tests of overlap only."""
        interface = {"shape": self.shape, "strides": self.strides, "version": 3}
        interface |= {"data": (self.address, True), "typestr": f"|V{self.item_bytes}"}
        return np.asarray(SimpleNamespace(__array_interface__=interface))


@lru_cache(maxsize=1024)
def byte_bounds(
    shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int
) -> tuple[int, int]:
    """The bytes ``[low, high)`` that the elements occupy, counted from the first one's address."""
    if 0 in shape:
        return 0, 0
    reaches = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low, high = (sum(clip(0, reach) for reach in reaches) for clip in (min, max))
    return low, high + item_bytes


def share_memory(first: ArrayView, second: ArrayView) -> bool:
    """Whether two arrays share a byte. Two columns of a matrix share addresses, but no byte.

    True also if that cannot be found out in a short time.
    """
    try:
        return np.shares_memory(first.window, second.window, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


# `new_array_view(ArrayView, fields)` takes half the time of `ArrayView(*fields)`.
new_array_view: Callable[[type[ArrayView], tuple[Any, ...]], ArrayView] = tuple.__new__


@lru_cache(maxsize=64)
def device_number_of(device: str) -> int:
    """The N of ``cuda:N``."""
    return int(device.removeprefix("cuda:"))


@lru_cache(maxsize=64)
def device_name(number: int) -> str:
    """The name ``cuda:N``."""
    return f"cuda:{number}"


@lru_cache(maxsize=256)
def type_string(dtype: np.dtype) -> str:
    """NumPy's string for a type, such as ``<f4``.

    Extension types, such as bfloat16, and structures are given by name, because many share one
    string.
    """
    is_ambiguous = dtype.isbuiltin == EXTENSION or dtype.names is not None
    return str(dtype) if is_ambiguous else dtype.str


def data_type_name(typestr: str) -> str:
    """A type string for people, such as ``int32``; unchanged if that would hide a difference."""
    try:
        dtype = np.dtype(typestr)
    except TypeError:  # the name of an extension type
        return typestr
    return dtype.name if dtype.isnative and dtype.kind in "biufc" else typestr


def dtype_of(array: Any, typestr: str) -> np.dtype:
    """The type of an array with this type string."""
    # Some types have no type string; only the array knows them.
    dtype = getattr(array, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else np.dtype(typestr)
