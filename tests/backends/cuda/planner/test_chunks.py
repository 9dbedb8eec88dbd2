"""How the vectors of a tile are dealt out to teams of threads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.planner.chunks import chunk_steps, dealt, used_lanes

SIZES = st.lists(st.integers(1, 20_000), min_size=1, max_size=30)


@given(SIZES, st.sampled_from([128, 256, 2048]), st.sampled_from([0, 12, 15]))
def test_every_vector_is_in_one_chunk(sizes: list[int], chunk_bytes: int, lead: int) -> None:
    found = list(dealt(sizes, chunk_bytes, lead))
    assert len(set(found)) == len(found)
    for output, size in enumerate(sizes):
        begins = sorted(begin for owner, begin in found if owner == output)
        assert begins == list(range(0, size + lead, chunk_bytes))


def test_neighbouring_teams_take_outputs_of_one_width() -> None:
    assert list(dealt([64, 512, 64, 512], 256)) == [
        (1, 0),
        (3, 0),
        (0, 0),
        (2, 0),
        (1, 256),
        (3, 256),
    ]


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
