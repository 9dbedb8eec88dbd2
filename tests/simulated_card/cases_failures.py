"""CUDA's errors pass through the real CuPy and become the library's own."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.specialization import Code
from tests.simulated_card import card
from tests.support.command import ran
from tests.support.gpu_arrays import (
    Interface,
    another_driver,
    bound,
    compiled_split,
    is_split_into,
    noise,
    source_and_outputs,
)

LAUNCHES = {
    719: (dml.DeviceRemovedError, "cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED"),
    700: (dml.DeviceRemovedError, "ILLEGAL_ADDRESS"),
    46: (dml.DeviceRemovedError, "start a new process"),
    101: (dml.DeviceRemovedError, "is gone or has failed"),
    98: (dml.DmlError, "the launch failed on cuda:0: "),
    2: (dml.OutOfMemoryError, r"the launch failed on cuda:0: \d+ of \d+ bytes are free"),
    400: (dml.InvalidArgumentError, "a stream of this device that still exists"),
    908: (dml.InvalidArgumentError, "make this call before the capture begins"),
    1: (dml.DmlError, "the launch failed on cuda:0: CUDA_ERROR_INVALID_VALUE"),
    3: (dml.DmlError, "CUDA_ERROR_NOT_INITIALIZED.*Fix: start processes with spawn"),
}


@pytest.mark.parametrize("status", LAUNCHES)
def test_a_failed_launch_raises_an_error_and_the_next_launch_works(status: int) -> None:
    kind, message = LAUNCHES[status]
    source, outs = source_and_outputs()
    split = bound(source, outs)
    card.fail("cuLaunchKernel", status)
    with pytest.raises(dml.DmlError, match=message) as failure:
        split.dispatch()
    assert type(failure.value) is kind
    assert not any(out.get().any() for out in outs)
    split.dispatch()
    assert is_split_into(source, outs)


def compiled(source: Any) -> dml.CompiledOperator:
    return compiled_split(source.shape, (100, 200))


def foreign(array: Any) -> Interface:
    """An array of another library with pending work on a stream."""
    return Interface(array, stream=1)


# Each is one public call after the device is lost.
CALLS: dict[str, Callable[[Any, list[Any], dml.BoundOperator], object]] = {
    "dispatch": lambda source, outs, split: split.dispatch(),
    "dispatch on a stream": lambda source, outs, split: split.dispatch(0),
    "call": lambda source, outs, split: compiled(source)(source),
    "call on a stream": lambda source, outs, split: compiled(source)(source, stream=0),
    "split": lambda source, outs, split: dml.split(source, (100, 200), 1),
    "split into": lambda source, outs, split: dml.split(source, (100, 200), 1, out=outs),
    "split of a new shape": lambda source, outs, split: dml.split(source, (99, 201), 1, outs),
    "foreign array": lambda source, outs, split: dml.split(foreign(source), (100, 200), 1),
    "foreign binding": lambda source, outs, split: compiled(source).bind(foreign(source), outs),
    "upload": lambda *_: driver.load().upload(0, np.zeros(1 << 16)),
    "download": lambda source, *_: driver.load().download(0, source),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_lost_device_is_reported_by_every_call(call: str) -> None:
    source, outs = source_and_outputs()
    if call == "split of a new shape":
        outs = [cupy.zeros((512, 99), "f4"), cupy.zeros((512, 201), "f4")]
    dispatched = bound(source, outs) if call != "split of a new shape" else None
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.cuda.Device().synchronize()
    card.break_device(0, 46)
    with pytest.raises(dml.DeviceRemovedError, match=r"is gone.*start a new process"):
        CALLS[call](source, outs, dispatched)


@pytest.mark.parametrize("function", ["cudaDeviceGetAttribute", "cudaGetDevice"])
def test_a_device_that_answers_no_question_is_lost(function: str) -> None:
    source = cupy.asarray(noise((77, 31)))
    array = foreign(source)
    with another_driver():
        card.fail(function, 999)
        with pytest.raises(dml.DeviceRemovedError, match=r"is gone.*start a new process"):
            dml.split(array, (11, 20), 1)
        card.forget_failures()
        assert is_split_into(source, dml.split(source, (11, 20), 1))


def test_a_number_that_is_no_stream_leaves_the_current_stream_as_it_was() -> None:
    source, outs = source_and_outputs()
    split = bound(source, outs)
    with pytest.raises(dml.InvalidArgumentError, match="a CUDA stream's handle"):
        split.dispatch(2**63)
    split.dispatch(cupy.cuda.Stream())
    assert is_split_into(source, outs)


def test_the_error_of_an_upload_without_enough_memory_has_the_needed_bytes() -> None:
    card.set_memory_limit(0, card.memory_used(0))
    cupy.get_default_memory_pool().free_all_blocks()
    with pytest.raises(dml.OutOfMemoryError, match=r"134217728 bytes are needed, \d+ of \d+"):
        driver.load().upload(0, np.zeros(1 << 24))


LOADS = {
    209: (dml.DmlError, r"kernel tile cannot be loaded on cuda:0: .*NO_BINARY_FOR_GPU"),
    2: (dml.OutOfMemoryError, r"kernel tile cannot be loaded on cuda:0: \d+ of \d+ bytes are free"),
    901: (dml.InvalidArgumentError, "make this call before the capture begins"),
}


@pytest.mark.parametrize("status", LOADS)
@pytest.mark.parametrize("function", ["cuModuleLoadData", "cuFuncGetAttribute"])
def test_a_kernel_that_cannot_be_loaded_is_an_error_and_the_next_call_loads_it(
    function: str, status: int
) -> None:
    kind, message = LOADS[status]
    source = cupy.asarray(noise((77, 31)))
    with another_driver():
        card.fail(function, status)
        with pytest.raises(dml.DmlError, match=message) as failure:
            dml.split(source, (11, 20), 1)
        assert type(failure.value) is kind
        assert is_split_into(source, dml.split(source, (11, 20), 1))


def test_a_kernel_that_does_not_compile_shows_the_compilers_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Code.source.func

    def wrong(code: Code) -> str:
        return right(code).replace("threadIdx.x", "threadIdx.no_such_member")

    monkeypatch.setattr(Code, "source", property(wrong))
    source = cupy.asarray(noise((78, 31)))
    with pytest.raises(dml.DmlError, match="no_such_member") as failure:
        dml.split(source, (11, 20), 1)
    assert "kernel " in str(failure.value)
    assert "NVRTC says" in str(failure.value)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    text = (
        "from tests.simulated_card import card; card.load(); import cupy, dmlsplit as dml;"
        "import numpy as np; array = np.arange(3000, dtype='u1').reshape(30, 100);"
        "found = dml.split(cupy.asarray(array), (30, 70), 1);"
        "assert (found[1].get() == array[:, 30:]).all();"
        "print(card.log().count('nvrtcCompileProgram'))"
    )
    line = (sys.executable, "-W", "ignore", "-c", text)
    cache = {"CUPY_CACHE_DIR": str(tmp_path)}
    counts = [ran(*line, env=cache, check=True).stdout for _ in range(2)]
    # Rows of 100 bytes take `tile`, which has one specialization for all numbers of rows.
    assert counts == ["1\n", "0\n"]


def test_a_cache_folder_that_cannot_be_written_is_an_error_that_names_its_variable(
    tmp_path: Path,
) -> None:
    """CuPy reports the folder only when it has compiled a kernel. A folder that is gone cannot be
    written even by root.
    """
    text = (
        "from tests.simulated_card import card; card.load(); import os, cupy, dmlsplit as dml;"
        "os.rmdir(os.environ['CUPY_CACHE_DIR']); array = cupy.zeros((30, 100), 'u1')\n"
        "try: dml.split(array, (30, 70), 1)\n"
        "except dml.UnsupportedError as error: print(error)"
    )
    folder = {"CUPY_CACHE_DIR": str(tmp_path / "kernels")}
    process = ran(sys.executable, "-W", "ignore", "-c", text, env=folder)
    assert "CuPy cannot write kernel tile to its cache: [Errno 2]" in process.stdout, process.stderr
    assert "Fix: set CUPY_CACHE_DIR to a folder that can be written" in process.stdout
    memory = {**folder, "CUPY_CACHE_IN_MEMORY": "1"}
    assert ran(sys.executable, "-W", "ignore", "-c", text, env=memory, check=True).stdout == ""
