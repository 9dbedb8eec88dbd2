"""The formula that turns instructions into a fraction of a copy's speed."""

import pytest

from benchmarks import prediction
from benchmarks.prediction import GPUS, Gpu

H100, H200, B200 = GPUS


def fraction(gpu: Gpu, issue: float, **busy: float) -> float:
    others = {"alu": 0.0, "imad": 0.0, "wavefronts": 8.0, "sectors": 16.0}
    return prediction.fraction(gpu, issue=issue, **others | busy)


def test_clocks_of_a_copy() -> None:
    """512 bytes are read and written, at 3.0, 4.3 and 6.9 TB/s in total, on 132 or 148 SMs."""
    found = [round(gpu.copy_clocks, 1) for gpu in GPUS]
    assert found == [76.6, 53.4, 40.6]


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_the_copy_itself_runs_at_its_speed(gpu: Gpu) -> None:
    assert fraction(gpu, 16) == 1
    assert fraction(gpu, 12) == 1, "and nothing runs faster"


def test_each_instruction_costs_the_same() -> None:
    assert fraction(H200, 47) == pytest.approx(0.938, abs=0.001)
    assert fraction(H100, 47) == pytest.approx(0.956, abs=0.001)
    assert fraction(H200, 230) == pytest.approx(0.687, abs=0.001)


def test_a_sector_costs_as_much_as_an_instruction() -> None:
    assert fraction(H200, 16, sectors=47) == fraction(H200, 47)
    assert fraction(H200, 16, sectors=15) == 1, "and what is not read saves nothing"


def test_what_has_to_be_read_is_part_of_the_copy() -> None:
    """Every second element: a copy of one and a half times the bytes does as much."""
    assert fraction(H200, 24, sectors=24, work=1.5) == 1
    extra = 0.114 * (4 + 40)
    assert fraction(H200, 28, sectors=64, work=1.5) == pytest.approx(
        80.2 / (80.2 + extra), abs=0.001
    )


def test_a_unit_that_is_busier_than_the_memory_decides() -> None:
    assert fraction(H200, 40, wavefronts=80) == pytest.approx(53.4 / 80, abs=0.001)
    assert fraction(H200, 200, alu=160) == pytest.approx(53.4 / 80, abs=0.001)
    assert fraction(B200, 400) == pytest.approx(40.6 / 100, abs=0.001)


def test_it_was_calibrated_on_two_transposes() -> None:
    """137 and 74 instructions: 75.4 % and 82.8 % of a GH200's memory speed (pytorch#194310).

    The formula turns the difference in instructions into the difference in time, at the memory's
    speed of 4 TB/s and 1.7 GHz.
    """
    gh200 = Gpu("GH200", 132, 1.7, 4.0)
    assert fraction(gh200, 137) / fraction(gh200, 74) == pytest.approx(75.4 / 82.8, abs=0.02)
