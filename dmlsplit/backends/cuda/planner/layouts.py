"""How `tile` cuts narrow outputs into slabs that are alike, and lays them out in shared memory.

A slab is some rows of a group of outputs. A block reads it in runs of vectors, and writes it in
items, the vectors of outputs (docs/design/016-slabs.md, cuda/tile.cu).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import gcd
from operator import add, sub
from typing import NamedTuple

from dmlsplit.backends.cuda.launch import VECTOR, WARP, WORD, Assumptions, DeviceLimits
from dmlsplit.backends.cuda.occupancy import resident_blocks
from dmlsplit.backends.cuda.planner.times import Blocks, launch_time
from dmlsplit.backends.cuda.planner.warps import padded, vector_wavefronts
from dmlsplit.geometry import RowSplit, ceil_div

SLABS = 4  # that a block reads at once; each thread reads one vector of every slab
ROUNDS = (4, 3, 2, 1)  # in which a block reads SLABS slabs: candidates
THREADS_TRIED = (128, 192, 256)  # of a block: candidates
MIN_THREADS = 128  # of a block, below which no slab is halved
MAX_THREADS = 256  # of a block
# Blocks of MAX_THREADS that an SM must hold, so that some copy while others wait at a barrier.
RESIDENT = 4
THREAD_REGISTERS = 64  # the most of a thread, with RESIDENT blocks
# Tables of more groups do not fit the parameters beside those of 1,024 outputs.
MAX_GROUPS = 64
# Paddings of shared memory: (log2 of an interval, unused bytes after each). The banks span 128
# bytes. A slab has room for each of these, so that its code depends only on whether (0, 0) is best.
PADS = (0, 0), (7, VECTOR), (8, VECTOR), (8, 3 * VECTOR), (9, VECTOR), (9, 3 * VECTOR)
SHARED_STEP = 64 * VECTOR  # divides a slab's shared memory, as each size is a specialization
# The clocks in which an SM's banks pass a vector of each lane to shared memory.
READ_CLOCKS = 8
# The clocks in which they pass it to global memory once it has been gathered.
STORE_CLOCKS = 4
FIND_CLOCKS = 80  # once in a block, to issue what finds a vector of each lane: an estimate
SECTOR_CLOCKS = 1 / 4  # for the L1 cache to serve a sector
# Bank conflicts are counted for this many of the slabs that are the fastest without any.
COUNTED_SLABS = 3
MANY_ROWS = 1 << 30  # so many that the last blocks do not matter


class Layout(NamedTuple):
    """A tile's part of the input, its layout in shared memory, and the threads that copy it."""

    part_bytes: int  # 1, 2, 4, 8 or 16: divides every width, offset, pitch and address
    groups: tuple[int, ...]  # the first output of each group, and the number of outputs
    rows_before: int  # rows that a block reads ahead of those of a slab
    slab_rows: int  # rows of a slab
    run_rows: int  # rows of a run: all that a block reads of a slab, or one
    run_vectors: int  # vectors of a run
    row_pitch: int  # bytes from row to row in shared memory
    items: int  # vectors of a slab's outputs, in the widest group
    mean_items: float  # vectors of a slab's outputs, on average over all groups
    pad: tuple[int, int] = (0, 0)  # the padding of shared memory, one of PADS
    wavefronts: float = 0  # in which a warp gathers a vector in each lane
    slab_vectors: int = 0  # vectors of shared memory for a slab
    rounds: int = 1  # in which a block reads SLABS slabs

    @property
    def runs(self) -> int:
        """The runs of a slab."""
        return (self.slab_rows + self.rows_before) // self.run_rows

    @property
    def read_vectors(self) -> int:
        """The vectors that a block reads of a slab."""
        return self.runs * self.run_vectors

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return ceil_div(max(self.read_vectors, self.items), WARP) * WARP

    @property
    def tile_rows(self) -> int:
        """The rows of a tile."""
        return self.slab_rows * SLABS * self.rounds

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block."""
        return self.slab_vectors * SLABS * VECTOR

    def grid(self, rows: int) -> int:
        """The blocks for this many rows: each group of outputs has one for each tile."""
        # A vector of an unaligned output belongs to the tile in which it ends, even after all rows.
        return ceil_div(rows + self.rows_before, self.tile_rows) * (len(self.groups) - 1)

    @property
    def unit_clocks(self) -> float:
        """The clocks of the busiest unit of an SM for 512 bytes.

        Each end of a run wastes half a sector. An output's share of a slab wastes half a sector in
        all, because the next slab continues where it ends.
        """
        reading = ceil_div(self.read_vectors, WARP)
        writing = ceil_div(self.items, WARP)
        write = STORE_CLOCKS + (self.wavefronts or VECTOR / max(WORD, self.part_bytes))
        write += FIND_CLOCKS / (SLABS * self.rounds)
        outputs: int = max(map(sub, self.groups[1:], self.groups))
        sectors = (2 * self.runs + outputs) / 2
        clocks = READ_CLOCKS * reading + write * writing + SECTOR_CLOCKS * sectors
        return clocks / self.mean_items * WARP

    def time(self, rows: int, row_bytes: int, limits: DeviceLimits) -> float:
        """The time of a launch, to two decimals, as `launch_time` has it."""
        resident = resident_blocks(limits, self.threads, THREAD_REGISTERS, self.shared_bytes)
        round_bytes = SLABS * VECTOR * self.read_vectors
        blocks = Blocks(self.grid(rows), resident, round_bytes, self.rounds)
        return round(launch_time(limits, rows * row_bytes, blocks, self.unit_clocks), 2)


def takes_whole_rows(split: RowSplit) -> bool:
    """Whether rows are packed, and a block can copy a slab of them and of any single output."""
    rows = _period(split) + ceil_div(VECTOR - 1, min(split.widths))
    fits = rows * split.pitch <= (MAX_THREADS - 1) * VECTOR
    return split.row_bytes == split.pitch and fits and max(split.widths) <= _max_run_bytes(rows, 1)


def _max_run_bytes(rows: int, part_bytes: int) -> int:
    """The most bytes of a run, if a block reads `rows` runs at multiples of `part_bytes`."""
    return MAX_THREADS // rows * VECTOR - (VECTOR - part_bytes)


def layout_of(split: RowSplit, assumptions: Assumptions) -> Layout:
    """The layout of narrow outputs. Its specialization is the same for any number of rows."""
    alignments = assumptions.input_alignment, assumptions.output_alignment
    part_bytes = gcd(VECTOR, *split.widths, *split.offsets, split.pitch, *alignments)
    is_aligned = assumptions.output_alignment == VECTOR
    before = 0 if is_aligned else ceil_div(VECTOR - part_bytes, min(split.widths))
    any_rows = split._replace(rows=0, outputs=())
    columns = _Columns(any_rows, part_bytes, before, assumptions.input_alignment)

    def cost(layout: Layout) -> tuple[float, int]:
        """A sort key: the time, then the layout with the most blocks."""
        return layout.time(split.rows, split.row_bytes, assumptions.limits), layout.tile_rows

    best = _best_for_many_rows(columns, assumptions.limits)
    return min(columns.smaller_layouts(best), key=cost)


def _period(split: RowSplit) -> int:
    """The rows after which phases in the input and in outputs repeat."""
    return VECTOR // gcd(VECTOR, split.pitch, *split.widths)


class _Columns(NamedTuple):
    """What selects a specialization of `tile`: all about a split but its number of rows."""

    split: RowSplit  # of any number of rows
    part_bytes: int
    rows_before: int
    input_alignment: int

    def slab(self, groups: tuple[int, ...], max_rows: int, threads: int) -> Layout | None:
        """The largest slab that this number of threads can copy; None if they cannot copy any."""
        split = self.split
        before = self.rows_before
        period = _period(self.split)
        is_single_run = len(groups) == 2 and split.row_bytes == split.pitch
        # Runs are a pitch apart; a single run begins `before` rows ahead of the slab. Phases of
        # runs are multiples of the greatest common divisor of this distance, the input's alignment,
        # the groups' offsets and VECTOR, so none exceeds VECTOR less that divisor.
        run_distance = before * split.pitch if is_single_run else split.pitch
        offsets = [split.offsets[first] for first in groups[:-1]]
        ends = [split.offsets[last - 1] + split.widths[last - 1] for last in groups[1:]]
        widest = max(map(sub, ends, offsets))
        max_phase = VECTOR - gcd(VECTOR, self.input_alignment, run_distance, *offsets)
        if is_single_run:
            readable_rows = (threads * VECTOR - max_phase) // split.pitch
        else:
            readable_rows = threads // ceil_div(widest + max_phase, VECTOR)
        rows = min(max_rows, readable_rows - before, threads * VECTOR // widest) // period * period
        if rows <= 0:
            return None
        runs, run_rows = (1, rows + before) if is_single_run else (rows + before, 1)
        run_vectors = ceil_div(run_rows * widest + max_phase, VECTOR)
        row_pitch = split.pitch if is_single_run else _row_pitch(split.pitch, widest, max_phase)
        # The slab's first byte may have any phase, which takes one vector more. Even MAX_THREADS
        # runs of a vector take less than 12 KiB, so a block stays below the 48 KiB of any GPU.
        shared_end = (runs - 1) * row_pitch + (run_vectors + 1) * VECTOR
        shared = ceil_div(max(padded(shared_end, pad) for pad in PADS), SHARED_STEP) * SHARED_STEP
        mean_items = rows * sum(split.widths) / VECTOR / (len(groups) - 1)
        shape = rows, run_rows, run_vectors, row_pitch, rows * widest // VECTOR, mean_items
        return Layout(self.part_bytes, groups, before, *shape, slab_vectors=shared // VECTOR)

    def candidates(self) -> Iterator[Layout]:
        """Slabs of whole rows and of groups of outputs, each for few threads and for many."""
        split = self.split
        has_whole_rows = split.row_bytes == split.pitch
        choices: set[tuple[int, ...]] = {(0, len(split.widths))} if has_whole_rows else set()
        begins = split.offsets
        ends = [*map(add, begins, split.widths)]
        gaps = [i for i in range(1, len(ends)) if begins[i] != ends[i - 1]]
        rows = _period(split) + self.rows_before
        while (run_bytes := _max_run_bytes(rows, self.part_bytes)) >= max(split.widths):
            choices.add(_groups(begins, ends, gaps, run_bytes))
            rows += ceil_div(rows, 2)
        for groups, threads in product(choices, THREADS_TRIED):
            if slab := self.slab(groups, threads * VECTOR, threads):  # rows have a byte or more
                yield slab

    def best_for_many_rows(self, limits: DeviceLimits) -> Layout:
        """The best slab for many rows, with the padding that avoids the most bank conflicts."""
        row_bytes = self.split.row_bytes

        def cost(slab: Layout) -> tuple[bool, float, int]:
            """A sort key: slabs whose tables fit the parameters, then the fastest, the smallest."""
            time = slab.time(MANY_ROWS, row_bytes, limits)
            return len(slab.groups) - 1 > MAX_GROUPS, time, slab.threads

        slabs = sorted((slab._replace(rounds=ROUNDS[0]) for slab in self.candidates()), key=cost)
        return min(map(self.padded, slabs[:COUNTED_SLABS]), key=cost)

    def padded(self, slab: Layout) -> Layout:
        """The slab with its best padding, and the wavefronts that its loads take with it."""
        starts = max((_starts(self.split, *group) for group in pairwise(slab.groups)), key=max)
        counts = vector_wavefronts(starts, slab.slab_rows, slab.row_pitch, self.part_bytes, PADS)
        wavefronts, pad = min(zip(counts, PADS, strict=True))
        return slab._replace(pad=pad, wavefronts=wavefronts)

    def smaller_layouts(self, largest: Layout) -> Iterator[Layout]:
        """The layouts of one specialization: a slab and smaller ones, in any number of rounds."""
        period = _period(self.split)
        rows = largest.slab_rows
        while rows and (slab := self.slab(largest.groups, rows, MAX_THREADS)):
            if rows < largest.slab_rows and slab.threads < MIN_THREADS:
                return
            for rounds in ROUNDS:
                yield slab._replace(
                    rounds=rounds,
                    pad=largest.pad,
                    wavefronts=largest.wavefronts,
                    slab_vectors=largest.slab_vectors,
                )
            rows = rows // 2 // period * period


_best_for_many_rows = lru_cache(maxsize=1024)(_Columns.best_for_many_rows)


def _row_pitch(pitch: int, width: int, max_phase: int) -> int:
    """The distance of rows of `width` bytes in shared memory, where each row is a run.

    Rows keep their phases, so the distance is some vectors and the phase of `pitch`. No vector may
    hold bytes of two rows. A row that begins at phase p <= max_phase takes ceil((p + width) /
    VECTOR) vectors. The next row begins after the distance's vectors if its phase is p +
    pitch_phase, which is then at most max_phase. If the phase wraps around, the row begins one
    vector later, which is always far enough.
    """
    pitch_phase = pitch % VECTOR
    return ceil_div(width + max_phase - pitch_phase, VECTOR) * VECTOR + pitch_phase


def _starts(split: RowSplit, first: int, last: int) -> tuple[int, ...]:
    """The first byte of each output in the run of its group, and the end of the last output."""
    begin = split.offsets[first]
    return (
        *(offset - begin for offset in split.offsets[first:last]),
        split.offsets[last - 1] + split.widths[last - 1] - begin,
    )


def _groups(
    begins: Sequence[int], ends: Sequence[int], gaps: Sequence[int], max_bytes: int
) -> tuple[int, ...]:
    """The first output of each group, and the number of outputs.

    Groups end at the gaps between outputs. Those of more than `max_bytes` bytes are cut evenly.
    """
    groups: list[int] = []
    for first, last in pairwise((0, *gaps, len(ends))):
        cuts = [first, last]
        group_bytes = ends[last - 1] - begins[first]
        if group_bytes > max_bytes:
            count = ceil_div(group_bytes, max_bytes)
            cuts = _cut(begins[first:last], ends[first:last], count, first)
            # Groups may still be too wide, because outputs are not divided.
            while any(ends[j - 1] - begins[i] > max_bytes for i, j in pairwise(cuts)):
                count += ceil_div(count, 32)
                cuts = _cut(begins[first:last], ends[first:last], count, first)
        groups += cuts[:-1]
    return (*groups, len(ends))


def _cut(begins: Sequence[int], ends: Sequence[int], count: int, first: int) -> list[int]:
    """The first output of each of about `count` equal parts, and the number of outputs.

    Outputs are numbered from `first`.
    """
    # An output is in the part that holds its middle.
    middles = [*map(add, begins, ends)]  # doubled
    total = 2 * (ends[-1] - begins[0])
    borders = (2 * begins[0] + ceil_div(total * part, count) for part in range(1, count))
    cuts = {bisect_left(middles, border) for border in borders} - {0, len(middles)}
    return [first, *(first + cut for cut in sorted(cuts)), first + len(middles)]
