"""Checks of what comes from outside: types, integers, axes and sizes of pieces."""

import operator
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from itertools import pairwise
from os import PathLike, fspath
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar, cast

from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError
from dmlsplit.messages import shown

K = TypeVar("K")
# The order of a set or a dictionary is not that of its writer.
_WITHOUT_ORDER = (str, bytes, Set, Mapping)


class Sequenced(Protocol):
    """Integers in an order of their own: unlike sets and dictionaries, they can be sliced."""

    def __iter__(self) -> Iterator[SupportsIndex]: ...
    def __getitem__(self, index: slice, /) -> Any: ...


Integers: TypeAlias = Sequenced | Iterator[SupportsIndex] | ValuesView[SupportsIndex]


def instance(name: str, value: object, kind: type[K]) -> K:
    """Check that a value has a type, and return it; an ArgumentTypeError names the argument."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} is a {type(value).__name__}; it must be a {kind.__name__}")
    return value


def file_name(path: str | PathLike[str]) -> str:
    """A path as text; an ArgumentTypeError shows what is not a path."""
    try:
        name: object = fspath(path)
    except TypeError:
        name = None
    if not isinstance(name, str):
        raise ArgumentTypeError(f"path is {path!r}; it must be a string or a PathLike of one")
    return name


def integer(name: str, value: SupportsIndex) -> int:
    """The value as an int; an ArgumentTypeError names the field of anything else."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise ArgumentTypeError(f"{name} is {value!r} ({type(value).__name__}); it must be an integer")


def sequence(name: str, values: Iterable[K], of: str) -> tuple[K, ...]:
    """The values as a tuple; an ArgumentTypeError names what is not a sequence."""
    is_usual = type(values) is tuple or type(values) is list  # the faster answer
    if not is_usual and (isinstance(values, _WITHOUT_ORDER) or not isinstance(values, Iterable)):
        raise ArgumentTypeError(f"{name} is {values!r}; it must be a sequence of {of}")
    return tuple(values)


def integers(name: str, values: Integers) -> tuple[int, ...]:
    """The values as a tuple of ints; an ArgumentTypeError names any other entry."""
    entries = sequence(name, values, "integers")
    if set(map(type, entries)) == {int}:  # most often, and much sooner known
        return entries  # type: ignore[return-value]
    return tuple(integer(f"{name}[{i}]", value) for i, value in enumerate(entries))


def integer_argument(name: str, value: SupportsIndex, operator: object = "") -> int:
    """The value as an int; the error for anything else begins with `operator`.

    It is not a TypeError, which the runtime of onnx would take for one of its own.
    """
    try:
        return integer(name, value)
    except ArgumentTypeError as error:
        raise InvalidArgumentError(f"{operator}: {error}" if operator else str(error)) from None


def axis_from_front(axis: SupportsIndex, rank: int, operator: object = "") -> int:
    """An axis, which may count from the end, counted from 0 at the outermost dimension.

    The error for one that a tensor of `rank` dimensions does not have begins with `operator`.
    """
    at = integer_argument("axis", axis, operator)
    of = f"{operator}: " if operator else ""
    if rank == 0:
        raise InvalidArgumentError(f"{of}the input is a scalar (rank 0); a scalar cannot be split")
    if not -rank <= at < rank:
        allowed = f"{-rank} to {rank - 1} at rank {rank}"
        raise InvalidArgumentError(f"{of}axis is {at}; it must be {allowed}")
    return at % rank


def piece_sizes(
    shape: tuple[int, ...], sizes_or_count: SupportsIndex | Integers, axis: SupportsIndex
) -> tuple[int, tuple[int, ...]]:
    """The axis, counted from the front, and the size of each piece; they must add up."""
    at = axis_from_front(axis, len(shape))
    whole = shape[at]
    if is_count(sizes_or_count):
        count = integer_argument("count", cast(SupportsIndex, sizes_or_count))
        if count < 1 or whole % count:
            raise InvalidArgumentError(
                f"count is {count}; it must be at least 1 and divide axis {at}, of size {whole}."
                " Fix: give the sizes"
            )
        return at, (whole // count,) * count
    sizes = integers("sizes", cast(Integers, sizes_or_count))
    if min(sizes, default=0) < 0 or sum(sizes) != whole:
        raise InvalidArgumentError(
            f"sizes are {shown(sizes)}, {sum(sizes)} in sum; they must be at least 0 and add up "
            f"to axis {at}, of size {whole}{_if_cuts(sizes, whole)}"
        )
    return at, sizes


def _if_cuts(sizes: tuple[int, ...], whole: int) -> str:
    """A fix for sizes that may be positions to cut at, as NumPy and JAX take them."""
    ends = (0, *sizes, whole)
    meant = tuple(end - start for start, end in pairwise(ends))
    if not sizes or min(meant) < 1:
        return ""
    return f". Fix: if these are positions of cuts, give {shown(meant)}"


def is_count(sizes_or_count: object) -> bool:
    """Whether this is one number: a 0-d array is one, although Python calls it iterable."""
    is_iterable = isinstance(sizes_or_count, Iterable)
    return not is_iterable or getattr(sizes_or_count, "ndim", None) == 0
