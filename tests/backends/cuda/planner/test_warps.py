"""Teams of threads: which vectors of a tile each copies, and how long a warp waits for banks."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.planner.warps import (
    Arrangement,
    chunk_steps,
    dealt,
    used_lanes,
    vector_wavefronts,
    wavefronts,
)

SIZES = st.lists(st.integers(1, 20_000), min_size=1, max_size=30)


@given(SIZES, st.sampled_from([128, 256, 2048]), st.sampled_from([0, 12, 15]))
def test_every_vector_is_in_one_chunk(sizes: list[int], chunk_bytes: int, lead: int) -> None:
    found = list(dealt(sizes, chunk_bytes, lead))
    assert len(set(found)) == len(found)
    for output, size in enumerate(sizes):
        begins = sorted(begin for owner, begin in found if owner == output)
        assert begins == list(range(0, size + lead, chunk_bytes))


def test_neighbouring_teams_take_outputs_of_one_width() -> None:
    found = list(dealt([64, 512, 64, 512], 256))
    assert found == [(1, 0), (3, 0), (0, 0), (2, 0), (1, 256), (3, 256)]


@pytest.mark.parametrize(
    ("sizes", "team_bits", "steps"),
    [([512] * 32, 5, 4), ([512] * 32, 3, 4), ([6400], 5, 1), ([100], 5, 1), ([16_000], 5, 4)],
)
def test_chunks_are_long_if_there_is_one_for_every_team(
    sizes: list[int], team_bits: int, steps: int
) -> None:
    assert chunk_steps(sizes, team_bits) == steps


@pytest.mark.parametrize(
    ("sizes", "team_bits", "share"),
    [
        ([512] * 32, 5, 1),
        ([128] * 32, 5, 1 / 4),  # eight of 32 lanes
        ([128] * 32, 3, 1),
        ([128, 64] * 2, 3, 24 / 64),  # teams of both widths take turns
    ],
)
def test_lanes_that_are_used(sizes: list[int], team_bits: int, share: float) -> None:
    assert used_lanes(sizes, team_bits) == share


@example(list(range(0, 1024, 32)))
@given(st.lists(st.integers(0, 2000), min_size=1, max_size=32))
def test_wavefronts_are_the_words_of_the_busiest_bank(words: list[int]) -> None:
    by_bank = [{word for word in words if word % 32 == bank} for bank in range(32)]
    assert wavefronts(words) == max(map(len, by_bank))


def spans(outputs: int, width: int) -> list[tuple[int, int]]:
    return [(start, width) for start in range(0, outputs * width, width)]


@pytest.mark.parametrize(
    ("outputs", "width", "arrangement", "part", "found"),
    [
        # Lanes are four rows of 32 words apart, so all are in one bank unless padding moves them.
        (32, 4, Arrangement(128, None, 5), 4, 4 * 32),
        (32, 4, Arrangement(128, 2, 5), 4, 4 * 4),
        (32, 4, Arrangement(128, 2, 3), 4, 4),
        # An odd number of words puts rows into different banks.
        (33, 4, Arrangement(132, None, 5), 4, 4 * 4),
        # Whole vectors: a quarter of a warp covers eight rows, or two.
        (8, 16, Arrangement(128, None, 5), 16, 32),
        (8, 16, Arrangement(144, None, 5), 16, 4),
        (1, 512, Arrangement(512, None, 5), 16, 4),
    ],
)
def test_a_warp_waits_for_the_busiest_bank(
    outputs: int, width: int, arrangement: Arrangement, part: int, found: int
) -> None:
    assert vector_wavefronts(spans(outputs, width), arrangement, part) == found
