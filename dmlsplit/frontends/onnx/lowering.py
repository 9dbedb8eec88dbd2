"""ONNX's Split and SplitToSequence as DirectML splits: pure, and printable.

Where ONNX's text, its shape inference, its reference evaluator and ONNX Runtime disagree,
the strictest reading counts: what is accepted here gives the same pieces everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX, TensorDataType, TensorDesc
from dmlsplit.frontends.onnx.arguments import Arguments, refuse, shown
from dmlsplit.frontends.onnx.operators import CARRIERS, ElementType, OperatorVersion


@dataclass(frozen=True, slots=True)
class Lowering:
    """A split in DirectML's terms, and what happens around it.

    Attributes
    ----------
    operator : OperatorVersion
        Where it comes from.
    data_type : ElementType
        Of the input and of every piece.
    shape : tuple of int
        Of the input.
    axis : int
        Counted from the front.
    sizes : tuple of int
        Of every piece along the axis, empty ones included.
    squeeze : bool
        Whether the pieces lose the axis.
    carrier : TensorDataType or None
        The data type in DirectML; None for strings, which are split on the host.
    descriptor : SplitOperatorDesc or None
        The split of what is not empty; None if nothing is left to dispatch. Its tensors
        are packed, so that the caller's bytes are theirs.
    assumed : tuple of str
        Choices that the operator's text does not settle.
    warnings : tuple of str
        What is legal, but differs between implementations.
    """

    operator: OperatorVersion
    data_type: ElementType
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    squeeze: bool
    carrier: TensorDataType | None
    descriptor: SplitOperatorDesc | None
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def empty(self) -> tuple[int, ...]:
        """Indices of the pieces without elements: they are handed back, not dispatched."""
        return tuple(i for i, shape in enumerate(self.output_shapes) if 0 in shape)

    @property
    def output_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of every piece."""
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        if self.squeeze:
            return ((*before, *after),) * len(self.sizes)
        return tuple((*before, size, *after) for size in self.sizes)

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        text = f"{self.operator} axis {self.axis}: {self.data_type.name}[{shape}]"
        text += f" -> {shown(self.sizes)}{' squeezed' if self.squeeze else ''}"
        if self.carrier is None:
            text += "\n  split on the host: DirectML has no strings"
        elif self.descriptor is None:
            text += "\n  nothing to dispatch: every piece is empty"
        else:
            text += f"\n  {self.descriptor}"
        if self.empty:
            text += f"\n  empty pieces, handed back without a dispatch: {shown(self.empty)}"
        return text + "".join(f"\n  warning: {each}" for each in (*self.assumed, *self.warnings))


def lower(arguments: Arguments, data_type: ElementType, shape: Sequence[int]) -> Lowering:
    """Lower a split of a tensor to the descriptor that DirectML runs.

    Parameters
    ----------
    arguments
        From `read_arguments` or `node_arguments`.
    data_type, shape
        Of the input.

    Raises
    ------
    InvalidArgumentError
        If the operator does not take the type, or the shape does not fit.
    """
    operator = arguments.operator
    check_type(operator, data_type)
    sizes_in = tuple(shape)
    axis = front_axis(arguments, len(sizes_in))
    sizes = piece_sizes(arguments, sizes_in[axis])
    carrier, lanes = CARRIERS.get(data_type, (None, 1))
    descriptor = None if carrier is None else _descriptor(carrier, lanes, sizes_in, axis, sizes)
    return Lowering(
        operator,
        data_type,
        sizes_in,
        axis,
        sizes,
        not arguments.keepdims and arguments.split is None,
        carrier,
        descriptor,
        arguments.assumed,
        tuple(_warnings(arguments, sizes, descriptor)),
    )


def _descriptor(
    carrier: TensorDataType, lanes: int, shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]
) -> SplitOperatorDesc | None:
    solid = [size for size in sizes if size]
    if not solid or 0 in shape:
        return None
    if lanes > 1:
        shape = (*shape, lanes)
    if len(shape) > DIMENSION_COUNT_MAX:
        # Packed tensors: the dimensions on each side of the axis are one run.
        shape, axis = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])), 1
    return SplitOperatorDesc.from_sizes(TensorDesc(carrier, shape), axis=axis, sizes=solid)


