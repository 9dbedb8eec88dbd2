"""OpenVINO's VariadicSplit-1 and Split-1, lowered to a DirectML Split.

Semantics: OpenVINO operation specifications, "VariadicSplit" and "Split", version 1. They also hold
where OpenVINO's code is laxer (floating-point axes, lengths that exceed the data).
"""

from collections.abc import Sequence

from dmlsplit.checks import axis_from_front, instance, integer, integers, nearly_equal
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.errors import InvalidArgumentError, prefix_errors
from dmlsplit.messages import shown
from dmlsplit.models.lowering import Lowering, checked_shape, split_descriptor

VARIADIC_SPLIT = "VariadicSplit-1"
SPLIT = "Split-1"


def lower_variadic_split(
    shape: Sequence[int],
    axis: int,
    split_lengths: Sequence[int],
    data_type: TensorDataType,
    lanes: int = 1,
) -> Lowering:
    """Lower a VariadicSplit-1.

    Parameters
    ----------
    shape : sequence of int
        The shape of the data.
    axis : int
        The dimension to split; a negative axis counts from the end.
    split_lengths : sequence of int
        The size of each output along the axis. One may be -1, which means the rest; it may be 0.
    data_type : TensorDataType
        The type that carries the elements; UNKNOWN for strings, which are split on the host.
    lanes : int
        The number of `data_type` values per element, the last dimension of the descriptor if it is
        above 1.

    Returns
    -------
    Lowering
        The sizes of the outputs, and the descriptor without the empty ones.

    Raises
    ------
    InvalidArgumentError
        If the data is a scalar or has a negative size, the axis is out of range, a length is below
        -1, two lengths are -1, the lengths do not add up, or `lanes` is below 1.

    See Also
    --------
    lower_split : Lowers a Split, whose pieces are equal.

    Examples
    --------
    >>> from dmlsplit import TensorDataType
    >>> lower_variadic_split((6,), 0, (1, -1), TensorDataType.INT32).sizes
    (1, 5)
    """
    with prefix_errors(VARIADIC_SPLIT):
        dims = checked_shape(shape)
        axis = axis_from_front(axis, len(dims))
        sizes = resolve_lengths(integers("split_lengths", split_lengths), axis, dims[axis])
    return lower_sizes(shape, axis, sizes, data_type, lanes)


def lower_split(
    shape: Sequence[int], axis: int, num_splits: int, data_type: TensorDataType, lanes: int = 1
) -> Lowering:
    """Lower a Split-1.

    Parameters
    ----------
    shape : sequence of int
        The shape of the data.
    axis : int
        The dimension to split; a negative axis counts from the end.
    num_splits : int
        The number of outputs, all of one size.
    data_type : TensorDataType
        The type that carries the elements; UNKNOWN for strings, which are split on the host.
    lanes : int
        The number of `data_type` values per element.

    Returns
    -------
    Lowering
        The sizes of the outputs, and the descriptor.

    Raises
    ------
    InvalidArgumentError
        If the data is a scalar or has a negative size, the axis is out of range, or `num_splits`
        does not divide its size.

    See Also
    --------
    lower_variadic_split : Lowers a VariadicSplit, whose pieces have given lengths.

    Examples
    --------
    >>> from dmlsplit import TensorDataType
    >>> print(lower_split((6, 2), -1, 2, TensorDataType.INT32).descriptor)
    SPLIT axis 1: INT32[6,2] -> INT32[6,1], INT32[6,1]
    """
    with prefix_errors(SPLIT):
        dims = checked_shape(shape)
        axis = axis_from_front(axis, len(dims))
        sizes = resolve_count(integer("num_splits", num_splits), axis, dims[axis])
    return lower_sizes(shape, axis, sizes, data_type, lanes)


def lower_sizes(
    shape: Sequence[int],
    axis: int,
    sizes: tuple[int, ...],
    data_type: TensorDataType,
    lanes: int = 1,
) -> Lowering:
    """Lower a split whose axis and sizes have been checked."""
    is_text = instance("data_type", data_type, TensorDataType) is TensorDataType.UNKNOWN
    if integer("lanes", lanes) < 1:
        raise InvalidArgumentError(f"lanes is {lanes}; it must be at least 1")
    carried = (*shape, lanes) if lanes > 1 else shape
    desc = None if is_text else split_descriptor(data_type, carried, axis, sizes)
    return Lowering(tuple(shape), axis, sizes, desc)


def check_axis_shape(operator: str, shape: tuple[int, ...]) -> None:
    """Refuse an axis tensor of a shape that the operator does not accept."""
    is_variadic = operator == VARIADIC_SPLIT
    if shape and not (is_variadic and shape == (1,)):
        allowed = "a scalar or of shape [1]" if is_variadic else "a scalar"
        raise InvalidArgumentError(f"axis has shape {list(shape)}; it must be {allowed}")


def check_lengths(lengths: Sequence[int]) -> list[int]:
    """The indices of -1, the rest: one at most. Other lengths are refused if they are negative."""
    for i, length in enumerate(lengths):
        if length < -1:
            raise InvalidArgumentError(f"split_lengths[{i}] is {length}; it must be at least -1")
    rest = [i for i, length in enumerate(lengths) if length == -1]
    if len(rest) > 1:
        raise InvalidArgumentError(
            f"split_lengths is -1 at {rest[0]} and {rest[1]}; at most one length may be -1"
        )
    return rest


def resolve_lengths(lengths: Sequence[int], axis: int, axis_size: int) -> tuple[int, ...]:
    """The lengths, with -1 replaced."""
    rest = check_lengths(lengths)
    total = sum(length for length in lengths if length != -1)
    if total > axis_size or (total < axis_size and not rest):
        allowed = f"{'not exceed' if rest else 'add up to'} {axis_size}, the size of axis {axis}"
        raise InvalidArgumentError(
            f"split_lengths {shown(lengths)} add up to {total}; they must {allowed}"
        )
    return tuple(axis_size - total if length == -1 else length for length in lengths)


def resolve_count(num_splits: int, axis: int, axis_size: int) -> tuple[int, ...]:
    """The length of each piece of a Split, all equal."""
    if num_splits < 1:
        raise InvalidArgumentError(f"num_splits is {num_splits}; it must be at least 1")
    if axis_size % num_splits:
        near = nearly_equal(axis_size, num_splits)
        lengths = f" with the lengths {shown(near)}" if near else ""
        raise InvalidArgumentError(
            f"num_splits is {num_splits}; it must divide {axis_size}, the size of axis {axis}. "
            f"Fix: use VariadicSplit{lengths}"
        )
    return (axis_size // num_splits,) * num_splits
