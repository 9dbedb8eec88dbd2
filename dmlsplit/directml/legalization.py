"""Rewrites a descriptor for a feature level that does not accept it.

A split only moves bytes, and other dimensions and element sizes can describe the same bytes.
Dimensions are divided into lanes, joined, dropped or padded with ones; the result is read back as
a descriptor.
"""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

from dmlsplit.checks import instance
from dmlsplit.directml.levels import FeatureLevel, LevelSupport, support_table
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.directml.validation import report_at, violations, violations_at
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.geometry import StridedCopy, packed_byte_strides
from dmlsplit.messages import counted


class _Dimension(NamedTuple):
    """One dimension: its size and stride, in elements, in each tensor; the input comes first.

    A `Loop` of the geometry has one size, and would not say which dimension is cut.
    """

    extents: tuple[tuple[int, int], ...]
    is_axis: bool = False

    def with_strides(self, scaled: Callable[[int], int]) -> _Dimension:
        return self._replace(extents=tuple((size, scaled(stride)) for size, stride in self.extents))


def legalize(desc: SplitOperatorDesc, feature_level: FeatureLevel | str | int) -> SplitOperatorDesc:
    """A descriptor that a feature level accepts and that moves the same bytes.

    The result runs on the buffers of `desc`. Its data type may be another one that the level has:
    64-bit elements become pairs of 32-bit ones, for example, and runs of narrow elements become
    fewer, wider ones. Dimensions are merged or padded with ones. A descriptor that the level
    accepts is returned unchanged.

    Parameters
    ----------
    desc : SplitOperatorDesc
        The descriptor. It may have more than 8 dimensions.
    feature_level : FeatureLevel, str or int
        Anything that `FeatureLevel.parse` reads.

    Returns
    -------
    SplitOperatorDesc
        A descriptor with the buffers and the number of outputs of `desc`, and maybe other
        data types, sizes, strides and axis.

    Raises
    ------
    InvalidArgumentError
        If there is no such level, `desc` breaks a rule that holds at every level, or no equivalent
        exists. In the last case, the error has an attribute `reason`, which says why, and its
        `report` lists the rules that `desc` breaks.

    See Also
    --------
    minimum_feature_level : The lowest level that accepts a descriptor unchanged.
    validate : Why a level does not accept it.

    Examples
    --------
    >>> x = TensorDesc("INT64", (6,))
    >>> print(legalize(SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "1_0"))
    SPLIT axis 3: UINT32[1,1,1,12] -> UINT32[1,1,1,4], UINT32[1,1,1,8]
    """
    level = FeatureLevel.parse(feature_level)
    return equivalent(instance("desc", desc, SplitOperatorDesc), level)


def equivalent(desc: SplitOperatorDesc, level: FeatureLevel) -> SplitOperatorDesc:
    """`legalize` for values that have been read."""
    if not violations_at(desc, level):
        return desc
    report = report_at(desc, level)
    for violation in report.violations:
        if "descriptor" not in violation.rule.fixable_by:
            message = f"{desc}: invalid at every feature level: {violation}"
            raise InvalidArgumentError(message, report)
    support = support_table()[level]
    reasons = []
    for data_type in _candidate_types(desc.input_tensor.data_type, support):
        result = _rewritten_split(desc, data_type, support)
        if isinstance(result, SplitOperatorDesc):
            return result
        reasons.append(result)
    # One reason is enough: the first type is the closest to `desc`, and the others fail similarly.
    reason = reasons[0] if reasons else "no supported type can carry its bits"
    message = f"{desc}: no equivalent at feature level {level}: {reason}"
    raise NoEquivalentError(message, report, reason)