def _warnings(
    arguments: Arguments, sizes: tuple[int, ...], descriptor: SplitOperatorDesc | None
) -> list[str]:
    found = []
    if arguments.operator.makes_sequence:
        if arguments.split is not None and not arguments.keepdims:
            found.append(
                "keepdims=0 is ignored, as ONNX says for a given split; ONNX Runtime squeezes "
                "the pieces of chunk size 1, and refuses other chunk sizes"
            )
    elif descriptor is not None and 0 in sizes:
        found.append(
            f"piece {sizes.index(0)} is empty; ONNX Runtime's DirectML provider appears to skip "
            "such a node whole, and leaves the other pieces unwritten"
        )
    return found


def check_type(operator: OperatorVersion, data_type: ElementType) -> None:
    """Refuse a data type that the operator version does not take."""
    if data_type not in operator.data_types:
        allowed = ", ".join(sorted(kind.name for kind in operator.data_types))
        bfloat = data_type is ElementType.BFLOAT16
        fix = "BFLOAT16 needs opset 13 for Split, 24 for SplitToSequence" if bfloat else ""
        refuse(operator, f"the data type is {data_type.name}", f"it must be one of {allowed}", fix)


def front_axis(arguments: Arguments, rank: int) -> int:
    """Return the axis counted from the front; refuses one that the rank does not have."""
    operator, axis = arguments.operator, arguments.axis
    if rank == 0:
        refuse(operator, "the input is a scalar", "its rank must be at least 1")
    if not -rank <= axis < rank:
        refuse(operator, f"axis is {axis}", f"it must be {-rank} to {rank - 1} at rank {rank}")
    return axis % rank


# A sequence of more pieces is a mistake in the model; every piece costs memory of its own.
MAXIMUM_PIECES = 2**20


def piece_count(arguments: Arguments, dimension: int) -> int:
    """Return how many pieces an axis of this size gives."""
    if arguments.output_count is not None:
        return arguments.output_count
    if isinstance(arguments.split, tuple):
        return len(arguments.split)
    return -(-dimension // (arguments.split if isinstance(arguments.split, int) else 1))


def piece_sizes(arguments: Arguments, dimension: int) -> tuple[int, ...]:
    """Return the size of each piece of an axis.

    Raises
    ------
    InvalidArgumentError
        If the axis cannot be split so.
    """
    operator, split = arguments.operator, arguments.split
    count = piece_count(arguments, dimension)
    if count > MAXIMUM_PIECES:
        refuse(operator, f"there are {count} pieces", f"at most {MAXIMUM_PIECES} are made")
    if isinstance(split, tuple):
        if sum(split) != dimension:
            found = f"split is {shown(split)}, {sum(split)} in sum"
            refuse(operator, found, f"it must add up to the axis, of size {dimension}")
        return split
    if arguments.num_outputs is not None:
        return _ceil_sizes(operator, dimension, count)
    if operator.makes_sequence:
        chunk = split if isinstance(split, int) else 1
        full, rest = divmod(dimension, chunk)
        return (chunk,) * full + ((rest,) if rest else ())
    if dimension % count:
        found = f"the axis, of size {dimension}, has no sizes and {count} outputs"
        refuse(operator, found, f"{count} must divide it", "give the size of each piece")
    return (dimension // count,) * count


def _ceil_sizes(operator: OperatorVersion, dimension: int, count: int) -> tuple[int, ...]:
    """Return the pieces of num_outputs: equal, but for a smaller last one.

    The rule of Split-18, where every implementation agrees on it. Elsewhere the last piece
    would be empty or negative (onnx issue 5766), and each implementation does what it likes.
    """
    piece = -(-dimension // count)
    last = dimension - piece * (count - 1)
    if count > dimension or last <= 0:
        sizes = (*(piece,) * min(count - 1, 16), last)
        refuse(
            operator,
            f"num_outputs is {count} on an axis of size {dimension}",
            f"pieces of {piece} leave {last} for the last one: "
            f"{list(sizes)}{'' if count <= 17 else f' ({count} pieces)'}",
            "give the size of each piece as 'split'",
        )
    return (*(piece,) * (count - 1), last)
