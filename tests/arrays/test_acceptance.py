"""The check of arrays, in one place: which fields must fit, and which outputs overlap."""

import gc
import time

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import dmlsplit as dml
from dmlsplit.arrays import view
from dmlsplit.arrays.acceptance import (
    Mismatch,
    accept_outputs,
    check_output_arrays,
    fits_exactly,
    mismatches,
)
from dmlsplit.arrays.adapter import Requirement
from dmlsplit.arrays.array_view import share_memory
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution.in_memory import requirements


def test_only_outputs_that_are_not_packed_bring_strides_of_their_own() -> None:
    source, first, second = np.zeros(6), np.zeros(2), np.zeros(4)
    requirement_list = requirements(view(source, "array"), 0, (2, 4))
    accepted = accept_outputs([first, second], view(source, "array"), requirement_list)
    assert accepted == ([first.ctypes.data, second.ctypes.data], None)
    assert fits_exactly(view(first, "out"), requirement_list[0])
    strided = np.zeros(8)[::2]
    accepted = accept_outputs([first, strided], view(source, "array"), requirement_list)
    assert accepted == ([first.ctypes.data, strided.ctypes.data], ((8,), (16,)))


SOURCE = np.zeros(6)


@pytest.mark.parametrize(
    ("wrong_output", "text"),
    [
        (np.zeros(3), "shape"),
        (np.zeros(4, "f4"), "type"),
        (np.frombuffer(bytes(32)), "read-only"),
        (SOURCE[:4], "memory"),
    ],
    ids=["shape", "type", "read-only", "memory of the input"],
)
def test_an_output_that_does_not_fit_is_refused(wrong_output: np.ndarray, text: str) -> None:
    requirement_list = requirements(view(SOURCE, "array"), 0, (2, 4))
    with pytest.raises(InvalidArgumentError, match=text):
        accept_outputs([np.zeros(2), wrong_output], view(SOURCE, "array"), requirement_list)


def test_every_field_that_differs_from_the_requirement_is_named() -> None:
    array, strided = (
        view(memory, "out") for memory in (np.zeros(2), np.frombuffer(bytes(32))[::2])
    )
    requirement = Requirement(*array[2:])
    assert list(mismatches(strided, requirement)) == [
        Mismatch("read_only", True, False),
        Mismatch("strides", (16,), (8,)),
    ]


def test_disjoint_outputs_are_checked_in_linear_time() -> None:
    def seconds(count: int) -> float:
        views = [view(row, "out") for row in np.zeros((count, 8))]
        requirement_list = [Requirement(*array_view[2:]) for array_view in views]
        gc.disable()  # it would walk through all that the other tests keep
        begin = time.thread_time()
        try:
            check_output_arrays(views, views[0]._replace(address=0), requirement_list)
        finally:
            gc.enable()
        return time.thread_time() - begin

    few, many = (min(seconds(count) for _ in range(3)) for count in (500, 8000))
    assert many < 64 * few  # 16 times the outputs, 256 times the pairs


def test_outputs_whose_overlap_takes_too_long_to_decide_count_as_overlapping() -> None:
    """NumPy's answer may take exponential time; for these two, an example of the documentation of
    numpy.shares_memory, it takes some seconds.
    """
    cubes = [
        np.lib.stride_tricks.as_strided(np.zeros(1, "i1"), (1049,) * 3, strides)
        for strides in ((36674, 61119, 85569), (12223, 12224, 1))
    ]
    first_view, second_view = (view(cube, "out")._replace(address=1 << 40) for cube in cubes)
    assert share_memory(first_view, second_view._replace(address=second_view.address + 64_023_025))


@pytest.mark.parametrize("stride", [1, 4, 7, 12, -4])
def test_elements_of_an_output_may_not_share_bytes(stride: int) -> None:
    memory = np.zeros(64, "u1")[16 * (stride < 0) :]
    output = as_strided(memory[: memory.size // 8 * 8].view("f8"), (4,), (abs(stride),))
    output = output[::-1] if stride < 0 else output
    if stride == 12:  # apart, although 12 is not a multiple of 8
        dml.split(np.arange(4.0), 1, out=[output])
        assert output.tolist() == [0, 1, 2, 3]
    else:
        with pytest.raises(dml.InvalidArgumentError, match="must not overlap"):
            dml.split(np.arange(4.0), 1, out=[output])
