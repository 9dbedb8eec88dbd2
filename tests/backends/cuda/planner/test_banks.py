"""Wavefronts of shared memory, and the padding that saves them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.planner.banks import BANKS, WORD, best_padding, wavefronts

NONE = (0, 1)
CHOICES = [NONE, *((WORD, rows) for rows in (1, 2, 4, 8, 16))]


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=32))
def test_wavefronts_are_the_words_of_the_busiest_bank(words: list[int]) -> None:
    by_bank = [{word for word in words if word % BANKS == bank} for bank in range(BANKS)]
    assert wavefronts(words) == max(map(len, by_bank))


@pytest.mark.parametrize(
    ("words", "found"),
    [(range(32), 1), ([7] * 32, 1), (range(0, 1024, 32), 32), (range(0, 64, 2), 2)],
    ids=["neighbours", "one word", "one bank", "every other"],
)
def test_known_wavefronts(words: list[int], found: int) -> None:
    assert wavefronts(words) == found


@pytest.mark.parametrize(
    ("outputs", "width", "pad"),
    [
        (64, 1, WORD),  # neighbouring lanes read 16 rows apart
        (32, 4, WORD),
        (33, 4, 0),  # an odd number of words keeps rows apart already
        (1, 64, 0),  # neighbouring lanes read neighbouring words
    ],
)
def test_rows_are_padded_if_lanes_would_meet_in_a_bank(outputs: int, width: int, pad: int) -> None:
    starts = range(0, (outputs + 1) * width, width)
    assert best_padding(starts, 128, outputs * width, min(width, WORD), CHOICES)[0] == pad
    assert best_padding(starts, 128, outputs * width, min(width, WORD), [NONE]) == NONE


@given(st.lists(st.integers(1, 90), min_size=1, max_size=20), st.integers(1, 130))
def test_any_tile_has_a_best_padding(widths: list[int], rows: int) -> None:
    starts = [sum(widths[:count]) for count in range(len(widths) + 1)]
    assert best_padding(starts, rows, starts[-1], 1, CHOICES) in CHOICES
