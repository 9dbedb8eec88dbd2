"""Plans for `transpose`: input and output are contiguous along different dimensions."""

from __future__ import annotations

from math import prod

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    OFFSET_64,
    THREADS,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
)
from dmlsplit.backends.cuda.planner.groups import Group, loop_tables
from dmlsplit.geometry import StridedCopy

# Both dimensions must be this long for squares to pay: 8 words are one 32-byte sector.
SQUARE_SIDE = 8
# Elements along a square's side, for elements of up to SMALL_ELEMENT bytes and for larger ones: the
# square takes 17 KiB of shared memory at most, and loads of 16 bytes and more per thread.
SMALL_ELEMENT, LONG_SIDE, SHORT_SIDE = 4, 64, 32


def down_dimension(nest: StridedCopy, unit: int) -> int | None:
    """Return the dimension in which the input is contiguous, if the output is in another one."""
    if nest.run_bytes != unit or not nest.shape or nest.output_strides[-1] != unit:
        return None
    outer = zip(nest.shape[:-1], nest.input_strides[:-1], strict=True)
    for d, (size, stride) in enumerate(outer):
        if stride == unit and min(size, nest.shape[-1]) >= SQUARE_SIDE:
            return d
    return None


def transpose(group: Group, assumed: Assumptions) -> KernelLaunch:
    """Return the launch for nests that have a down dimension."""
    unit, nests = group.unit, group.nests
    side = LONG_SIDE if unit <= SMALL_ELEMENT else SHORT_SIDE
    downs = [(nest, down_dimension(nest, unit) or 0) for nest in nests]
    # The other dimensions number the squares.
    loops = [
        tuple(
            tuple(value for d, value in enumerate(row[:-1]) if d != down)
            for row in (nest.shape, nest.input_strides, nest.output_strides)
        )
        for nest, down in downs
    ]
    squares = [
        blocks(nest.shape[-1], side) * blocks(nest.shape[down], side) * prod(sizes)
        for (nest, down), (sizes, _, _) in zip(downs, loops, strict=True)
    ]
    starts = group.starts(squares)
    return KernelLaunch(
        "transpose",
        group.outputs,
        group.total_bytes,
        assumed,
        (
            Constant("int", "kSide", side),
            Constant(COUNT_64, "kAcross", tuple(nest.shape[-1] for nest in nests)),
            Constant(COUNT_64, "kDown", tuple(nest.shape[down] for nest, down in downs)),
            Constant(OFFSET_64, "kAcrossStride", tuple(nest.input_strides[-1] for nest in nests)),
            Constant(OFFSET_64, "kDownStride", tuple(n.output_strides[down] for n, down in downs)),
            *loop_tables(loops, COUNT_64),
            *group.tables(starts),
        ),
        starts[-1],
        shared_bytes=side * (side + 1) * unit,
        bytes_in_flight=side * side // THREADS * unit,
        reason=f"input and output are contiguous along different dimensions, {unit} bytes each",
    )
