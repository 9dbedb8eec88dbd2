"""The form of a split that front ends share: a descriptor, and the steps around its dispatch."""

from collections.abc import Sequence
from dataclasses import dataclass

from dmlsplit.checks import integers
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.models.site import Known, Unknown, UnknownSplitError


@dataclass(frozen=True, slots=True)
class Lowering:
    """A split of another system in DirectML's terms.

    Attributes
    ----------
    shape : tuple of int
        The shape of the input.
    axis : int
        The axis, counted from the front.
    sizes : tuple of int
        The size of each output along the axis, 0 for an empty one.
    descriptor : SplitOperatorDesc or None
        The packed split without its empty outputs; None if there is nothing to dispatch, or for
        strings, which are split on the host.
    squeeze : bool
        Whether the outputs lose the axis.
    warnings : tuple of str
        Valid settings on which implementations differ.

    See Also
    --------
    dmlsplit.frontends.onnx.lower : Lowers a split of ONNX.
    dmlsplit.frontends.openvino.lower_split : Lowers a Split of OpenVINO.

    Examples
    --------
    >>> from dmlsplit import TensorDataType
    >>> from dmlsplit.frontends import openvino
    >>> openvino.lower_split((6, 2), 0, 3, TensorDataType.FLOAT32).sizes
    (2, 2, 2)
    """

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    descriptor: SplitOperatorDesc | None
    squeeze: bool = False
    warnings: tuple[str, ...] = ()


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The argument `shape`, sizes of 0 or more."""
    sizes = integers("shape", shape)
    for index, size in enumerate(sizes):
        if size < 0:
            raise InvalidArgumentError(f"shape[{index}] is {size}; it must be at least 0")
    return sizes


def split_descriptor(
    carrier: TensorDataType, shape: Sequence[int], axis: int, sizes: Sequence[int]
) -> SplitOperatorDesc | None:
    """The split of a packed tensor without its empty outputs; None if all are empty."""
    filled = [size for size in sizes if size]
    if not filled or 0 in shape:
        return None
    return SplitOperatorDesc.from_sizes(TensorDesc(carrier, shape), axis=axis, sizes=filled)


def lowered_state(
    lowering: Lowering,
    gap: UnknownSplitError | None = None,
    missing: Sequence[tuple[str, int]] = (),
) -> Known | Unknown:
    """The state of a lowered split; with a `gap`, it was lowered with 1 for each dynamic size."""
    desc = lowering.descriptor
    pieces = lowering.sizes
    if gap is None:
        return Known(desc, pieces)
    return Unknown(
        str(gap),
        gap.cause,
        smallest_descriptor=desc,
        pieces=pieces,
        missing=tuple(missing),
        only_count_varies=desc is not None,
    )
