"""Rewrites a descriptor for a feature level that does not accept it.

A split only moves bytes, which can be described with other dimensions and elements of another size.
Dimensions are divided into lanes, joined, dropped or padded with ones, and read back.
"""

from dataclasses import dataclass, replace
from itertools import chain, permutations

from dmlsplit.directml.levels import FeatureLevel, Level, LevelSupport, capability_table
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.rules.violation import ValidationReport
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.directml.validation import validate, violations
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.geometry import StridedCopy, packed_byte_strides
from dmlsplit.messages import counted


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One dimension: its size and stride, in elements, in every tensor, the input's first."""

    steps: tuple[tuple[int, int], ...]
    is_axis: bool = False


def legalize(desc: SplitOperatorDesc, feature_level: Level) -> SplitOperatorDesc:
    """A descriptor that a feature level accepts and that moves the same bytes.

    The result runs on the buffers of `desc`: 64-bit elements become pairs of 32-bit ones, even runs
    of 8-bit elements become 16-bit ones, 4-bit elements whole bytes, and dimensions are merged or
    padded with ones. A valid descriptor is returned unchanged.

    Parameters
    ----------
    desc
        The descriptor. It may have more than 8 dimensions.
    feature_level
        Anything that `FeatureLevel.parse` reads.

    Raises
    ------
    InvalidArgumentError
        If there is no such level, or `desc` breaks a rule of every level.
    NoEquivalentError
        If no equivalent exists; `reason` says why, and `report` lists what `desc` breaks.

    Examples
    --------
    >>> x = TensorDesc("INT64", (6,))
    >>> print(legalize(SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "1_0"))
    SPLIT axis 3: UINT32[1,1,1,12] -> UINT32[1,1,1,4], UINT32[1,1,1,8]
    """
    level = FeatureLevel.parse(feature_level)
    return equivalent(desc, level, validate(desc, level))


def equivalent(
    desc: SplitOperatorDesc, level: FeatureLevel, refused: ValidationReport
) -> SplitOperatorDesc:
    """`legalize` for a descriptor that has been validated for the level."""
    if refused.ok:
        return desc
    for violation in refused.violations:
        if "descriptor" not in violation.rule.cured_by:
            message = f"{desc}: wrong at every feature level: {violation}"
            raise InvalidArgumentError(message, refused)
    row = capability_table()[level]
    reasons = []
    for kind in _candidates(desc.input_tensor.data_type, row):
        found = _rewritten(desc, kind, row)
        if isinstance(found, SplitOperatorDesc):
            return found
        reasons.append(found)
    # The first type tried is the closest to `desc`; the others fail for similar reasons.
    why = reasons[0] if reasons else "no element of a supported size can carry its bits"
    raise NoEquivalentError(f"{desc}: no equivalent at feature level {level}: {why}", refused, why)


def _candidates(own: TensorDataType, row: LevelSupport) -> list[TensorDataType]:
    """The types to try: of its own size, then wider ones, then narrower ones."""
    supported = row.input_tensor.data_types & row.output_tensors.data_types
    # The nearest size is the most likely to work, as the fewest elements are regrouped.
    sizes = sorted((8, 16, 32, 64), key=lambda bits: (bits < own.bits, abs(bits - own.bits)))
    kinds = [TensorDataType.parse(f"UINT{bits}") for bits in sizes]
    if own in supported:
        kinds[0] = own
    return [kind for kind in kinds if kind in supported]


def _rewritten(
    desc: SplitOperatorDesc, kind: TensorDataType, row: LevelSupport
) -> SplitOperatorDesc | str:
    """The same bytes as elements of `kind`, valid at the level; or why there is no such split."""
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
            f"as {kind.name} it has {len(dims)} dimensions that strides keep apart, and at most "
            f"{most} are accepted"
        )
    one = _Dimension(((1, 0),) * len(tensors))
    dims = [one] * (least - len(dims)) + dims
    source, *outputs = (_tensor(tensor, kind, dims, at) for at, tensor in enumerate(tensors))
    axis = next(at for at, dim in enumerate(dims) if dim.is_axis)
    result = SplitOperatorDesc(source, outputs, axis)
    found = next(violations(result, row), None)
    return f"as {kind.name}, {found}".rstrip(".") if found else result


