"""What every launch is made with."""

from math import prod

from dmlsplit.backends.cuda.launch import power_of_two


def test_power_of_two() -> None:
    assert power_of_two(16, 48, 80) == 16
    assert power_of_two(16, 6, 0) == 2
    assert power_of_two(4, 16) == 4
    assert power_of_two(16, -8) == 8
    assert prod([power_of_two(16)]) == 16
