"""How long a warp waits for the banks of shared memory."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.planner.layouts import PADS
from dmlsplit.backends.cuda.planner.warps import padded, vector_wavefronts, wavefronts


@example(list(range(0, 1024, 32)))
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=32))
def test_an_access_takes_as_many_wavefronts_as_its_busiest_bank_has_words(words: list[int]) -> None:
    by_bank = [{word for word in words if word % 32 == bank} for bank in range(32)]
    assert wavefronts(np.array([words])).tolist() == [max(map(len, by_bank))]


@given(st.integers(0, 10_000), st.sampled_from(PADS))
def test_padding_keeps_vectors_whole_aligned_and_disjoint(
    vector: int, pad: tuple[int, int]
) -> None:
    """`padded` is the place in shared memory of a byte of a tile; some vectors have a gap after."""
    _, gap_bytes = pad
    first_byte, last_byte = padded(16 * vector, pad), padded(16 * vector + 15, pad)
    assert first_byte % 16 == 0
    assert last_byte == first_byte + 15
    next_vector = padded(16 * (vector + 1), pad)
    assert next_vector - first_byte in (16, 16 + gap_bytes)


@pytest.mark.parametrize(
    ("outputs", "width", "rows", "pad", "part", "count"),
    [
        # Neighbouring vectors of an output are four rows of 32 words apart: in one bank, unless
        # padding moves them.
        (32, 4, 128, (0, 0), 4, 4 * 32),
        (32, 4, 128, (9, 16), 4, 4 * 4),
        # An odd number of words puts rows into different banks.
        (33, 4, 128, (0, 0), 4, 4 * 4),
        # Whole vectors: a quarter of a warp covers eight rows.
        (8, 16, 8, (0, 0), 16, 32),
        (8, 16, 8, (7, 16), 16, 4),
        (1, 512, 2, (0, 0), 16, 4),
    ],
)
def test_a_warp_waits_for_the_busiest_bank(
    outputs: int, width: int, rows: int, pad: tuple[int, int], part: int, count: int
) -> None:
    starts = tuple(range(0, outputs * width + 1, width))
    assert vector_wavefronts(starts, rows, outputs * width, part, (pad,)) == [count]
