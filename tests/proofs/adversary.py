"""Random splits that try to find mistakes of kernels and the planner; the same ones every time.

Each number is a case. Each output has its own address, widths are uneven, many outputs are narrower
than a vector, a few rows are far apart, and the device accepts few parameters or has few
multiprocessors.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from dmlsplit.backends.cuda.planner import DeviceLimits
from dmlsplit.self_test.paths import arguments
from tests.host_cuda.harness import Buffer
from tests.proofs import launch_bytes
from tests.support.kernel_cases import Case
from tests.support.plans import check_fits

# A pitch is one of these powers of two, or one element more or less.
FAR = (16, 24, 25, 27, 31, 32, 33)
COUNTS = (1, 1, 2, 2, 3, 3, 4, 5, 7, 9, 12, 20, 20, 40, 40, 130, 130, 300, 300, 700, 1500, 4500)
WIDTHS = ((0, 17), (0, 17), (1, 17), (14, 40), (0, 600), (1, 5000))
MAX_BYTES = 1 << 16  # of a case whose rows are not far apart
MAX_HELD = 1 << 20  # bytes of outputs of a case that runs on the host
MAX_BLOCKS, MAX_ROWS = 40, 4  # blocks of a launch that run, about, and rows of which some do


@dataclass(frozen=True)
class Rows(Case):
    """Rows of an input with any pitch: only the rows themselves are in memory."""

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.element_bytes

    def random_source(self) -> np.ndarray:
        size = self.shape[0] * self.row_bytes
        return np.random.default_rng(5).integers(0, 256, size, np.uint8)

    def expected(self, data: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum(self.sizes)[:-1] * self.element_bytes
        return [part.ravel() for part in np.split(data.reshape(-1, self.row_bytes), ends, axis=1)]

    def source_buffer(self, data: np.ndarray) -> Buffer:
        starts = [row * self.source.strides[0] for row in range(self.shape[0])]
        patches = tuple(zip(starts, data.reshape(-1, self.row_bytes), strict=True))
        windows = tuple((start, self.row_bytes) for start in starts)
        return Buffer(self.source.size, 0, self.misaligned[0], patches, windows)


def case(number: int) -> Case:
    """The case of a number."""
    draw = Random(number)
    plain = draw.choice(RARER if number % 10 >= 8 else COMMON)(draw)
    phases, limits = _phases(draw, len(plain.sizes)), _limits(draw)
    # New arrays are aligned, whatever view of another one they are filled from.
    if draw.choice((False, False, True)):
        phases = (phases[0], *(phase // VECTOR * VECTOR for phase in phases[1:]))
    return replace(plain, misaligned=phases, limits=limits)


def near(draw: Random) -> Case:
    """Rows without gaps, or with a small gap."""
    widths, size = _widths(draw), _element_bytes(draw)
    row = sum(widths)
    rows = draw.choice((1, 2, 3, draw.randint(4, 80), draw.randint(80, 3000)))
    rows = max(1, min(rows, MAX_BYTES // (row * size)))
    pitch = row + draw.choice((0, 0, 0, 1, 2, 13, 16))
    return Rows((rows, row), widths, element_bytes=size, strides=(pitch, 1))


def far(draw: Random) -> Case:
    """Rows with a large gap."""
    widths, size = _widths(draw), _element_bytes(draw)
    row = sum(widths)
    rows = draw.choice((1, 2, 3, 3, draw.randint(4, 70)))
    rows = max(1, min(rows, MAX_BYTES // (row * size)))
    pitch = max(row, _far(draw, size))
    return Rows((rows, row), widths, element_bytes=size, strides=(pitch, 1))


def filled(draw: Random) -> Case:
    """Long rows: the length of a row, or of one output, is near a power of two."""
    widths, size = list(_widths(draw)), _element_bytes(draw)
    if draw.random() < 0.5:
        widths = [draw.randint(16, 700)] * draw.randint(60, 900)
    wide = _far(draw, size) - draw.choice((0, sum(widths)))
    widths.insert(draw.randint(0, len(widths)), max(1, wide))
    return Rows((draw.randint(1, 4), sum(widths)), tuple(widths), element_bytes=size)


def elements(draw: Random) -> Case:
    """Rows of outputs that are one element wide each."""
    size, count = draw.choice((1, 2, 4, 8)), draw.choice((2, 3, 4, 7, 8, 9, 16, 61, 130, 300))
    rows = draw.randint(1, max(3, MAX_BYTES // (count * size)))
    pitch = count + draw.choice((0, 0, 0, 1, 4, 32))
    return Rows((rows, count), (1,) * count, element_bytes=size, strides=(pitch, 1))


def strided(draw: Random, most_rank: int = 5) -> Case:
    """Inputs and outputs whose dimensions are in any order, with gaps, reversed or broadcast."""
    rank = draw.randint(1, most_rank)
    most = (2000, 90, 24, 12, 7, 4, 4, 4)[rank - 1]
    shape = [draw.randint(1, most) for _ in range(rank)]
    axis = draw.randrange(rank)
    sizes = tuple(draw.randint(0, most) for _ in range(draw.choice((1, 2, 3, 5, 30 // rank))))
    shape[axis] = sum(sizes) or 1
    sizes = sizes if any(sizes) else (1,)
    parts = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    targets = tuple(strides(draw, part, 0) if draw.random() < 0.4 else None for part in parts)
    source = strides(draw, tuple(shape), 0.15)
    return Case(tuple(shape), sizes, axis, draw.choice((1, 1, 2, 4, 8)), source, targets)


def turned(draw: Random) -> Case:
    """Two dimensions that are swapped, with many outputs of several sizes."""
    size, across = draw.choice((1, 2, 4, 8, 16)), draw.randint(8, 150)
    most = draw.choice((9, 20, 70))
    sizes = tuple(draw.randint(7, most) for _ in range(draw.choice((1, 2, 5, 40))))
    pitch = sum(sizes) + draw.choice((0, 0, 1, 3, 16))
    if draw.random() < 0.2:
        pitch = max(pitch, _far(draw, size))
    outer = draw.choice((1, 1, 3))
    shape, strides = (outer, sum(sizes), across), (pitch * across, 1, pitch)
    return Case(shape, sizes, 1, size, strides)


def deep(draw: Random) -> Case:
    """Up to eight dimensions."""
    return strided(draw, 8)


def vectors(draw: Random) -> Case:
    """Packed elements of 16 bytes, so that everything is a multiple of 16."""
    sizes = tuple(draw.randint(0, draw.choice((3, 24, 200))) for _ in range(draw.randint(1, 14)))
    shape = draw.choice(((), (draw.randint(1, 40),), (3, 5))), sum(sizes) or 1
    return Case((*shape[0], shape[1]), sizes if any(sizes) else (1,), element_bytes=16)


def windows(draw: Random) -> Case:
    """Long rows whose elements have small gaps, in outputs with or without gaps, or in channels."""
    rows, step, size = draw.randint(1, 9), draw.randint(-5, 5), draw.choice((1, 1, 2, 4, 8))
    unit = draw.choice((1, 16))
    sizes = tuple(draw.randint(200, 1200) // unit * unit for _ in range(draw.randint(1, 3)))
    length, channels = sum(sizes), draw.randint(1, max(1, step))
    pitch = length * max(1, abs(step)) + draw.choice((0, 1, 2, 16))
    if channels > 1:
        return Case((rows, length, channels), (1,) * channels, -1, size, (pitch, step, 1))
    gap = draw.choice((None, 0, 1, 16))
    outputs = None if gap is None else tuple((size + gap, 1) for size in sizes)
    return Case((rows, length), sizes, -1, size, (pitch, step), outputs)


def pairs(draw: Random) -> Case:
    """Rows of two to four elements, which need not be aligned."""
    size, count = draw.choice((2, 4, 8)), draw.randint(2, 4)
    return Case((draw.randint(200, 1200), count), (1,) * count, element_bytes=size)


COMMON = (near, near, far, far, filled, elements, strided, turned)
RARER = (deep, vectors, windows, pairs)


def _far(draw: Random, size: int) -> int:
    """A length near a power of two of bytes, in elements."""
    return (1 << draw.choice(FAR)) // size + draw.choice((-1, 0, 1, 1, 5))


def _element_bytes(draw: Random) -> int:
    return draw.choice((1, 1, 1, 1, 2, 4, 8))


def _widths(draw: Random) -> tuple[int, ...]:
    count, (least, most) = draw.choice(COUNTS), draw.choice(WIDTHS)
    widths = [draw.randint(least, most) for _ in range(count)]
    if draw.random() < 0.2:
        widths = widths[:1] * count
    for _ in range(draw.choice((0, 0, 1, 3))):
        wide = (1 << draw.randint(5, 14)) + draw.choice((-1, 0, 1, 16))
        widths[draw.randrange(count)] = wide
    return tuple(widths) if any(widths) else (*widths[1:], 1)


def strides(draw: Random, shape: tuple[int, ...], broadcast: float) -> tuple[int, ...]:
    strides = [0] * len(shape)
    step = draw.choice((1, 1, 1, 2, 3))
    for dimension in draw.sample(range(len(shape)), len(shape)):
        strides[dimension] = step * draw.choice((1, 1, 1, -1))
        step = step * max(1, shape[dimension]) + draw.choice((0, 0, 0, 1, 4, 16))
        if draw.random() < broadcast:
            strides[dimension] = 0
    return tuple(strides)


def _phases(draw: Random, outputs: int) -> tuple[int, ...]:
    unit, is_same = draw.choice((1, 1, 1, 2, 4, 8, 16, 16, 16)), draw.random() < 0.3
    source, *phases = (draw.randrange(0, 512, unit) for _ in range(1 + outputs))
    return (source, *(phases[:1] * outputs if is_same else phases))


def _limits(draw: Random) -> DeviceLimits:
    return H200.limits._replace(
        sm_count=draw.choice((1, 7, 16, 40, 108, 132, 160)),
        threads_per_sm=draw.choice((1024, 2048)),
        parameter_bytes=draw.choice((4096, 4096, 4352, 9000, 32764, 32764)),
    )


def borders(launch: KernelLaunch) -> list[int]:
    """All blocks of a launch; if there are many, those at ends of outputs and rows, and others."""
    if launch.grid <= MAX_BLOCKS:
        return list(range(launch.grid))
    parameters = arguments(launch)
    draw = Random(launch.grid)
    starts = _starts(launch, parameters)
    blocks = draw.sample(starts, min(len(starts), MAX_BLOCKS // 8))
    blocks += [draw.randrange(launch.grid) for _ in range(MAX_BLOCKS // 8)]
    if launch.code.kernel == "rows":
        blocks += _row_starts(launch, parameters)
    near = {block + step for block in (0, launch.grid, *blocks) for step in (-1, 0)}
    return sorted(block for block in near if 0 <= block < launch.grid)


def _starts(launch: KernelLaunch, parameters: dict[str, Any]) -> list[int]:
    """The first block of each output."""
    if "output_tiles" in parameters:
        return list(range(0, parameters["chunk_tiles"], parameters["output_tiles"]))
    return list(parameters.get("tile_starts", parameters.get("starts", ())))[: len(launch.outputs)]


def _row_starts(launch: KernelLaunch, parameters: dict[str, Any]) -> Iterator[int]:
    """The blocks of `rows` in which a row of the widest output begins."""
    widths = parameters.get("widths", (parameters.get("width"),))
    width, tile_bytes = max(widths), parameters["tile_bytes"]
    start = _starts(launch, parameters)[widths.index(width)]
    for chunk in {0, parameters["last_chunk"]}:
        for row in range(min(parameters["chunk_rows"], MAX_ROWS)):
            yield chunk * parameters["chunk_tiles"] + start + row * width // tile_bytes


def check_plan(case: Case) -> None:
    """Assert that launches fit the device, and that together they copy every byte once."""
    copied_bytes: Counter[int] = Counter()
    for launch in case.launches:
        check_fits(launch, case.limits)
        assert launch.code.source
        pieces = {output: case.geometry.pieces[output] for output in launch.outputs}
        assert launch.total_bytes == sum(piece.total_bytes for piece in pieces.values())
        copied_bytes.update(launch_bytes.bytes_of(launch, pieces))
    pieces = enumerate(case.geometry.pieces)
    assert copied_bytes == {
        output: piece.total_bytes for output, piece in pieces if piece.run_bytes
    }


def fits_host(case: Case) -> bool:
    """Whether a case is small enough for the processor, and for the machine's memory."""
    target_bytes = sum(layout.size for layout in case.targets)
    return target_bytes <= MAX_HELD and (isinstance(case, Rows) or case.source.size <= MAX_HELD)
