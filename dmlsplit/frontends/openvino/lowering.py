"""OpenVINO's VariadicSplit-1 and Split-1, lowered to a DirectML Split.

Semantics: OpenVINO operation specifications, "VariadicSplit" and "Split", version 1. Where
the implementation is laxer than its text (floating-point axes, lengths that reach beyond
the data), the text holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.errors import InvalidArgumentError

VARIADIC_SPLIT = "VariadicSplit-1"
SPLIT = "Split-1"
_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Lowering:
    """One split of OpenVINO and the DirectML operator that carries it out.

    Attributes
    ----------
    operator : str
        ``VariadicSplit-1`` or ``Split-1``.
    shape : tuple of int
        Of the data.
    axis : int
        From 0.
    sizes : tuple of int
        Of the outputs along the axis; may hold zeros.
    data_type : TensorDataType
        What the elements travel as.
    lanes : int
        Elements of `data_type` per element of the data, as an innermost dimension if not 1.
    """

    operator: str
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    data_type: TensorDataType
    lanes: int = 1

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each output."""
        before, behind = self.shape[: self.axis], self.shape[self.axis + 1 :]
        return tuple((*before, size, *behind) for size in self.sizes)

    @property
    def filled(self) -> tuple[int, ...]:
        """Indices of the outputs that have elements; only those reach DirectML."""
        return tuple(index for index, shape in enumerate(self.shapes) if 0 not in shape)

    @property
    def descriptor(self) -> SplitOperatorDesc | None:
        """The operator for the outputs that have elements; None if there are none."""
        if not self.filled:
            return None
        inner = () if self.lanes == 1 else (self.lanes,)
        source = TensorDesc(self.data_type, self.shape + inner)
        sizes = [self.sizes[index] for index in self.filled]
        return SplitOperatorDesc.from_sizes(source, axis=self.axis, sizes=sizes)

    def __str__(self) -> str:
        made = self.descriptor or "nothing: every output is empty"
        shape = ",".join(map(str, self.shape))
        return f"{self.operator} [{shape}] axis {self.axis} into {shown(self.sizes)} -> {made}"


def lower_variadic_split(
    shape: Sequence[int],
    axis: int,
    split_lengths: Sequence[int],
    data_type: TensorDataType,
    lanes: int = 1,
) -> Lowering:
    """Lower a VariadicSplit-1. One length may be -1: what the others leave, which may be 0.

    Raises
    ------
    InvalidArgumentError
        If the data is a scalar, the axis out of range, a length below -1, two lengths are
        -1, or the lengths do not add up.
    """
    at = resolve_axis(VARIADIC_SPLIT, axis, len(shape))
    sizes = resolve_lengths(split_lengths, at, shape[at])
    return Lowering(VARIADIC_SPLIT, tuple(shape), at, sizes, data_type, lanes)


def lower_split(
    shape: Sequence[int], axis: int, num_splits: int, data_type: TensorDataType, lanes: int = 1
) -> Lowering:
    """Lower a Split-1: equal parts.

    Raises
    ------
    InvalidArgumentError
        If the data is a scalar, the axis out of range, or the parts cannot be equal.
    """
    at = resolve_axis(SPLIT, axis, len(shape))
    sizes = resolve_count(num_splits, at, shape[at])
    return Lowering(SPLIT, tuple(shape), at, sizes, data_type, lanes)


def resolve_axis(operator: str, axis: int, rank: int) -> int:
    """Return the axis counted from 0."""
    if rank == 0:
        raise InvalidArgumentError(f"{operator}: data is a scalar; it must have a dimension")
    if not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"{operator}: axis is {axis}; data of {rank} dimensions allows {-rank} to {rank - 1}"
        )
    return axis % rank


def resolve_lengths(lengths: Sequence[int], axis: int, whole: int | None) -> tuple[int, ...]:
    """Return the lengths with -1 replaced; `whole` None, a dynamic size, leaves -1 as it is."""
    low = next((i for i, length in enumerate(lengths) if length < -1), None)
    if low is not None:
        raise InvalidArgumentError(
            f"{VARIADIC_SPLIT}: split_lengths[{low}] is {lengths[low]}; it must be at least -1"
        )
    rest = [i for i, length in enumerate(lengths) if length == -1]
    if len(rest) > 1:
        raise InvalidArgumentError(
            f"{VARIADIC_SPLIT}: split_lengths is -1 at {rest[0]} and {rest[1]}; "
            "at most one length may be -1"
        )
    if whole is None:
        return tuple(lengths)
    given = sum(length for length in lengths if length != -1)
    if given > whole or (given < whole and not rest):
        raise InvalidArgumentError(
            f"{VARIADIC_SPLIT}: split_lengths {shown(lengths)} add up to {given}; they must "
            f"{'not exceed' if rest else 'add up to'} {whole}, the size of axis {axis}"
        )
    return tuple(whole - given if length == -1 else length for length in lengths)


def resolve_count(num_splits: int, axis: int, whole: int | None) -> tuple[int, ...]:
    """Return equal lengths; `whole` None, a dynamic size, gives lengths of -1."""
    if num_splits < 1:
        raise InvalidArgumentError(f"{SPLIT}: num_splits is {num_splits}; it must be at least 1")
    if whole is None:
        return (-1,) * num_splits
    if whole % num_splits:
        raise InvalidArgumentError(
            f"{SPLIT}: num_splits is {num_splits}; it must divide {whole}, the size of axis {axis}."
            " Fix: use VariadicSplit"
        )
    return (whole // num_splits,) * num_splits


def shown(values: Sequence[int]) -> str:
    """Return values as text, cut where there are many."""
    more = len(values) - _SHOWN
    cut = f", ... ({more} more)" if more > 0 else ""
    return f"[{', '.join(map(str, values[:_SHOWN]))}{cut}]"
