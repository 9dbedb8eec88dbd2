"""Plans for strided splits: one loop nest per output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
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
from dmlsplit.backends.cuda.planner.forms import form_of, nest_of
from dmlsplit.backends.cuda.planner.strided import strided_launches
from dmlsplit.geometry import SplitGeometry, StridedCopy

# Distinct nests that one launch makes code for: each adds about as much code as the kernel itself.
MOST_NESTS = 16
# Both dimensions must be this long for squares to pay: 8 words are one 32-byte sector.
SQUARE_SIDE = 8
# Elements along a square's side, for elements of up to SMALL_ELEMENT bytes and for larger ones: the
# square takes 17 KiB of shared memory at most, and loads of 16 bytes and more per thread.
SMALL_ELEMENT, LONG_SIDE, SHORT_SIDE = 4, 64, 32


@dataclass(frozen=True, slots=True)
class _Group:
    """Outputs of one launch."""

    unit: int  # bytes that a thread loads at once
    outputs: tuple[int, ...]  # by index
    offsets: tuple[int, ...]  # where each output begins in the input, in bytes
    nests: tuple[StridedCopy, ...]  # the distinct ones, with offset 0
    nest_of: tuple[int, ...]  # for each output, the index of its nest

    @property
    def total_bytes(self) -> int:
        """Bytes in all outputs."""
        return sum(self.nests[nest].total_bytes for nest in self.nest_of)

    def starts(self, nest_blocks: Sequence[int]) -> tuple[int, ...]:
        """Return the first block of each output, and the end, from the blocks of each nest."""
        return (0, *accumulate(nest_blocks[nest] for nest in self.nest_of))

    def tables(self, starts: tuple[int, ...]) -> tuple[Constant, ...]:
        """Return the constants that say where each output and its nest are."""
        return (
            Constant("int", "kUnit", self.unit),
            Constant("int", "kNests", len(self.nests)),
            Constant("unsigned char", "kOutputNests", self.nest_of),
            Constant("unsigned", "kTileStarts", starts),
            Constant(OFFSET_64, "kOffsets", self.offsets),
        )


def are_windows(geometry: SplitGeometry, assumed: Assumptions) -> bool:
    """Whether all outputs are single units a few apart, which windows are faster for than tiles."""
    nests = (nest_of(piece, assumed) for piece in geometry.pieces if piece.run_bytes)
    return all(abs(nest.step) > 1 and form_of(nest, 1, assumed).window_step for nest in nests)


def nest_launches(geometry: SplitGeometry, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Yield launches for a geometry that is not packed, for each kernel and unit apart."""
    by_unit: dict[int, dict[StridedCopy, list[int]]] = {}
    others: list[tuple[int, StridedCopy]] = []
    for index, piece in enumerate(geometry.pieces):
        if not piece.run_bytes:
            continue
        nest = nest_of(piece, assumed)
        is_transposed = form_of(nest, 1, assumed).window_step is None
        if is_transposed and _down(piece, nest.unit) is not None:
            alike = by_unit.setdefault(nest.unit, {})
            alike.setdefault(replace(piece, input_offset=0), []).append(index)
        else:
            others.append((index, piece))
    for unit, alike in by_unit.items():
        for part in _cut(alike, assumed.most_outputs):
            outputs = tuple(chain.from_iterable(part.values()))
            offsets = tuple(geometry.pieces[i].input_offset for i in outputs)
            nest_of_output = tuple(n for n, same in enumerate(part.values()) for _ in same)
            group = _Group(unit, outputs, offsets, tuple(part), nest_of_output)
            yield _transpose(group, assumed)
    yield from strided_launches(others, assumed)


def _cut(alike: dict[StridedCopy, list[int]], most: int) -> Iterator[dict[StridedCopy, list[int]]]:
    """Cut outputs by nest into parts of at most `MOST_NESTS` nests and `most` outputs."""
    part: dict[StridedCopy, list[int]] = {}
    for nest, outputs in alike.items():
        for index in outputs:
            has_all_nests = len(part) == MOST_NESTS and nest not in part
            if has_all_nests or sum(map(len, part.values())) == most:
                yield part
                part = {}
            part.setdefault(nest, []).append(index)
    if part:
        yield part


def _down(nest: StridedCopy, unit: int) -> int | None:
    """Return the dimension in which the input is contiguous, if the output is in another one."""
    if nest.run_bytes != unit or not nest.shape or nest.output_strides[-1] != unit:
        return None
    outer = zip(nest.shape[:-1], nest.input_strides[:-1], strict=True)
    for d, (size, stride) in enumerate(outer):
        if stride == unit and min(size, nest.shape[-1]) >= SQUARE_SIDE:
            return d
    return None


def _transpose(group: _Group, assumed: Assumptions) -> KernelLaunch:
    unit, nests = group.unit, group.nests
    side = LONG_SIDE if unit <= SMALL_ELEMENT else SHORT_SIDE
    downs = [(nest, _down(nest, unit) or 0) for nest in nests]
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
            *_loop_tables(loops, COUNT_64),
            *group.tables(starts),
        ),
        starts[-1],
        shared_bytes=side * (side + 1) * unit,
        bytes_in_flight=side * side // THREADS * unit,
        reason=f"input and output are contiguous along different dimensions, {unit} bytes each",
    )


def _loop_tables(nests: Sequence[Sequence[tuple[int, ...]]], index: str) -> list[Constant]:
    """Return sizes and strides of loop nests, each filled up in front to the deepest one."""
    depth = max(1, *(len(sizes) for sizes, _, _ in nests))
    tables: list[list[int]] = [[], [], []]
    for nest in nests:
        for table, row, filler in zip(tables, nest, (1, 0, 0), strict=True):
            table += [filler] * (depth - len(row)) + list(row)
    return [
        Constant("int", "kDimensions", depth),
        Constant(index, "kSizes", tuple(tables[0])),
        Constant(OFFSET_64, "kInputStrides", tuple(tables[1])),
        Constant(OFFSET_64, "kOutputStrides", tuple(tables[2])),
    ]