def _candidate_types(source: TensorDataType, support: LevelSupport) -> list[TensorDataType]:
    """The types to try: first one of its own size, then wider ones, then narrower ones."""
    # Wider types come before narrower ones, because merged elements are fewer and need no further
    # dimension. Among the wider ones, and among the narrower ones, the nearest size regroups the
    # fewest elements.
    sizes = sorted((8, 16, 32, 64), key=lambda bits: (bits < source.bits, abs(bits - source.bits)))
    data_types = [TensorDataType.parse(f"UINT{bits}") for bits in sizes]
    if source in support.data_types:
        data_types[0] = source
    return [data_type for data_type in data_types if data_type in support.data_types]


def _rewritten_split(
    desc: SplitOperatorDesc, data_type: TensorDataType, support: LevelSupport
) -> SplitOperatorDesc | str:
    """A split of the same bytes in elements of `data_type`, valid at the level; or why not."""
    low = support.minimum_dimensions
    high = support.maximum_dimensions
    tensors = desc.input_tensor, *desc.output_tensors
    layouts = [zip(tensor.sizes, tensor.effective_strides, strict=True) for tensor in tensors]
    extents = enumerate(zip(*layouts, strict=True))
    dims = [_Dimension(per_tensor, index == desc.axis) for index, per_tensor in extents]
    retyped = _retyped_dims(dims, desc.input_tensor.data_type.bits, data_type.bits)
    if retyped is None:
        return _widening_problem(desc, data_type)
    dims = _limit_rank(retyped, high)
    if len(dims) > high:
        return (
            f"as {data_type.name} it needs {len(dims)} dimensions, because their strides cannot be "
            f"merged; at most {high} are accepted"
        )
    padding = _Dimension(((1, 0),) * len(tensors))
    dims = [padding] * (low - len(dims)) + dims
    numbered = enumerate(tensors)
    source, *outputs = (_tensor(tensor, data_type, dims, index) for index, tensor in numbered)
    axis = next(index for index, dim in enumerate(dims) if dim.is_axis)
    result = SplitOperatorDesc(source, outputs, axis)
    violation = next(violations(result, support), None)
    return f"as {data_type.name}, {violation}".rstrip(".") if violation else result


