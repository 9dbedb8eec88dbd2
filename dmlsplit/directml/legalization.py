"""Rewrites a descriptor for a feature level that does not accept it.

A split only moves bytes, and other dimensions and element sizes can describe the same bytes.
Dimensions are divided into lanes, joined, dropped or padded with ones; the result is read back as
a descriptor.
"""

from dataclasses import dataclass, replace
from itertools import chain, permutations

from dmlsplit.checks import instance
from dmlsplit.directml.levels import FeatureLevel, Level, LevelSupport, capability_table
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.directml.validation import report_at, violations
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.geometry import StridedCopy, packed_byte_strides
from dmlsplit.messages import counted


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One dimension: its size and stride, in elements, in each tensor; the input comes first.

    A `Loop` of the geometry has one size, and would not say which dimension is cut.
    """

    steps: tuple[tuple[int, int], ...]
    is_axis: bool = False


def legalize(desc: SplitOperatorDesc, feature_level: Level) -> SplitOperatorDesc:
    """A descriptor that a feature level accepts and that moves the same bytes.

    The result runs on the buffers of `desc`. 64-bit elements become pairs of 32-bit ones, even runs
    of 8-bit elements become 16-bit ones, and 4-bit elements become whole bytes. Dimensions are
    merged or padded with ones. A valid descriptor is returned unchanged.

    Parameters
    ----------
    desc
        The descriptor. It may have more than 8 dimensions.
    feature_level
        Anything that `FeatureLevel.parse` reads.

    Raises
    ------
    InvalidArgumentError
        If there is no such level, or `desc` breaks a rule that holds at every level.
    NoEquivalentError
        If no equivalent exists; `reason` says why, and `report` lists what `desc` breaks.

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
    refused = report_at(desc, level)
    if refused.ok:
        return desc
    for violation in refused.violations:
        if "descriptor" not in violation.rule.cured_by:
            message = f"{desc}: invalid at every feature level: {violation}"
            raise InvalidArgumentError(message, refused)
    row = capability_table()[level]
    reasons = []
    for kind in _candidates(desc.input_tensor.data_type, row):
        found = _rewritten(desc, kind, row)
        if isinstance(found, SplitOperatorDesc):
            return found
        reasons.append(found)
    # One reason is enough: the first type is the closest to `desc`, and the others fail similarly.
    why = reasons[0] if reasons else "no supported type can carry its bits"
    raise NoEquivalentError(f"{desc}: no equivalent at feature level {level}: {why}", refused, why)


def _candidates(own: TensorDataType, row: LevelSupport) -> list[TensorDataType]:
    """The types to try: first one of its own size, then wider ones, then narrower ones."""
    supported = row.input_tensor.data_types & row.output_tensors.data_types
    # The nearest size is the most likely to work, because it regroups the fewest elements.
    sizes = sorted((8, 16, 32, 64), key=lambda bits: (bits < own.bits, abs(bits - own.bits)))
    kinds = [TensorDataType.parse(f"UINT{bits}") for bits in sizes]
    if own in supported:
        kinds[0] = own
    return [kind for kind in kinds if kind in supported]


def _rewritten(
    desc: SplitOperatorDesc, kind: TensorDataType, row: LevelSupport
) -> SplitOperatorDesc | str:
    """The same split in elements of `kind`, valid at the level; or why there is none."""
    supports = row.input_tensor, row.output_tensors
    least = max(support.minimum_dimensions for support in supports)
    most = min(support.maximum_dimensions for support in supports)
    tensors = desc.input_tensor, *desc.output_tensors
    layouts = [zip(tensor.sizes, tensor.effective_strides, strict=True) for tensor in tensors]
    steps = enumerate(zip(*layouts, strict=True))
    dims = [_Dimension(each, at == desc.axis) for at, each in steps]
    retyped = _retyped(dims, desc.input_tensor.data_type.bits, kind.bits)
    if retyped is None:
        return _why_not_wider(desc, kind)
    dims = _fewer(retyped, most)
    if len(dims) > most:
        return (
            f"as {kind.name} it needs {len(dims)} dimensions, because their strides cannot be "
            f"merged; at most {most} are accepted"
        )
    one = _Dimension(((1, 0),) * len(tensors))
    dims = [one] * (least - len(dims)) + dims
    source, *outputs = (_tensor(tensor, kind, dims, at) for at, tensor in enumerate(tensors))
    axis = next(at for at, dim in enumerate(dims) if dim.is_axis)
    result = SplitOperatorDesc(source, outputs, axis)
    found = next(violations(result, row), None)
    return f"as {kind.name}, {found}".rstrip(".") if found else result


