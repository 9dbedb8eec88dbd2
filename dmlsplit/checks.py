"""Checks of numbers that come from outside: integers, axes and sizes of pieces."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

from dmlsplit.errors import InvalidArgumentError


def integer(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int; a TypeError names the field of anything else."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} is {value!r} ({type(value).__name__}); it must be an integer")


def integers(name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return `values` as a tuple of ints; a TypeError names the entry of anything else."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is {values!r}; it must be a sequence of integers")
    entries = tuple(values)
    if set(map(type, entries)) == {int}:  # most often, and much sooner known
        return entries  # type: ignore[return-value]
    return tuple(integer(f"{name}[{i}]", value) for i, value in enumerate(entries))


def piece_sizes(
    shape: tuple[int, ...],
    sizes_or_count: SupportsIndex | Iterable[SupportsIndex],
    axis: SupportsIndex,
) -> tuple[int, tuple[int, ...]]:
    """Return the axis, counted from the front, and the size of each piece along it.

    Raises
    ------
    InvalidArgumentError
        If the axis is none of `shape`, or the sizes do not add up.
    """
    at = _axis(axis, len(shape))
    return at, _sizes(sizes_or_count, shape[at], at)


def _axis(axis: SupportsIndex, rank: int) -> int:
    at = _checked_integer("axis", axis)
    if not -rank <= at < rank:
        allowed = f"{-rank} to {rank - 1}" if rank else "absent: a scalar cannot be split"
        raise InvalidArgumentError(f"axis is {at}; it must be {allowed}")
    return at % rank


def _sizes(
    sizes_or_count: SupportsIndex | Iterable[SupportsIndex], whole: int, axis: int
) -> tuple[int, ...]:
    if not isinstance(sizes_or_count, Iterable) or getattr(sizes_or_count, "ndim", None) == 0:
        count = _checked_integer("count", sizes_or_count)
        if count < 1 or whole % count:
            raise InvalidArgumentError(
                f"count is {count}; it must be at least 1 and divide axis {axis}, of size {whole}."
                " Fix: give the sizes"
            )
        return (whole // count,) * count
    try:
        sizes = integers("sizes", sizes_or_count)
    except TypeError as error:
        raise InvalidArgumentError(str(error)) from None
    if min(sizes, default=0) < 0 or sum(sizes) != whole:
        raise InvalidArgumentError(
            f"sizes are {_short(sizes)}, {sum(sizes)} in sum; they must be at least 0 and add up "
            f"to axis {axis}, of size {whole}"
        )
    return sizes


def _short(sizes: tuple[int, ...]) -> str:
    return (
        str(list(sizes)) if len(sizes) <= 16 else f"{list(sizes[:16])} and {len(sizes) - 16} more"
    )


def _checked_integer(name: str, value: Any) -> int:
    try:
        return integer(name, value)
    except TypeError as error:
        raise InvalidArgumentError(str(error)) from None
