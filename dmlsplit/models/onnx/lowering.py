"""ONNX's Split and SplitToSequence lowered to DirectML splits: pure functions.

Where ONNX's specification, shape inference, reference evaluator and ONNX Runtime disagree, the
strictest reading applies, so that an accepted split gives the same pieces everywhere.
"""

from collections.abc import Sequence
from math import prod

from dmlsplit.checks import axis_from_front, instance
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX
from dmlsplit.geometry import ceil_div
from dmlsplit.messages import shown
from dmlsplit.models.limits import MAX_SPLIT_OUTPUTS
from dmlsplit.models.lowering import Lowering, checked_shape, split_descriptor
from dmlsplit.models.onnx.arguments import Arguments, check_types, refuse
from dmlsplit.models.onnx.operators import CARRIERS, ElementType, OperatorVersion
from dmlsplit.models.onnx.portability import piece_warnings


def lower(arguments: Arguments, data_type: ElementType, shape: Sequence[int]) -> Lowering:
    """Lower a split of a tensor to the descriptor that DirectML runs.

    Parameters
    ----------
    arguments : Arguments
        From `read_arguments` or `node_arguments`.
    data_type : ElementType
        Data type of the input.
    shape : sequence of int
        Shape of the input, of any rank.

    Returns
    -------
    Lowering
        The sizes of the outputs, and a descriptor that moves the same bytes. Types that DirectML
        lacks travel as unsigned integers of the same size, and dimensions above 8 are merged.

    Raises
    ------
    InvalidArgumentError
        If the operator does not accept the type, the shape does not fit, or a size is negative.

    See Also
    --------
    read_arguments : Reads the arguments from attributes and inputs.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> arguments = onnx.read_arguments(onnx.operator_version("Split", 18), num_outputs=2)
    >>> print(onnx.lower(arguments, onnx.ElementType.FLOAT, (6,)).descriptor)
    SPLIT axis 0: FLOAT32[6] -> FLOAT32[3], FLOAT32[3]
    """
    instance("arguments", arguments, Arguments)
    instance("data_type", data_type, ElementType)
    check_types(arguments.operator, data_type, arguments.split_type)
    dims = checked_shape(shape)
    axis = axis_from_front(arguments.axis, len(dims), arguments.operator)
    return lower_checked(arguments, data_type, dims, axis)


def lower_checked(
    arguments: Arguments, data_type: ElementType, shape: tuple[int, ...], axis: int
) -> Lowering:
    """The lowering of a split whose data type, shape and axis, from the front, are checked."""
    sizes = _output_sizes(arguments, shape[axis])
    descriptor = descriptor_of(data_type, shape, axis, sizes)
    return Lowering(
        shape,
        axis,
        sizes,
        descriptor,
        squeeze=not arguments.keepdims and arguments.split is None,
        warnings=tuple(piece_warnings(arguments, sizes, descriptor)),
    )


def descriptor_of(
    data_type: ElementType, shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]
) -> SplitOperatorDesc | None:
    """The descriptor of a split, or None; `Lowering` says when."""
    carrier = CARRIERS.get(data_type)
    if carrier is None:
        return None
    shape = (*shape, *carrier.lane_dimensions)
    if len(shape) > DIMENSION_COUNT_MAX:
        # No descriptor has so many, at any level, so a runtime has to merge some. In a packed
        # tensor, the dimensions on each side of the axis are contiguous.
        shape = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
        axis = 1
    return split_descriptor(carrier.data_type, shape, axis, sizes)


def output_count(arguments: Arguments, axis_size: int) -> int:
    """The number of outputs of an axis of this size."""
    if arguments.output_count is not None:
        return arguments.output_count
    if isinstance(arguments.split, tuple):
        return len(arguments.split)
    return ceil_div(axis_size, arguments.split if isinstance(arguments.split, int) else 1)


def _output_sizes(arguments: Arguments, axis_size: int) -> tuple[int, ...]:
    """The size of each output along an axis; arguments that do not fit its size are refused."""
    operator = arguments.operator
    split = arguments.split
    count = output_count(arguments, axis_size)
    if count > MAX_SPLIT_OUTPUTS:
        allowed = f"at most {MAX_SPLIT_OUTPUTS:,} are supported"
        refuse(
            operator,
            f"there are {count:,} pieces",
            allowed,
            "use a larger chunk size, or fewer outputs",
        )
    if isinstance(split, tuple):
        if sum(split) != axis_size:
            problem = f"split is {shown(split)}, which adds up to {sum(split)}"
            refuse(operator, problem, f"it must add up to {axis_size}, the size of the axis")
        return split
    if arguments.num_outputs is not None:
        return _ceil_sizes(operator, axis_size, count)
    if operator.makes_sequence:
        chunk = split if isinstance(split, int) else 1
        full, rest = divmod(axis_size, chunk)
        return (chunk,) * full + ((rest,) if rest else ())
    if axis_size % count:
        allowed = f"without sizes, the number of outputs, {count}, must divide it"
        refuse(operator, f"the axis has size {axis_size}", allowed, "give the size of each piece")
    return (axis_size // count,) * count


def _ceil_sizes(operator: OperatorVersion, axis_size: int, count: int) -> tuple[int, ...]:
    """The sizes for num_outputs in Split-18: equal, but the last one is what is left.

    It may be 0, as in ONNX's checker, its reference, and ONNX Runtime since 1.32 (onnx issue 5766).
    """
    piece = ceil_div(axis_size, count)
    last = axis_size - piece * (count - 1)
    sizes = (*(piece,) * (count - 1), last)
    if last < 0:
        problem = f"num_outputs is {count} on an axis of size {axis_size}"
        why = f"pieces of {piece} leave {last} for the last one: {shown(sizes)}"
        refuse(operator, problem, why, "give the size of each piece as 'split'", found="run")
    return sizes