def _retyped_dims(dims: list[_Dimension], old_bits: int, new_bits: int) -> list[_Dimension] | None:
    """The dimensions in elements of `new_bits` bits; None if a run is not a multiple of them."""
    if new_bits == old_bits:
        return dims
    if new_bits < old_bits:
        return _narrow_elements(dims, old_bits // new_bits)
    # If no single dimension is such a run, several of them joined may be one.
    lanes = new_bits // old_bits
    return _widen_elements(dims, lanes) or _widen_elements(_limit_rank(dims, 1), lanes)


def _narrow_elements(dims: list[_Dimension], lanes: int) -> list[_Dimension]:
    """Cut every element into lanes: the innermost dimension gets longer, or one is added."""
    lane = _Dimension(((lanes, 1),) * len(dims[0].extents))
    scaled = [dim.with_strides(lambda stride: stride * lanes) for dim in dims]
    # Lanes extend the innermost dimension, which may be at any position in a permuted tensor.
    for index in reversed(range(len(scaled))):
        if joined := _merge_pair(scaled[index], lane):
            return [*scaled[:index], joined, *scaled[index + 1 :]]
    return [*scaled, lane]


def _widen_elements(dims: list[_Dimension], lanes: int) -> list[_Dimension] | None:
    """Group `lanes` elements into one, if they are adjacent in every tensor; otherwise None."""
    for index, run in enumerate(dims):
        # This dimension must be a run of whole groups, and all others must step over whole groups.
        adjacent = all(size % lanes == 0 and stride == 1 for size, stride in run.extents)
        other_extents = [extent for dim in dims if dim is not run for extent in dim.extents]
        if adjacent and all(size == 1 or stride % lanes == 0 for size, stride in other_extents):
            scaled = [dim.with_strides(lambda stride: stride // lanes) for dim in dims]
            extents = tuple((size // lanes, 1) for size, _ in run.extents)
            scaled[index] = run._replace(extents=extents)
            return scaled
    return None


def _widening_problem(desc: SplitOperatorDesc, data_type: TensorDataType) -> str:
    """Why the elements of a split cannot be grouped into wider ones of `data_type`."""
    width = data_type.bits // 8
    if (bits := desc.input_tensor.data_type.bits) < 8:
        return f"its {bits}-bit elements are not copied in runs of whole {data_type.name}s"

    def is_odd(piece: StridedCopy) -> bool:
        steps = [step for loop in piece.loops for step in (loop.input_stride, loop.output_stride)]
        return any(offset % width for offset in (piece.run_bytes, piece.input_offset, *steps))

    # `max` finds the first odd piece, because it returns the first maximum.
    pieces = enumerate(descriptor_geometry(desc).pieces)
    index, piece = max(pieces, key=lambda pair: is_odd(pair[1]))
    length = counted(piece.run_bytes, "byte")
    runs = f"the contiguous parts of OutputTensors[{index}] have {length}"
    if piece.run_bytes % width == 0:
        runs += f", at offsets or strides that are not multiples of {width}"
    return f"{runs}, and {data_type.name}, the smallest type of the level, has {width}"


def _limit_rank(dims: list[_Dimension], limit: int) -> list[_Dimension]:
    """Drop dimensions of size 1, then join others, innermost first, until `limit` are left."""
    remaining = list(dims)
    for dim in dims:
        if len(remaining) > limit and not dim.is_axis and all(size == 1 for size, _ in dim.extents):
            remaining.remove(dim)
    while len(remaining) > limit and (shorter := _merge_any_pair(remaining)):
        remaining = shorter
    return remaining


def _merge_any_pair(dims: list[_Dimension]) -> list[_Dimension] | None:
    """The dimensions with the first pair merged that can be; None if no pair can."""
    # Strides decide which dimension is inside which, not positions, so every pair must be tried.
    for inner, outer in permutations(reversed(range(len(dims))), 2):
        if joined := _merge_pair(dims[outer], dims[inner]):
            replaced = [*dims[:inner], joined, *dims[inner + 1 :]]
            return replaced[:outer] + replaced[outer + 1 :]
    return None


def _merge_pair(outer: _Dimension, inner: _Dimension) -> _Dimension | None:
    """One dimension over both, or None if a tensor's strides or the axis forbid it."""
    # An inner axis is cut once per step of the outer dimension, and one cut of the joined dimension
    # cannot replace those. With a single output nothing is cut, so the axis may be any dimension.
    if inner.is_axis and len(inner.extents) > 2:
        return None
    # In every tensor, one step of the outer dimension must span the whole inner one.
    pairs = list(zip(outer.extents, inner.extents, strict=True))
    if not all(n == 1 or step == count * stride for (n, step), (count, stride) in pairs):
        return None
    extents = tuple((n * count, stride) for (n, _), (count, stride) in pairs)
    return _Dimension(extents, outer.is_axis or inner.is_axis)


def _tensor(
    original: TensorDesc, data_type: TensorDataType, dims: list[_Dimension], index: int
) -> TensorDesc:
    """Tensor `index`, described by the dimensions."""
    extents = [dim.extents[index] for dim in dims]
    sizes = tuple(size for size, _ in extents)
    # The stride of a dimension of size 1 is never used. It may be too large for wider elements.
    strides = tuple(stride if size > 1 else 0 for size, stride in extents)
    rows = zip(sizes, strides, packed_byte_strides(sizes, 1), strict=True)
    packed = all(size == 1 or stride == step for size, stride, step in rows)
    alignment = original.guaranteed_base_offset_alignment
    return TensorDesc(
        data_type,
        sizes,
        strides=None if packed else strides,
        flags=original.flags,
        total_tensor_size_in_bytes=original.total_tensor_size_in_bytes,
        # Every offset is a multiple of 16, so a promise can be raised to a whole element.
        guaranteed_base_offset_alignment=max(alignment, data_type.bits // 8) if alignment else 0,
    )
