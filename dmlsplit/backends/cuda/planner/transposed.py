"""Plans for strided splits whose input and output are contiguous along different dimensions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from dmlsplit.backends.cuda.launch import POINTER_BYTES, Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner.forms import Nest
from dmlsplit.backends.cuda.planner.squares import (
    MOST_SIDE_BYTES,
    Plane,
    Transposition,
    best,
    squares,
    write_bytes,
)
from dmlsplit.geometry import Loop, StridedCopy

# Both dimensions must be this long for squares to pay: 8 words are one 32-byte sector.
LEAST_SIDE = 8
# Bytes of parameters: of an output, its address, offset, nest and first square; of a nest, two
# strides, two sizes and a divisor; of a loop around it, two strides and a divisor.
OUTPUT_BYTES, NEST_BYTES, LOOP_BYTES = 8 + 8 + 1 + 4, 2 * 8 + 2 * 4 + 12, 2 * 8 + 12
SPARE_BYTES = 16  # the last entry of a table, and the gap at the end
# The tables of nests take at most this part of the parameters; nests have numbers of one byte.
NEST_PART, MOST_NESTS = 4, 256


def down_loop(nest: Nest) -> Loop | None:
    """The loop along which the input is contiguous, if the output is along another one."""
    *outer, row = nest.loops
    if row.output_stride != nest.unit or row.input_stride == nest.unit:
        return None
    for loop in outer:
        least, most = sorted((loop.size, row.size))
        is_side = least >= LEAST_SIDE and most * nest.unit <= MOST_SIDE_BYTES
        if loop.input_stride == nest.unit and is_side:
            return loop
    return None


def launch_parts(
    alike: Mapping[Nest, Sequence[int]], assumed: Assumptions
) -> Iterator[dict[Nest, list[int]]]:
    """Cut outputs, by nest, into those that the parameters of a launch have room for."""
    most, most_nests = _most_transposed(alike, assumed)
    part: dict[Nest, list[int]] = {}
    for nest, outputs in alike.items():
        for index in outputs:
            has_all_nests = len(part) == most_nests and nest not in part
            if has_all_nests or sum(map(len, part.values())) == most:
                yield part
                part = {}
            part.setdefault(nest, []).append(index)
    yield part


def _most_transposed(nests: Collection[Nest], assumed: Assumptions) -> tuple[int, int]:
    room = POINTER_BYTES * assumed.most_outputs - SPARE_BYTES
    loops = max(len(nest.loops) for nest in nests) - 2
    nest_bytes = NEST_BYTES + LOOP_BYTES * max(loops, 1)
    most_nests = min(MOST_NESTS, room // NEST_PART // nest_bytes, len(nests))
    return (room - most_nests * nest_bytes) // OUTPUT_BYTES, most_nests


def transpose(
    alike: Mapping[Nest, Sequence[int]], pieces: Sequence[StridedCopy], assumed: Assumptions
) -> KernelLaunch:
    """The launch for outputs, by nest, whose nests have a down loop and one unit."""
    unit = next(iter(alike)).unit
    planes = tuple(map(_plane, alike))
    outputs = tuple(chain.from_iterable(alike.values()))
    offsets = tuple(pieces[output].input_offset for output in outputs)
    plane_of = tuple(number for number, same in enumerate(alike.values()) for _ in same)
    square = best(squares(unit, write_bytes(planes, assumed)), planes)
    reason = "input and output are contiguous along different dimensions"
    return Transposition(square, planes, offsets, plane_of).launch(
        outputs,
        sum(pieces[output].total_bytes for output in outputs),
        assumed,
        f"{reason}, {unit} bytes each",
    )


def _plane(nest: Nest) -> Plane:
    *outer, across = nest.loops
    down = down_loop(nest)
    assert down is not None
    outer.remove(down)
    return Plane(
        down.size,
        across.size,
        down.output_stride,
        across.input_stride,
        tuple(reversed(outer)),
    )