def _retyped(dims: list[_Dimension], own: int, bits: int) -> list[_Dimension] | None:
    """The dimensions in elements of `bits` bits; None if runs are not whole such elements."""
    if bits == own:
        return dims
    if bits < own:
        return _divided(dims, own // bits)
    # If no dimension is a run by itself, joining as many as possible may make one.
    return _gathered(dims, bits // own) or _gathered(_fewer(dims, 1), bits // own)


def _divided(dims: list[_Dimension], lanes: int) -> list[_Dimension]:
    """Cut every element into lanes: the innermost dimension gets longer, or there is one more."""
    lane = _Dimension(((lanes, 1),) * len(dims[0].steps))
    scaled = [replace(x, steps=tuple((n, s * lanes) for n, s in x.steps)) for x in dims]
    # Lanes extend the innermost dimension, which may be any in a permuted tensor.
    for at in reversed(range(len(scaled))):
        if joined := _joined(scaled[at], lane):
            return [*scaled[:at], joined, *scaled[at + 1 :]]
    return [*scaled, lane]


def _gathered(dims: list[_Dimension], wide: int) -> list[_Dimension] | None:
    """Take `wide` elements as one, if they are adjacent in every tensor."""
    for at, run in enumerate(dims):
        # A run of whole wide elements; all other dimensions step over whole ones.
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
    if desc.input_tensor.data_type.bits < 8:
        return f"its elements are not taken in runs of whole {kind.name}s"

    def is_odd(piece: StridedCopy) -> bool:
        steps = chain.from_iterable(loop[1:] for loop in piece.loops)
        return any(offset % wide for offset in (piece.run_bytes, piece.input_offset, *steps))

    # The first odd one.
    index, piece = max(enumerate(descriptor_geometry(desc).pieces), key=lambda it: is_odd(it[1]))
    return (
        f"OutputTensors[{index}] is copied in runs of {counted(piece.run_bytes, 'byte')} from byte "
        f"{piece.input_offset} on, and {kind.name} needs runs, offsets and strides in "
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
    # Strides, not positions, nest dimensions, so every pair must be tried.
    for inner, outer in permutations(reversed(range(len(dims))), 2):
        if joined := _joined(dims[outer], dims[inner]):
            replaced = [*dims[:inner], joined, *dims[inner + 1 :]]
            return replaced[:outer] + replaced[outer + 1 :]
    return None


def _joined(outer: _Dimension, inner: _Dimension) -> _Dimension | None:
    """One dimension over both, or None if a tensor's strides or the axis forbid it."""
    # An inner axis is cut at every step of the outer dimension, which is not one cut of the joined
    # one. A single output cuts nothing: its axis may be any dimension.
    if inner.is_axis and len(inner.steps) > 2:
        return None
    # In every tensor, one step of the outer dimension is the whole length of the inner one.
    pairs = list(zip(outer.steps, inner.steps, strict=True))
    if not all(n == 1 or step == count * stride for (n, step), (count, stride) in pairs):
        return None
    steps = tuple((n * count, stride) for (n, _), (count, stride) in pairs)
    return _Dimension(steps, outer.is_axis or inner.is_axis)


def _tensor(
    original: TensorDesc, kind: TensorDataType, dims: list[_Dimension], at: int
) -> TensorDesc:
    """Describe the tensor at index `at` of the dimensions."""
    sizes = tuple(dim.steps[at][0] for dim in dims)
    strides = tuple(dim.steps[at][1] for dim in dims)
    # The stride of a dimension of size 1 is never used: any value counts as packed.
    rows = zip(sizes, strides, packed_byte_strides(sizes, 1), strict=True)
    packed = all(size == 1 or stride == step for size, stride, step in rows)
    alignment = original.guaranteed_base_offset_alignment
    return TensorDesc(
        kind,
        sizes,
        strides=None if packed else strides,
        flags=original.flags,
        total_tensor_size_in_bytes=original.total_tensor_size_in_bytes,
        # Every offset is a multiple of 16, so the promise may grow to a whole element.
        guaranteed_base_offset_alignment=max(alignment, kind.bits // 8) if alignment else 0,
    )
