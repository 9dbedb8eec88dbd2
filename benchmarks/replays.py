"""Splits whose shapes change from call to call, as programs make them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

# All elements are of two bytes, and an input is at most this long.
DTYPE = "uint16"
MOST_BYTES = 1 << 28
# The bar for a prefill: programs are keyed by columns, alignments and a few buckets of rows.
PREFILL_COMPILES = 6
PREFILL_ROWS, PREFILL_COLUMNS = 8192, (8192, 1024, 1024)
MOE_ROWS, HIDDEN = 4096, 7168
COLD, WARM, FIRST_CALLS = "first call, empty cache", "first call, warm cache", 20


@dataclass(frozen=True, slots=True)
class Split:
    """One call: the shape of the array, and the sizes along an axis to cut it into."""

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """Splits that one process makes, one after the other.

    Attributes
    ----------
    name : str
    splits : callable
        Takes a random generator and yields splits forever.
    shapes : int
        How many splits are made, unless the command line says otherwise.
    compiles : int or None
        How many compilations are allowed in total; None if there is no bar.
    later_compiles : int or None
        How many compilations are allowed after the first call.
    has_empty : bool
        Whether an output may be empty, which DirectML refuses.
    """

    name: str
    splits: Callable[[np.random.Generator], Iterator[Split]]
    shapes: int
    compiles: int | None = None
    later_compiles: int | None = None
    has_empty: bool = False


def prefill(draw: np.random.Generator) -> Iterator[Split]:
    """QKV projections of 1 to 8,192 tokens: each length once, then each once more."""
    columns = sum(PREFILL_COLUMNS)
    while True:
        for row in draw.permutation(PREFILL_ROWS):
            yield Split((int(row) + 1, columns), 1, PREFILL_COLUMNS)


def experts(count: int) -> Callable[[np.random.Generator], Iterator[Split]]:
    """A generator of the rows that each expert gets, with new loads and tokens at each call."""

    def splits(draw: np.random.Generator) -> Iterator[Split]:
        while True:
            rows = int(draw.integers(1, MOE_ROWS + 1))
            sizes = draw.multinomial(rows, draw.dirichlet([1.5] * count))
            yield Split((rows, HIDDEN), 0, tuple(map(int, sizes)))

    return splits


def yolov8_heads(draw: np.random.Generator) -> Iterator[Split]:
    """YOLOv8's boxes and classes along the channels, of images of 160 to 1,280 pixels."""
    while True:
        height, width = map(int, draw.integers(20, 161, 2))
        yield Split((8, 144, height * width), 1, (64, 80))


def anchor_heads(draw: np.random.Generator) -> Iterator[Split]:
    """Centre, size, confidence and classes of 1 to 25,200 anchors, in rows of 85."""
    while True:
        yield Split((8, int(draw.integers(1, 25201)), 85), 2, (2, 2, 1, 80))


def anything(draw: np.random.Generator) -> Iterator[Split]:
    """From 1 to 16 outputs of 1 to 1,024 columns or rows, of 1 to 512 rows or columns."""
    while True:
        sizes = tuple(map(int, draw.integers(1, 1025, draw.integers(1, 17))))
        other, axis = int(draw.integers(1, 513)), int(draw.integers(2))
        yield Split((other, sum(sizes)) if axis else (sum(sizes), other), axis, sizes)


REPLAYS = (
    Replay(COLD, prefill, FIRST_CALLS),
    Replay(WARM, prefill, FIRST_CALLS, compiles=0),
    Replay("prefill, 1 to 8192 rows", prefill, PREFILL_ROWS, compiles=PREFILL_COMPILES),
    Replay("MoE, 8 experts", experts(8), 2000, later_compiles=0, has_empty=True),
    Replay("MoE, 64 experts", experts(64), 2000, later_compiles=0, has_empty=True),
    Replay("MoE, 256 experts", experts(256), 2000, later_compiles=0, has_empty=True),
    Replay("heads, 64 + 80 channels", yolov8_heads, 2000, later_compiles=0),
    Replay("heads, 85 columns", anchor_heads, 2000, later_compiles=0),
    Replay("any shape", anything, 2000),
)
BY_NAME = {replay.name: replay for replay in REPLAYS}
