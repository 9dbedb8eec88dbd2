"""Plans for strided splits whose input and output are contiguous along different dimensions."""

from __future__ import annotations

from collections.abc import Collection

from dmlsplit.backends.cuda.launch import POINTER_BYTES, Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner.groups import Group
from dmlsplit.backends.cuda.planner.squares import (
    MOST_SIDE_BYTES,
    Nest,
    Transposition,
    best,
    squares,
    write_bytes,
)
from dmlsplit.geometry import StridedCopy

# Both dimensions must be this long for squares to pay: 8 words are one 32-byte sector.
LEAST_SIDE = 8
# Bytes of parameters: of an output, its address, offset, nest and first square; of a nest, two
# strides, two sizes and a divisor; of a loop around it, two strides and a divisor.
OUTPUT_BYTES, NEST_BYTES, LOOP_BYTES = 8 + 8 + 1 + 4, 2 * 8 + 2 * 4 + 12, 2 * 8 + 12
SPARE_BYTES = 16  # the last entry of a table, and the gap at the end
# The tables of nests take at most this part of the parameters; nests have numbers of one byte.
NEST_PART, MOST_NESTS = 4, 256


def down_dimension(nest: StridedCopy, unit: int) -> int | None:
    """Return the dimension in which the input is contiguous, if the output is in another one."""
    if nest.run_bytes != unit or not nest.shape or nest.output_strides[-1] != unit:
        return None
    outer = zip(nest.shape[:-1], nest.input_strides[:-1], strict=True)
    for d, (size, stride) in enumerate(outer):
        sides = size, nest.shape[-1]
        if stride == unit and min(sides) >= LEAST_SIDE and max(sides) * unit <= MOST_SIDE_BYTES:
            return d
    return None


def most_transposed(nests: Collection[StridedCopy], assumed: Assumptions) -> tuple[int, int]:
    """Return how many outputs, and how many nests, the parameters of a launch have room for."""
    room = POINTER_BYTES * assumed.most_outputs - SPARE_BYTES
    loops = max(len(nest.shape) for nest in nests) - 2
    nest_bytes = NEST_BYTES + LOOP_BYTES * max(loops, 1)
    most_nests = min(MOST_NESTS, room // NEST_PART // nest_bytes, len(nests))
    return (room - most_nests * nest_bytes) // OUTPUT_BYTES, most_nests


def transpose(group: Group, assumed: Assumptions) -> KernelLaunch:
    """Return the launch for nests that have a down dimension."""
    nests = tuple(_nest(nest, group.unit) for nest in group.nests)
    square = best(squares(group.unit, write_bytes(nests, assumed)), nests)
    reason = "input and output are contiguous along different dimensions"
    return Transposition(square, nests, group.offsets, group.nest_of).launch(
        group.outputs, group.total_bytes, assumed, f"{reason}, {group.unit} bytes each"
    )


def _nest(copy: StridedCopy, unit: int) -> Nest:
    down = down_dimension(copy, unit)
    assert down is not None
    loops = list(zip(copy.shape, copy.input_strides, copy.output_strides, strict=True))
    across, across_stride, _ = loops.pop()
    size, _, down_stride = loops.pop(down)
    return Nest(size, across, down_stride, across_stride, tuple(reversed(loops)))
