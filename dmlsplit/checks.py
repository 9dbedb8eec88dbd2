"""Checks of arguments: types, integers, axes and sizes of pieces."""

import operator
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from itertools import pairwise
from os import PathLike, fspath
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar, cast

from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError, OutOfMemoryError
from dmlsplit.messages import shown, value_text

K = TypeVar("K")
# Strings are not sequences of integers; sets and dictionaries lose the order that was meant.
_WITHOUT_ORDER = (str, bytes, Set, Mapping)
_SEQUENCES = (tuple, list)  # fast path
_INT = frozenset((int,))
_MAX_EMPTY_PIECES = 1 << 24  # of an axis of size 0, which any number divides
# The most pieces for which an error works out nearly equal sizes.
_MAX_COUNT = 10_000


class SequenceLike(Protocol):
    """Integers in an order. They can be sliced, unlike sets and dictionaries."""

    def __iter__(self) -> Iterator[SupportsIndex]: ...
    def __getitem__(self, index: slice, /) -> Any: ...


Integers: TypeAlias = SequenceLike | Iterator[SupportsIndex] | ValuesView[SupportsIndex]


def instance(name: str, value: object, base: type[K]) -> K:
    """The value, if it has the type; otherwise an ArgumentTypeError names the argument."""
    if not isinstance(value, base):
        actual = type(value).__name__
        raise ArgumentTypeError(f"{name} has the type {actual}; it must be {base.__name__}")
    return value


def path_text(path: str | PathLike[str]) -> str:
    """A path as text; an ArgumentTypeError shows a value that is not a path."""
    try:
        name: object = fspath(path)
    except TypeError:
        name = None
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"path is {value_text(path)}; it must be a string or a PathLike of one"
        )
    return name


def integer(name: str, value: SupportsIndex) -> int:
    """The value as an int; if it is not an integer, an ArgumentTypeError names the argument."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    actual = f"{value_text(value)} ({type(value).__name__})"
    raise ArgumentTypeError(f"{name} is {actual}; it must be an integer")


def sequence(name: str, values: Iterable[K], of: str) -> tuple[K, ...]:
    """The values as a tuple; an ArgumentTypeError names the argument if it is not a sequence."""
    if type(values) not in _SEQUENCES and (isinstance(values, _WITHOUT_ORDER) or is_count(values)):
        raise ArgumentTypeError(f"{name} is {value_text(values)}; it must be a sequence of {of}")
    return tuple(values)


def integers(name: str, values: Integers) -> tuple[int, ...]:
    """The values as a tuple of ints; an ArgumentTypeError names an entry that is not an integer."""
    entries: Any = values
    if not isinstance(values, tuple):
        if getattr(values, "ndim", 0) and hasattr(values, "tolist"):
            values = values.tolist()  # one copy from a device, not one for each entry
        entries = sequence(name, values, "integers")
    if type(entries) is tuple and _INT.issuperset(map(type, entries)):  # fast path
        return entries
    return tuple(integer(f"{name}[{i}]", value) for i, value in enumerate(entries))


def are_plain_ints(axis: object, sizes_or_count: Any) -> bool:
    """Whether these are plain ints, which are safe cache keys: True and 1.0 would equal 1."""
    form = type(sizes_or_count)
    are_plain = form is int or (form is tuple and _INT.issuperset(map(type, sizes_or_count)))
    return are_plain and type(axis) is int


def integer_argument(name: str, value: SupportsIndex, operator: object) -> int:
    """The value of an ONNX operator's argument as an int.

    The error for anything else begins with `operator`. It is not a TypeError, because ONNX's
    reference evaluator replaces the message of one.
    """
    try:
        return integer(name, value)
    except ArgumentTypeError as error:
        raise InvalidArgumentError(f"{operator}: {error}") from None


def axis_from_front(axis: SupportsIndex, rank: int, operator: object = "") -> int:
    """The axis counted from the front; a negative axis counts from the end.

    If a tensor of `rank` dimensions has no such axis, the error begins with `operator`.
    """
    axis = integer_argument("axis", axis, operator) if operator else integer("axis", axis)
    if -rank <= axis < rank:
        return axis % rank
    problem = f"axis is {axis}; it must be from {-rank} to {rank - 1} at rank {rank}"
    if rank == 0:
        problem = "the input has 0 dimensions; it must have at least 1"
    raise InvalidArgumentError(f"{operator}: {problem}" if operator else problem)


def piece_sizes(
    shape: tuple[int, ...], sizes_or_count: SupportsIndex | Integers, axis: SupportsIndex
) -> tuple[int, tuple[int, ...]]:
    """The axis, counted from the front, and the size of each piece; the sizes must add up."""
    if type(axis) is not int or not 0 <= axis < len(shape):
        axis = axis_from_front(axis, len(shape))
    axis_size = shape[axis]
    is_int = type(sizes_or_count) is int  # the usual case, without the questions of `is_count`
    if is_int or (not isinstance(sizes_or_count, tuple) and is_count(sizes_or_count)):
        count = integer("count", cast(SupportsIndex, sizes_or_count))
        if count < 1 or axis_size % count:
            near = nearly_equal(axis_size, count)
            raise InvalidArgumentError(
                f"count is {count}; it must be at least 1 and divide {axis_size}, the size of axis "
                f"{axis}. Fix: give the {f'sizes {shown(near)}' if near else 'size of each piece'}"
            )
        if count > max(axis_size, _MAX_EMPTY_PIECES):
            raise OutOfMemoryError(f"{count} pieces do not fit in memory")
        return axis, (axis_size // count,) * count
    sizes = integers("sizes", cast(Integers, sizes_or_count))
    if sizes and (least := min(sizes)) < 0:
        raise InvalidArgumentError(
            f"sizes[{sizes.index(least)}] is {least}; it must not be negative"
        )
    if sum(sizes) != axis_size:
        raise InvalidArgumentError(
            f"sizes {shown(sizes)} add up to {sum(sizes)}; they must add up to {axis_size}, the "
            f"size of axis {axis}{_fix_for_cuts(sizes, axis_size)}"
        )
    return axis, sizes


def nearly_equal(axis_size: int, count: int) -> tuple[int, ...]:
    """The sizes of `count` pieces that differ by 1 at most, larger ones first.

    Empty if a piece would be, or if there are too many to show.
    """
    if not 1 <= count <= min(axis_size, _MAX_COUNT):
        return ()
    size, larger = divmod(axis_size, count)
    return (size + 1,) * larger + (size,) * (count - larger)


def _fix_for_cuts(sizes: tuple[int, ...], axis_size: int) -> str:
    """A fix for sizes that may be meant as the positions of cuts, which NumPy and JAX expect."""
    pieces = tuple(end - start for start, end in pairwise((0, *sizes, axis_size)))
    if not sizes or min(pieces) < 1:
        return ""
    return f". Fix: if these are positions of cuts, give {shown(pieces)}"


def is_count(sizes_or_count: object) -> bool:
    """Whether this is a single number. A 0-d array is one, although Python calls it iterable."""
    is_iterable = isinstance(sizes_or_count, Iterable)
    return not is_iterable or getattr(sizes_or_count, "ndim", None) == 0
