"""Calls whose shapes change need no specializations but those of the first call."""

from collections.abc import Iterator

import numpy as np
import pytest

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import plan
from tests.support.descriptors import packed_split

CALLS = 300
WIDTH = 2  # bytes of an element
Split = tuple[tuple[int, ...], int, tuple[int, ...]]


def prefill(draw: np.random.Generator) -> Iterator[Split]:
    """QKV projections of 1 to 8,192 tokens."""
    for rows in (8192, 1, 2, *draw.permutation(8192)[:CALLS].tolist()):
        yield (rows + 1, 10240), 1, (8192, 1024, 1024)


def experts(draw: np.random.Generator) -> Iterator[Split]:
    """The rows that each of 8, 64 or 256 experts gets, with new loads and tokens at each call."""
    count = int(draw.choice((8, 64, 256)))
    for rows in draw.integers(1, 4097, CALLS).tolist():
        sizes = draw.multinomial(rows, draw.dirichlet([1.5] * count))
        yield (rows, 7168), 0, tuple(sizes.tolist())


def boxes(draw: np.random.Generator) -> Iterator[Split]:
    """YOLOv8's boxes and classes along the channels, of images of 160 to 1,280 pixels."""
    for height, width in draw.integers(20, 161, (CALLS, 2)).tolist():
        yield (8, 144, height * width), 1, (64, 80)


def anchors(draw: np.random.Generator) -> Iterator[Split]:
    """Centre, size, confidence and classes of 1 to 25,200 anchors, in rows of 85."""
    for rows in draw.integers(1, 25201, CALLS).tolist():
        yield (8, rows, 85), 2, (2, 2, 1, 80)


def specializations(split: Split) -> tuple[set[str], set[str]]:
    """The sources that a call needs, and those that a first call compiles."""
    shape, axis, sizes = split
    launches = plan(
        packed_split(shape, axis=axis, sizes=sizes, element_bytes=WIDTH), 16, 16, H200.limits
    )
    first = [kernel_launch for launch in launches for kernel_launch in (launch, *launch.siblings())]
    return {kernel_launch.code.source for kernel_launch in launches}, {
        kernel_launch.code.source for kernel_launch in first
    }


# How many specializations a first call may compile.
MOST = {prefill: 4, experts: 2, boxes: 4, anchors: 2}
# Those of calls with transposed inputs: of `transpose`, for the alignments of lines, and of
# `strided`, for outputs of few columns.
MOST_TRANSPOSED = 12


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("replay", MOST, ids=lambda replay: replay.__name__)
def test_calls_with_new_shapes_need_no_new_specialization_after_the_first_call(
    replay: object, seed: int
) -> None:
    first_split, *later_splits = replay(np.random.default_rng(seed))
    _, first_sources = specializations(first_split)
    assert 1 <= len(first_sources) <= MOST[replay]
    for split in later_splits:
        assert specializations(split)[0] <= first_sources, split


@pytest.mark.parametrize("count", [8, 64, 256])
def test_new_sizes_of_a_transposed_input_need_few_specializations(count: int) -> None:
    """The columns that each expert gets, of a matrix that is stored by columns."""
    draw = np.random.default_rng(count)
    sources = set()
    for columns in draw.integers(1024, 8193, CALLS).tolist():
        sizes = draw.multinomial(columns, draw.dirichlet([1.5] * count)).tolist()
        # Rows are contiguous in the outputs, columns in the input.
        geometry = packed_split(
            (columns, 128), 0, sizes, WIDTH, input_strides=(WIDTH, columns * WIDTH)
        )
        launches = plan(geometry, 16, 16, H200.limits)
        sources |= {kernel_launch.code.source for kernel_launch in launches}
    assert len(sources) <= MOST_TRANSPOSED
