"""The cases: every one is a split with a name of its own."""

import numpy as np
import pytest

from benchmarks import cases, gpu
from benchmarks.cases import Case

ALL_CASES = [*cases.cpu_cases(False), *cases.latency_cases(), *gpu.workload_cases()]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_every_case_is_a_split(case: Case) -> None:
    assert sum(case.sizes) == case.shape[case.axis]
    moved = sum(np.prod(shape) for shape in case.output_shapes) * np.dtype(case.dtype).itemsize
    assert moved == case.total_bytes


def test_names_of_cases_are_unique() -> None:
    for group in (cases.cpu_cases(False), cases.latency_cases(), gpu.workload_cases()):
        assert len({case.name for case in group}) == len(group)
