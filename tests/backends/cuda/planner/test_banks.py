"""Wavefronts of shared memory, by how a tile is arranged there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.planner.banks import Arrangement, vector_wavefronts, wavefronts


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=32))
def test_wavefronts_are_the_words_of_the_busiest_bank(words: list[int]) -> None:
    by_bank = [{word for word in words if word % 32 == bank} for bank in range(32)]
    assert wavefronts(words) == max(map(len, by_bank))


@pytest.mark.parametrize(
    ("words", "found"),
    [(range(32), 1), ([7] * 32, 1), (range(0, 1024, 32), 32), (range(0, 64, 2), 2)],
    ids=["neighbours", "one word", "one bank", "every other"],
)
def test_known_wavefronts(words: list[int], found: int) -> None:
    assert wavefronts(words) == found


def spans(outputs: int, width: int) -> list[tuple[int, int]]:
    return [(start, width) for start in range(0, outputs * width, width)]


@pytest.mark.parametrize(
    ("outputs", "width", "arrangement", "part", "found"),
    [
        # Lanes are four rows of 32 words apart: all in one bank, unless padding moves them.
        (32, 4, Arrangement(128, None, 5), 4, 4 * 32),
        (32, 4, Arrangement(128, 2, 5), 4, 4 * 4),
        (32, 4, Arrangement(128, 2, 3), 4, 4),
        # An odd number of words keeps rows apart.
        (33, 4, Arrangement(132, None, 5), 4, 4 * 4),
        # Whole vectors: a quarter of a warp is in eight rows, or in two.
        (8, 16, Arrangement(128, None, 5), 16, 32),
        (8, 16, Arrangement(144, None, 5), 16, 4),
        (1, 512, Arrangement(512, None, 5), 16, 4),
    ],
)
def test_a_warp_waits_for_the_busiest_bank(
    outputs: int, width: int, arrangement: Arrangement, part: int, found: int
) -> None:
    assert vector_wavefronts(spans(outputs, width), arrangement, part) == found
