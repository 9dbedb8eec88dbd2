"""The adversary's splits are planned, run on the processor, and run as machine code."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.self_test.cases import cases as self_test_cases
from tests.host_cuda import harness
from tests.proofs import adversary
from tests.sass import cases
from tests.support import kernel_cases, nvrtc
from tests.support.kernel_cases import Case, each_toolchain
from tests.support.kernel_splits import SMALL, of_self_test

# Numbers of cases that found mistakes.
ROWS_TO_4_GIB = 510  # `rows` wrapped the ends of rows at 2^32 bytes
FAR_ROWS = 2117  # plans for `tile` had too large a divisor for a pitch beyond 2^31 vectors
TINY_OUTPUTS = 977  # in one row; `tile` filled up their last vectors with bytes after the tile
# As before, but the bytes after the tile were also after the shared memory.
TILE_THAT_FILLS_SHARED_MEMORY = Case((1, 62 * 511 + 20), (511,) * 62 + (1,) * 20)
# Its last chunk exists only because the first vector of an output begins before it.
CHUNK_FOR_A_LEAD = 117


class Sweep(NamedTuple):
    """Which numbers a test runs, and how many of them run as one test."""

    always: list[Sequence[int]]  # each entry as one test, without --slow too
    chunk: int  # with --slow, this many numbers run as one test
    factor: int  # with --slow, numbers up to this many times --adversary run


SWEEPS = {
    "test_a_plan_copies_every_byte_once": Sweep(
        [range(30), [FAR_ROWS], [CHUNK_FOR_A_LEAD]], chunk=100, factor=10
    ),
    "test_machine_code_stores_every_byte_once": Sweep(
        [[0], [1], [2], [ROWS_TO_4_GIB]], chunk=1, factor=1
    ),
    "test_kernels_on_the_cpu_copy_every_byte_once": Sweep([range(20)], chunk=100, factor=2),
}

needs_nvrtc = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))
needs_gcc = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test its numbers, and with --slow as many more as --adversary asks for."""
    if "numbers" in metafunc.fixturenames:
        sweep = SWEEPS[metafunc.function.__name__]
        end = metafunc.config.getoption("--adversary") * sweep.factor
        chunks = (
            range(first, min(first + sweep.chunk, end)) for first in range(0, end, sweep.chunk)
        )
        slow = [
            pytest.param(chunk, marks=pytest.mark.slow, id=f"from {chunk[0]}") for chunk in chunks
        ]
        always = [pytest.param(numbers, id=str(numbers[0])) for numbers in sweep.always]
        metafunc.parametrize("numbers", always + slow)


def test_a_plan_copies_every_byte_once(numbers: Sequence[int]) -> None:
    for number in numbers:
        adversary.check_plan(adversary.case(number))


def test_plans_of_the_self_test_copy_every_byte_once() -> None:
    for case in self_test_cases(H200.limits):
        adversary.check_plan(of_self_test(case))


@pytest.mark.parametrize(
    ("kernel", "name"),
    [("rows", "qkv"), ("tile", "head_85"), ("transpose", "transposed"), ("strided", "backwards")],
)
def test_a_plan_with_one_block_too_many_is_rejected(kernel: str, name: str) -> None:
    case = SMALL[name]
    assert case.kernels == {kernel}
    adversary.check_plan(case)  # as planned, it passes
    one_more = [launch._replace(grid=launch.grid + 1) for launch in case.launches]
    with pytest.raises(AssertionError):
        adversary.check_plan(kernel_cases.with_launches(case, one_more))


def test_a_plan_without_one_of_its_launches_is_rejected() -> None:
    case = SMALL["columns_700_small_parameters"]
    with pytest.raises(AssertionError):
        adversary.check_plan(kernel_cases.with_launches(case, case.launches[1:]))


@needs_nvrtc
def test_machine_code_stores_every_byte_once(numbers: Sequence[int], builds: Path) -> None:
    for number in numbers:
        cases.run_and_check_stores(adversary.case(number), builds, adversary.borders)


@needs_gcc
@each_toolchain
def test_kernels_on_the_cpu_copy_every_byte_once(
    numbers: Sequence[int], builds: Path, toolchain: harness.Toolchain
) -> None:
    random_cases = map(adversary.case, numbers)
    fitting = [case for case in random_cases if adversary.fits_host(case)]
    kernel_cases.run_and_compare(fitting, builds, toolchain)


@needs_gcc
@each_toolchain
def test_the_last_vector_of_an_output_reads_no_byte_after_the_tile(
    builds: Path, toolchain: harness.Toolchain
) -> None:
    kernel_cases.run_and_compare(
        [adversary.case(TINY_OUTPUTS), TILE_THAT_FILLS_SHARED_MEMORY],
        builds,
        toolchain,
    )


@needs_nvrtc
def test_machine_code_stays_in_its_shared_memory(builds: Path) -> None:
    cases.run_and_check_stores(TILE_THAT_FILLS_SHARED_MEMORY, builds)
