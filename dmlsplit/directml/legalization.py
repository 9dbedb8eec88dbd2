"""Rewrites a descriptor for a feature level that does not take it as it is.

A split only moves bytes, so the same bytes can be described with other dimensions and with
elements of another size. Each dimension becomes a loop with its size and stride in every
tensor; loops are then divided into lanes, joined, dropped and padded with loops of one
turn, and read back as a descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.levels import FeatureLevel, Level, TensorSupport
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.directml.validation import validate
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.geometry import packed_byte_strides

# What another description of the same bytes can cure; all else is wrong at every level.
_CURABLE = {
    "DML-LEVEL-DATA-TYPE",
    "DML-LEVEL-DIMENSION-COUNT",
    "DML-TENSOR-DIMENSION-COUNT",
    "DML-TENSOR-ELEMENT-COUNT",
    "DML-TENSOR-SIZE-WRAP",
}


@dataclass(frozen=True, slots=True)
class _Loop:
    """One dimension: its size and stride in every tensor, the input's first."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_axis: bool = False


class _ImpossibleError(Exception):
    """Why one way of rewriting does not work."""


def legalize(desc: SplitOperatorDesc, feature_level: Level) -> SplitOperatorDesc:
    """Return a descriptor that a feature level accepts and that moves the same bytes.

    The result runs on the buffers of `desc`: 64-bit elements become pairs of 32-bit
    ones, 8-bit elements are taken two at a time where they lie in even runs, dimensions are
    merged or padded with ones. A descriptor that is already valid comes back as it is.

    Parameters
    ----------
    desc
        The descriptor. It may have more than 8 dimensions.
    feature_level
        Anything that `FeatureLevel.parse` reads.

    Raises
    ------
    InvalidArgumentError
        If there is no such level, if `desc` breaks a rule of every level, or if no
        equivalent exists; the message says why, `report` holds what `desc` breaks.

    Examples
    --------
    >>> x = TensorDesc("INT64", (6,))
    >>> print(legalize(SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "1_0"))
    SPLIT axis 3: UINT32[1,1,1,12] -> UINT32[1,1,1,4], UINT32[1,1,1,8]
    """
    try:
        level = FeatureLevel.parse(feature_level)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    report = validate(desc, level)
    if report.ok:
        return desc
    for violation in report.violations:
        if violation.rule.id not in _CURABLE:
            message = f"{desc}: wrong at every feature level: {violation}"
            raise InvalidArgumentError(message, report)
    support = _common_support(level)
    reasons = []
    for kind in _candidates(desc.input_tensor, support):
        try:
            return _rewritten(desc, kind, support, level)
        except _ImpossibleError as reason:
            reasons.append(str(reason))
    # The first way tried is the closest to `desc`; the others fail for similar reasons.
    why = reasons[0] if reasons else "no element of a supported size can carry its bits"
    raise NoEquivalentError(f"{desc}: no equivalent at feature level {level}", why, report)


def _common_support(level: FeatureLevel) -> TensorSupport:
    row = capability_table()[level]
    source, targets = row.input_tensor, row.output_tensors
    return TensorSupport(
        max(source.minimum_dimensions, targets.minimum_dimensions),
        min(source.maximum_dimensions, targets.maximum_dimensions),
        source.data_types & targets.data_types,
    )


