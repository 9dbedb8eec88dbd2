"""Checks of numbers that come from outside: integers, axes and sizes of pieces."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from typing import SupportsIndex, cast

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import shown


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
    is_usual = type(values) is tuple or type(values) is list  # the sooner answer
    # The order of a set or a dictionary is not that of its writer.
    without_order = (str, bytes, Set, Mapping)
    if not is_usual and (isinstance(values, without_order) or not isinstance(values, Iterable)):
        raise TypeError(f"{name} is {values!r}; it must be a sequence of integers")
    entries = tuple(values)
    if set(map(type, entries)) == {int}:  # most often, and much sooner known
        return entries  # type: ignore[return-value]
    return tuple(integer(f"{name}[{i}]", value) for i, value in enumerate(entries))


def integer_argument(name: str, value: SupportsIndex, operator: object = "") -> int:
    """Return `value` as an int, or refuse it as an argument of `operator`.

    Raises
    ------
    InvalidArgumentError
        If `value` is not an integer; the message begins with `operator`, if there is one.
    """
    try:
        return integer(name, value)
    except TypeError as error:
        raise InvalidArgumentError(f"{_of(operator)}{error}") from None


def axis_from_front(axis: SupportsIndex, rank: int, operator: object = "") -> int:
    """Return an axis, which may count from the end, counted from 0 at the outermost dimension.

    Raises
    ------
    InvalidArgumentError
        If `axis` is not an integer or a tensor of `rank` dimensions does not have it; the
        message begins with `operator`, if there is one.
    """
    at = integer_argument("axis", axis, operator)
    if rank == 0:
        raise InvalidArgumentError(
            f"{_of(operator)}the input is a scalar (rank 0); a scalar cannot be split"
        )
    if not -rank <= at < rank:
        allowed = f"{-rank} to {rank - 1} at rank {rank}"
        raise InvalidArgumentError(f"{_of(operator)}axis is {at}; it must be {allowed}")
    return at % rank


def _of(operator: object) -> str:
    return f"{operator}: " if operator else ""


def piece_sizes(
    shape: tuple[int, ...],
    sizes_or_count: SupportsIndex | Iterable[SupportsIndex],
    axis: SupportsIndex,
) -> tuple[int, tuple[int, ...]]:
    """Return the axis, counted from the front, and the size of each piece along it.

    Raises
    ------
    InvalidArgumentError
        If `shape` does not have the axis, or the sizes do not add up.
    """
    at = axis_from_front(axis, len(shape))
    return at, _sizes(sizes_or_count, shape[at], at)


def _sizes(
    sizes_or_count: SupportsIndex | Iterable[SupportsIndex], whole: int, axis: int
) -> tuple[int, ...]:
    if is_count(sizes_or_count):
        count = integer_argument("count", cast(SupportsIndex, sizes_or_count))
        if count < 1 or whole % count:
            raise InvalidArgumentError(
                f"count is {count}; it must be at least 1 and divide axis {axis}, of size {whole}."
                " Fix: give the sizes"
            )
        return (whole // count,) * count
    sizes = size_arguments(cast(Iterable[SupportsIndex], sizes_or_count))
    if min(sizes, default=0) < 0 or sum(sizes) != whole:
        raise InvalidArgumentError(
            f"sizes are {shown(sizes)}, {sum(sizes)} in sum; they must be at least 0 and add up "
            f"to axis {axis}, of size {whole}"
        )
    return sizes


def is_count(sizes_or_count: object) -> bool:
    """Whether this is one number: a 0-d array is one, although Python calls it iterable."""
    is_iterable = isinstance(sizes_or_count, Iterable)
    return not is_iterable or getattr(sizes_or_count, "ndim", None) == 0


def size_arguments(sizes: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Return sizes as a tuple of ints, or refuse them as an argument."""
    try:
        return integers("sizes", sizes)
    except TypeError as error:
        raise InvalidArgumentError(str(error)) from None
