"""A description of the memory of one array of any library, and arithmetic on it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import le
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
        low, high = _reach(self.shape, self.strides, self.item_bytes)
        return self.address + low, self.address + high

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order."""
        packed = packed_byte_strides(self.shape, self.item_bytes)
        rows = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(n == 1 or s == p for n, s, p in rows)

    @property
    def window(self) -> np.ndarray:
        """The same memory as an array of opaque elements, for overlap tests only."""
        interface = {"shape": self.shape, "strides": self.strides, "version": 3}
        interface |= {"data": (self.address, True), "typestr": f"|V{self.item_bytes}"}
        return np.asarray(SimpleNamespace(__array_interface__=interface))


@lru_cache(maxsize=1024)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> tuple[int, int]:
    if 0 in shape:
        return 0, 0
    reaches = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0) + item_bytes


def are_apart(starts: Iterable[int], ends: Iterable[int]) -> bool:
    """Whether spans do not overlap: in order of address, none ends after the next one begins."""
    return all(map(le, sorted(ends), sorted(starts)[1:]))


def overlaps(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The index of each span that begins inside another, and of that other, by address."""
    areas = sorted((span, index) for index, span in enumerate(spans))
    furthest, owner = 0, 0
    for (low, high), index in areas:
        if low < furthest:
            yield index, owner
        if high > furthest:
            furthest, owner = high, index


def columns(views: Sequence[ArrayView]) -> list[tuple[int, int]] | None:
    """The range of columns of each view in rows that all share; None if there are no such rows.

    Views whose columns do not overlap share no byte. This is how thousands of columns of one array
    are told apart, whose spans all overlap. No view may be wider than a row or cross its end.
    """
    first = min(view.address for view in views)
    steps = [
        abs(s) for view in views for n, s in zip(view.shape, view.strides, strict=True) if n > 1
    ]
    pitch = max([1, *steps])
    found = []
    for view in views:
        # A stride of whole rows stays in the same column.
        inner = tuple([stride if stride % pitch else 0 for stride in view.strides])
        low, high = _reach(view.shape, inner, view.item_bytes)
        start = (view.address + low - first) % pitch
        found.append((start, start + high - low))
    return None if max(end for _, end in found) > pitch else found


# `view_of(ArrayView, fields)` takes half the time of `ArrayView(*fields)`.
view_of: Callable[[type[ArrayView], tuple[Any, ...]], ArrayView] = tuple.__new__


@lru_cache(maxsize=64)
def device_number(device: str) -> int:
    """The N of ``cuda:N``."""
    return int(device.removeprefix("cuda:"))


@lru_cache(maxsize=64)
def device_name(number: int) -> str:
    """The name ``cuda:N``."""
    return f"cuda:{number}"


@lru_cache(maxsize=256)
def type_string(dtype: np.dtype) -> str:
    """NumPy's string for a type, such as ``<f4``.

    Extension types, such as bfloat16, and structures are given by name: many share one string.
    """
    is_vague = dtype.isbuiltin == EXTENSION or dtype.names is not None
    return str(dtype) if is_vague else dtype.str
