"""No sum or product of a kernel wraps, whatever the sizes: a class checks its unsigned numbers.

Launches have up to 2^36 bytes, of which only the parts that some blocks touch are allocated.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlsplit.backends.cuda.specialization import Code
from tests.host_cuda import harness
from tests.proofs import adversary, forms
from tests.sass.launch import sampled
from tests.support import kernel_cases
from tests.support.kernel_cases import COMPILING, WRAPS, Case, tagged
from tests.support.kernel_splits import SMALL
from tests.support.large_splits import LARGE

BLOCKS = 12
MAX_BYTES = 1 << 36
CASES = tagged(WRAPS, LARGE)

pytestmark = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))


def run(*cases: Case, builds: Path) -> None:
    """Run some blocks of each launch, including the first and the last."""
    launches = [(case, launch) for case in cases for launch in case.launches]
    programs = harness.build(
        [kernel_launch.code.source for _, kernel_launch in launches], builds, harness.CHECKED
    )
    for case, launch in launches:
        programs[launch.code.source].run(
            launch.grid,
            launch.threads,
            case.empty_buffers(launch.outputs),
            sampled(launch.grid, BLOCKS),
            arguments=launch.argument_bytes,
        )


@pytest.mark.parametrize("name", CASES)
def test_no_number_of_a_large_launch_wraps(name: str, builds: Path) -> None:
    assert name.partition("_")[0] in CASES[name].kernels
    run(CASES[name], builds=builds)


# Mistakes that small splits do not show: the text of a kernel, and a wrong version of it.
MISTAKES = {
    "rows_beside_narrow_outputs": ("row < part.rows; row +=", "true; row +="),
    "rows_in_chunks": ("static_cast<U64>(chunk) * launch", "chunk * launch"),
    "tile_aligned": ("unsigned group, U64 tile", "unsigned group, unsigned tile"),
    "strided_far_units": (
        "first_item + kTile <= launch.counts[nest]",
        "first_item <= launch.counts[nest] - kTile",
    ),
    "transpose": ("tile.across >= kBefore &&", "tile.across - kBefore >= 0u &&"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_number_that_wraps_is_rejected(
    name: str, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = MISTAKES[name]
    assert any(right in launch.code.source for launch in CASES[name].launches)
    source = Code.source.func

    def mistaken(code: Code) -> str:
        return source(code).replace(right, wrong)

    monkeypatch.setattr(Code, "source", property(mistaken))
    with pytest.raises(harness.KernelFaultError, match="wraps at 32 bits: block"):
        run(CASES[name], builds=builds)


def near_power(draw: Random) -> int:
    return (1 << draw.randint(9, 33)) + draw.randint(-17, 17)


def phase(draw: Random) -> int:
    return draw.choice((0, draw.randint(0, 15)))


def large_packed(draw: Random) -> Case:
    """Rows and widths near powers of two, wide outputs beside narrow ones."""
    narrow = [draw.randint(1, 40) for _ in range(draw.randint(0, 6))]
    sizes = [near_power(draw) for _ in range(draw.randint(1, 3))] + narrow * draw.choice((1, 20))
    draw.shuffle(sizes)
    if draw.random() < 1 / 3:
        sizes = [*narrow, draw.randint(1, 600)]
    most = max(1, MAX_BYTES // sum(sizes))
    rows = min(most, draw.choice((draw.randint(1, 4), near_power(draw))))
    gap = draw.choice((0, 0, 0, 1, 1 << 16, (1 << 32) + 1))
    pitch = sum(sizes) + (gap if rows * gap < MAX_BYTES else 0)
    return Case(
        (rows, sum(sizes)), tuple(sizes), -1, 1, (pitch, 1), None, (phase(draw), phase(draw))
    )


def large_strided(draw: Random) -> Case:
    """Few dimensions in any order, some reversed, some with gaps."""
    long = min(near_power(draw), 1 << 31)
    shape = [long, *(draw.randint(1, 5) for _ in range(draw.randint(0, 2)))]
    draw.shuffle(shape)
    axis = shape.index(long)
    first = draw.choice((draw.randint(0, long), long // 2))
    strides = adversary.strides(draw, tuple(shape), 1 / 6)
    width = draw.choice((1, 1, 2, 4))
    return Case(
        tuple(shape), (first, long - first), axis, width, strides, None, (phase(draw) * width, 0)
    )


DRAWN = st.tuples(st.integers(0, 10**9), st.sampled_from([large_packed, large_strided]))


@pytest.mark.slow
@settings(COMPILING, max_examples=2)
@given(families=st.lists(DRAWN, min_size=25, max_size=25))
def test_no_number_of_a_random_large_launch_wraps(
    families: list[tuple[int, Callable[[Random], Case]]], builds: Path
) -> None:
    """Cases that are compiled together, because many have the same source."""
    run(*(family(Random(number)) for number, family in families), builds=builds)


@pytest.mark.slow
def test_no_number_of_a_small_launch_wraps(builds: Path) -> None:
    cases = [SMALL[name] for name in forms.distinct(SMALL)]
    kernel_cases.run_and_compare(cases, builds, harness.CHECKED)
