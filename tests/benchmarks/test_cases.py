"""The cases: each is a split with a unique name."""

from math import prod

import numpy as np
import pytest

from benchmarks import cases
from benchmarks.cases import Case
from benchmarks.workloads import WORKLOADS, scaled

GROUPS = [cases.cpu_cases(False), cases.latency_cases(), [*WORKLOADS]]


@pytest.mark.parametrize("group", GROUPS, ids=["cpu", "latency", "gpu"])
def test_every_case_is_a_split_with_a_unique_name(group: list[Case]) -> None:
    assert len({case.name for case in group}) == len(group)
    for case in group:
        assert sum(case.sizes) == case.shape[case.axis], case.name
        output_bytes = (
            sum(np.prod(shape) for shape in case.output_shapes) * np.dtype(case.dtype).itemsize
        )
        assert output_bytes == case.total_bytes, case.name


BY_NUMBER = {case.name.split()[0]: case for case in WORKLOADS}


def test_a_packed_workload_reads_and_moves_the_bytes_of_its_outputs() -> None:
    for case in WORKLOADS:
        if case.strides is None:
            assert case.span_bytes == case.read_bytes == case.moved_bytes == case.total_bytes


def test_a_transposed_workload_reads_each_byte_once() -> None:
    assert BY_NUMBER["26"].read_bytes == BY_NUMBER["26"].total_bytes


@pytest.mark.parametrize("number", ["31", "32"])
def test_a_workload_of_every_second_element_reads_the_bytes_between_too(number: str) -> None:
    """A copy reads and writes; what is moved is the mean of both."""
    case = BY_NUMBER[number]
    assert case.strides is not None
    assert case.read_bytes == pytest.approx(2 * case.total_bytes, abs=4)  # but for the last gap
    assert case.moved_bytes == pytest.approx(1.5 * case.total_bytes, abs=4)


def test_a_case_with_strides_spans_its_gaps_and_reads_only_elements_that_are_far_apart() -> None:
    strides = 1 << 20, 100
    far = Case("far", cases.CASES, (8, 100), "u1", 1, (50, 50), strides=strides)
    assert far.span_bytes == 7 * strides[0] + 99 * strides[1] + 1
    assert far.read_bytes == 8 * 100


@pytest.mark.parametrize("joined_axis", [0, 1, 2])
def test_the_outputs_of_joined_cases_are_views_of_one_tensor(joined_axis: int) -> None:
    case = Case("joined", cases.CASES, (4, 3, 6, 2), "u2", 2, (1, 2, 3), joined_at=joined_axis)
    tensor = np.zeros(case.shape, case.dtype)
    parts = case.parts(tensor)
    for number, part in enumerate(parts):
        part[...] = number
    assert [part.strides for part in parts] == case.output_strides
    assert [part.ctypes.data - tensor.ctypes.data for part in parts] == case.output_starts
    rows = tensor.reshape(-1, prod(case.shape[joined_axis:]))
    assert (np.diff(rows.astype(int)) >= 0).all()
    assert np.bincount(tensor.ravel()).tolist() == [4 * 3 * size * 2 for size in (1, 2, 3)]
    # Of two bytes each, the outputs begin after 24 and 72 elements, or after 6 and 18, or 2 and 6.
    assert case.alignments == (16, {0: 16, 1: 4, 2: 4}[joined_axis])


def test_alignments_follow_from_misaligned_addresses() -> None:
    alignments = {case.name[:2]: case.alignments for case in WORKLOADS}
    misaligned = {number: alignments[number] for number in ("35", "39", "40", "41")}
    assert misaligned == {"35": (2, 2), "39": (1, 16), "40": (16, 4), "41": (8, 16)}
    assert Case("even", cases.CASES, (4,), "u1", 0, (4,), misaligned=(0, 12)).alignments == (16, 4)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_scaled_workloads_keep_their_columns(workload: Case) -> None:
    small = scaled(workload, 1 << 20)
    assert small.shape[workload.axis :] == workload.shape[workload.axis :]
    rows = prod(workload.shape[: workload.axis])
    if workload.at != 26:  # transposed: its rows are interleaved
        assert small.total_bytes <= max(1 << 21, workload.total_bytes // rows)
    assert min(small.shape) >= 1
