"""Kernels: loaded once, by whichever thread comes first, never unloaded, and before a capture."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import cupy
import pytest

import dmlsplit as dml
from tests.simulated_card import card
from tests.support import nvrtc
from tests.support.gpu_arrays import another_driver, bound, forget_programs, is_split_into, noise

COMPILE, LOAD, UNLOAD = "nvrtcCompileProgram", "cuModuleLoadData", "cuModuleUnload"
SIZES = (701, 1299)


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    """Start with no kernel loaded."""
    with another_driver():
        yield


def problem() -> tuple[Any, list[Any]]:
    source = cupy.asarray(noise((64, 2000), "u4").view("f4"))
    return source, [cupy.zeros((64, size), "f4") for size in SIZES]


def test_a_new_shape_loads_and_compiles_nothing() -> None:
    dml.split(cupy.asarray(noise((64, 2000))), (700, 1300), 1)
    for rows in (65, 3, 1, 1000):
        source = cupy.asarray(noise((rows, 2000 + rows)))
        with card.calls() as cuda_calls:
            pieces = dml.split(source, (701, 1299 + rows), 1)
        assert not {COMPILE, LOAD} & set(cuda_calls)
        assert is_split_into(source, pieces)


@pytest.mark.parametrize("start", [0, 1])
def test_a_first_call_loads_two_kernels_on_each_device(start: int) -> None:
    """One is for a single row, so that no other number of rows waits for the compiler."""
    for number in range(2):
        with cupy.cuda.Device(number):
            memory = cupy.asarray(noise((4 * 2304 + start,), "f2"))
            source = memory[start:].reshape(4, 2304)
        with card.calls() as cuda_calls:
            dml.split(source, (1024, 768, 512), 1)
        assert cuda_calls.count(LOAD) == 2
        with card.calls() as cuda_calls:
            dml.split(source[:1], (1024, 768, 512), 1)
        assert cuda_calls.count(LOAD) == 0


def test_threads_that_need_a_new_kernel_load_it_once() -> None:
    """CuPy alone loads it in each thread and unloads all but one of the modules."""
    start, (source, _) = Barrier(4), problem()
    cupy.cuda.Device().synchronize()

    def work(_: int) -> bool:
        start.wait()
        pieces = dml.split(source, SIZES, 1)
        cupy.cuda.get_current_stream().synchronize()
        return is_split_into(source, pieces)

    with card.calls() as cuda_calls, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert cuda_calls.count(LOAD) == 2
    assert cuda_calls.count(UNLOAD) == 0


def test_a_graph_outlives_the_call_that_it_captured() -> None:
    """No object is kept with the graph, and a program may clear CuPy's own cache of kernels."""
    source, outs = problem()
    dml.split(source, SIZES, 1, out=outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        dml.split(source, SIZES, 1, out=outs)
        graph = stream.end_capture()
    forget_programs()
    with card.calls() as cuda_calls:
        cupy.clear_memo()
        dml.split(*problem()[:1], SIZES, 1)
    assert not {LOAD, UNLOAD} & set(cuda_calls)
    source.set(noise((64, 2000), "u4", seed=1).view("f4"))
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert is_split_into(source, outs)


@pytest.mark.parametrize("form", ["bound", "op.dispatch"])
def test_a_split_may_be_captured_before_its_first_launch(form: str) -> None:
    """The card loads code lazily, which a capture forbids, so compiling must already load it."""
    source, outs = problem()
    operator = bound(source, outs)
    x = dml.TensorDesc("FLOAT32", source.shape)
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=SIZES))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        if form == "bound":
            operator.dispatch()
        else:
            op.dispatch(source, outs)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert is_split_into(source, outs)


def test_a_split_beside_a_capture_of_another_thread_leaves_the_capture_valid() -> None:
    """A kernel that is loaded already is neither loaded nor unloaded by a later split."""
    source, outs = problem()
    dml.split(source, SIZES, 1)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        bound(source, outs).dispatch()
    with ThreadPoolExecutor(1) as pool, cupy.cuda.Stream(non_blocking=True):
        pool.submit(dml.split, source, SIZES, 1, out=outs).result()
    with stream:
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert is_split_into(source, outs)


def test_cupy_compiles_with_the_options_of_the_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, compile_options = cupy.cuda.compiler.nvrtc, list[str]()
    compile_unchanged = compiler.compileProgram

    def compile_program(program: int, options: tuple[str, ...]) -> None:
        compile_options[:] = options
        compile_unchanged(program, options)

    monkeypatch.setattr(compiler, "compileProgram", compile_program)
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    dml.split(problem()[0], SIZES, 1)
    assert {option for option in compile_options if not option.startswith("-I")} == {
        "-arch=sm_90", *nvrtc.OPTIONS
    }  # fmt: skip