def _candidates(tensor: TensorDesc, support: TensorSupport) -> list[TensorDataType]:
    """Return the types to try: its own size, then wider ones, then narrower ones."""
    own = tensor.data_type.bits
    if own < 8:
        return []
    kinds = [tensor.data_type]
    order = [own, *(2 * own, 4 * own, 8 * own), *(own // 2, own // 4, own // 8)]
    kinds += [TensorDataType.parse(f"UINT{bits}") for bits in order if bits in (8, 16, 32, 64)]
    # Its own size again, as an unsigned type, is of use only where its own type is not taken.
    if tensor.data_type in support.data_types:
        del kinds[1]
    return [kind for kind in kinds if kind in support.data_types]


def _rewritten(
    desc: SplitOperatorDesc, kind: TensorDataType, support: TensorSupport, level: FeatureLevel
) -> SplitOperatorDesc:
    loops = _retyped(desc, kind)
    if len(loops) > support.maximum_dimensions:
        loops = _fewer(loops, support.maximum_dimensions)
    if len(loops) > support.maximum_dimensions:
        raise _ImpossibleError(
            f"as {kind.name} it has {len(loops)} dimensions that strides keep apart, and at most "
            f"{support.maximum_dimensions} are accepted"
        )
    ones = max(0, support.minimum_dimensions - len(loops))
    tensors = [desc.input_tensor, *desc.output_tensors]
    loops = [_Loop((1,) * len(tensors), (0,) * len(tensors))] * ones + loops
    source, *targets = (_tensor(tensor, kind, loops, at) for at, tensor in enumerate(tensors))
    axis = next(at for at, loop in enumerate(loops) if loop.is_axis)
    result = SplitOperatorDesc(source, targets, axis)
    report = validate(result, level)
    if not report.ok:
        raise _ImpossibleError(f"as {kind.name}, {report.violations[0]}".rstrip("."))
    return result


def _loops(desc: SplitOperatorDesc) -> list[_Loop]:
    tensors = [desc.input_tensor, *desc.output_tensors]
    sizes = zip(*(tensor.sizes for tensor in tensors), strict=True)
    strides = zip(*(tensor.effective_strides for tensor in tensors), strict=True)
    return [
        _Loop(size, stride, dim == desc.axis)
        for dim, (size, stride) in enumerate(zip(sizes, strides, strict=True))
    ]


def _retyped(desc: SplitOperatorDesc, kind: TensorDataType) -> list[_Loop]:
    loops = _loops(desc)
    own = desc.input_tensor.data_type.bits
    if kind.bits < own:
        return _divided(loops, own // kind.bits)
    if kind.bits > own:
        wide = kind.bits // own
        found = _gathered(loops, wide) or _gathered(_fewer(loops, 1), wide)
        if not found:
            raise _ImpossibleError(_why_not_wider(desc, kind))
        return found
    return loops


def _divided(loops: list[_Loop], lanes: int) -> list[_Loop]:
    """Cut every element into lanes: a longer innermost loop, or one loop more."""
    count = len(loops[0].sizes)
    lane = _Loop((lanes,) * count, (1,) * count)
    scaled = [replace(loop, strides=tuple(s * lanes for s in loop.strides)) for loop in loops]
    for at in reversed(range(len(scaled))):
        joined = _joined(scaled[at], lane)
        if joined:
            return [*scaled[:at], joined, *scaled[at + 1 :]]
    return [*scaled, lane]


def _gathered(loops: list[_Loop], wide: int) -> list[_Loop] | None:
    """Take `wide` elements as one, if they lie side by side in every tensor."""
    for at, run in enumerate(loops):
        others = loops[:at] + loops[at + 1 :]
        if (
            all(stride == 1 for stride in run.strides)
            and all(size % wide == 0 for size in run.sizes)
            and all(_steps_are_multiples(loop, wide) for loop in others)
        ):
            short = replace(run, sizes=tuple(size // wide for size in run.sizes))
            scaled = [replace(x, strides=tuple(s // wide for s in x.strides)) for x in loops]
            return [*scaled[:at], short, *scaled[at + 1 :]]
    return None


def _steps_are_multiples(loop: _Loop, wide: int) -> bool:
    steps = zip(loop.sizes, loop.strides, strict=True)
    return all(size == 1 or stride % wide == 0 for size, stride in steps)


def _why_not_wider(desc: SplitOperatorDesc, kind: TensorDataType) -> str:
    wide = kind.bits // 8
    for index, piece in enumerate(descriptor_geometry(desc).pieces):
        steps = [*piece.input_strides, *piece.output_strides]
        if piece.run_bytes % wide or piece.input_offset % wide or any(s % wide for s in steps):
            return (
                f"OutputTensors[{index}] is copied in runs of {piece.run_bytes} bytes from byte "
                f"{piece.input_offset} on, and {kind.name} needs runs, offsets and strides in "
                f"multiples of {wide} bytes"
            )
    return f"its bytes do not lie in runs that {kind.name} can carry"


def _fewer(loops: list[_Loop], most: int) -> list[_Loop]:
    """Drop loops of one turn, then join loops from the innermost on, until `most` are left."""
    for loop in list(loops):
        if len(loops) > most and not loop.is_axis and max(loop.sizes) == 1:
            at = loops.index(loop)
            loops = loops[:at] + loops[at + 1 :]
    while len(loops) > most:
        shorter = _join_two(loops)
        if shorter is None:
            return loops
        loops = shorter
    return loops


def _join_two(loops: list[_Loop]) -> list[_Loop] | None:
    # Strides, not positions, say which loop runs inside which.
    for inner in reversed(range(len(loops))):
        for outer in reversed(range(len(loops))):
            joined = _joined(loops[outer], loops[inner]) if outer != inner else None
            if joined:
                kept = {inner: [joined], outer: []}
                return [x for at, loop in enumerate(loops) for x in kept.get(at, [loop])]
    return None


def _joined(outer: _Loop, inner: _Loop) -> _Loop | None:
    """Return one loop over both, or None where a tensor's strides or the axis forbid it."""
    tensors = len(inner.sizes)
    # With several outputs, a split of the inner loop is no split of the joined one.
    if inner.is_axis and tensors > 2:
        return None
    rows = zip(outer.sizes, outer.strides, inner.sizes, inner.strides, strict=True)
    if not all(n == 1 or step == count * stride for n, step, count, stride in rows):
        return None
    sizes = tuple(n * m for n, m in zip(outer.sizes, inner.sizes, strict=True))
    return _Loop(sizes, inner.strides, outer.is_axis or inner.is_axis)


def _tensor(
    original: TensorDesc, kind: TensorDataType, loops: Sequence[_Loop], at: int
) -> TensorDesc:
    sizes = tuple(loop.sizes[at] for loop in loops)
    strides = tuple(loop.strides[at] for loop in loops)
    rows = zip(sizes, strides, packed_byte_strides(sizes, 1), strict=True)
    packed = all(size == 1 or stride == step for size, stride, step in rows)
    alignment = original.guaranteed_base_offset_alignment
    return TensorDesc(
        kind,
        sizes,
        strides=None if packed else strides,
        flags=original.flags,
        total_tensor_size_in_bytes=original.total_tensor_size_in_bytes,
        # Every offset is a multiple of 16, so that a promise of one whole element costs nothing.
        guaranteed_base_offset_alignment=max(alignment, kind.bits // 8) if alignment else 0,
    )