def _retyped(dims: list[_Dimension], own: int, bits: int) -> list[_Dimension] | None:
    """The dimensions in elements of `bits` bits; None if a run is not a multiple of that."""
    if bits == own:
        return dims
    if bits < own:
        return _divided(dims, own // bits)
    # If no single dimension is such a run, several of them joined may be one.
    return _gathered(dims, bits // own) or _gathered(_fewer(dims, 1), bits // own)


def _divided(dims: list[_Dimension], lanes: int) -> list[_Dimension]:
    """Cut every element into lanes: the innermost dimension gets longer, or one is added."""
    lane = _Dimension(((lanes, 1),) * len(dims[0].steps))
    scaled = [replace(x, steps=tuple((n, s * lanes) for n, s in x.steps)) for x in dims]
    # Lanes extend the innermost dimension, which may be at any position in a permuted tensor.
    for at in reversed(range(len(scaled))):
        if joined := _joined(scaled[at], lane):
            return [*scaled[:at], joined, *scaled[at + 1 :]]
    return [*scaled, lane]


def _gathered(dims: list[_Dimension], wide: int) -> list[_Dimension] | None:
    """Group `wide` elements into one, if they are adjacent in every tensor; otherwise None."""
    for at, run in enumerate(dims):
        # This dimension must be a run of whole groups, and all others must step over whole groups.
        adjacent = all(size % wide == 0 and stride == 1 for size, stride in run.steps)
        if adjacent and all(_steps_over(dim, wide) for dim in dims if dim is not run):
            scaled = [replace(x, steps=tuple((n, s // wide) for n, s in x.steps)) for x in dims]
            scaled[at] = replace(run, steps=tuple((n // wide, 1) for n, _ in run.steps))
            return scaled
    return None


def _steps_over(dim: _Dimension, wide: int) -> bool:
    """Whether every step of a dimension passes over a multiple of `wide` elements."""
    return all(size == 1 or stride % wide == 0 for size, stride in dim.steps)


def _why_not_wider(desc: SplitOperatorDesc, kind: TensorDataType) -> str:
    wide = kind.bits // 8
    if (bits := desc.input_tensor.data_type.bits) < 8:
        return f"its {bits}-bit elements are not copied in runs of whole {kind.name}s"

    def is_odd(piece: StridedCopy) -> bool:
        steps = chain.from_iterable(loop[1:] for loop in piece.loops)
        return any(offset % wide for offset in (piece.run_bytes, piece.input_offset, *steps))

    # `max` finds the first odd piece, because it returns the first maximum.
    index, piece = max(enumerate(descriptor_geometry(desc).pieces), key=lambda it: is_odd(it[1]))
    return (
        f"OutputTensors[{index}] is copied in runs of {counted(piece.run_bytes, 'byte')} that "
        f"start at byte {piece.input_offset}, but {kind.name} needs runs, offsets and strides in "
        f"multiples of {wide} bytes"
    )


def _fewer(dims: list[_Dimension], most: int) -> list[_Dimension]:
    """Drop dimensions of size 1, then join others, innermost first, until `most` are left."""
    left = list(dims)
    for dim in dims:
        if len(left) > most and not dim.is_axis and all(n == 1 for n, _ in dim.steps):
            left.remove(dim)
    while len(left) > most and (shorter := _with_two_joined(left)):
        left = shorter
    return left


def _with_two_joined(dims: list[_Dimension]) -> list[_Dimension] | None:
    # Strides decide which dimension is inside which, not positions, so every pair must be tried.
    for inner, outer in permutations(reversed(range(len(dims))), 2):
        if joined := _joined(dims[outer], dims[inner]):
            replaced = [*dims[:inner], joined, *dims[inner + 1 :]]
            return replaced[:outer] + replaced[outer + 1 :]
    return None


def _joined(outer: _Dimension, inner: _Dimension) -> _Dimension | None:
    """One dimension over both, or None if a tensor's strides or the axis forbid it."""
    # An inner axis is cut once per step of the outer dimension, and one cut of the joined dimension
    # cannot replace those. With a single output nothing is cut, so the axis may be any dimension.
    if inner.is_axis and len(inner.steps) > 2:
        return None
    # In every tensor, one step of the outer dimension must span the whole inner one.
    pairs = list(zip(outer.steps, inner.steps, strict=True))
    if not all(n == 1 or step == count * stride for (n, step), (count, stride) in pairs):
        return None
    steps = tuple((n * count, stride) for (n, _), (count, stride) in pairs)
    return _Dimension(steps, outer.is_axis or inner.is_axis)


def _tensor(
    original: TensorDesc, kind: TensorDataType, dims: list[_Dimension], at: int
) -> TensorDesc:
    """The tensor at index `at`, described by the dimensions."""
    sizes = tuple(dim.steps[at][0] for dim in dims)
    strides = tuple(dim.steps[at][1] for dim in dims)
    # The stride of a dimension of size 1 is never used, so any value counts as packed.
    rows = zip(sizes, strides, packed_byte_strides(sizes, 1), strict=True)
    packed = all(size == 1 or stride == step for size, stride, step in rows)
    alignment = original.guaranteed_base_offset_alignment
    return TensorDesc(
        kind,
        sizes,
        strides=None if packed else strides,
        flags=original.flags,
        total_tensor_size_in_bytes=original.total_tensor_size_in_bytes,
        # Every offset is a multiple of 16, so a promise can be raised to a whole element.
        guaranteed_base_offset_alignment=max(alignment, kind.bits // 8) if alignment else 0,
    )
