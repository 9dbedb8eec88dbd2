"""Modules of kernels: compiled once, loaded, unloaded, and captured before their first launch."""

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import cupy
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import modules
from tests.simulated_card import card
from tests.support.gpu_arrays import another_driver, bound, forget_programs, noise, same

COMPILE, LOAD, UNLOAD = "nvrtcCompileProgram", "cuModuleLoadData", "cuModuleUnload"
# Outputs of one element each: every number of outputs has its own kernel.
COUNTS = (40, 44, 48, 52, 56, 60)


def test_a_new_shape_compiles_nothing() -> None:
    dml.split(cupy.asarray(noise((64, 2000))), (700, 1300), 1)
    for rows in (65, 3, 1, 1000):
        source = cupy.asarray(noise((rows, 2000 + rows)))
        with card.calls() as recorded:
            pieces = dml.split(source, (701, 1299 + rows), 1)
        assert recorded.count(COMPILE) == 0
        assert same(source, pieces)


@pytest.fixture
def two_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver that keeps two modules loaded."""
    monkeypatch.setattr(modules, "MAX_MODULES", 2)
    with another_driver():
        yield


def problem(count: int) -> tuple[Any, list[Any]]:
    source = cupy.asarray(noise((64, count), "u4").view("f4"))
    return source, [cupy.zeros((64, 1), "f4") for _ in range(count)]


def test_unused_modules_are_unloaded_and_loaded_again_without_compiling(two_modules: None) -> None:
    with card.calls() as recorded:
        for count in COUNTS:
            source, outs = problem(count)
            bound(source, outs).dispatch()
            assert same(source, outs)
            loaded = card.log().count(LOAD) - card.log().count(UNLOAD)
    assert recorded.count(LOAD) == len(COUNTS)
    assert recorded.count(UNLOAD) >= len(COUNTS) - 2
    gc.collect()
    assert card.log().count(LOAD) - card.log().count(UNLOAD) == loaded
    source, outs = problem(COUNTS[0])
    with card.calls() as recorded:
        bound(source, outs).dispatch()
    assert recorded.count(LOAD) == 1
    assert recorded.count(COMPILE) == 0
    assert same(source, outs)


def test_a_bound_operator_keeps_its_kernel(two_modules: None) -> None:
    source, outs = problem(COUNTS[0])
    operator = bound(source, outs)
    for count in COUNTS[1:]:
        bound(*problem(count)).dispatch()
    with card.calls() as recorded:
        operator.dispatch()
    assert recorded.count(LOAD) == 0
    assert same(source, outs)


def test_a_captured_call_keeps_its_kernel(two_modules: None) -> None:
    """An eager call has no bound operator that could be kept with the graph."""
    source, outs = problem(COUNTS[0])
    dml.split(source, COUNTS[0], 1, out=outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        dml.split(source, COUNTS[0], 1, out=outs)
        graph = stream.end_capture()
    forget_programs()
    for count in COUNTS[1:]:
        bound(*problem(count)).dispatch()
    source.set(noise((64, COUNTS[0]), "u4", seed=1).view("f4"))
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert same(source, outs)


@pytest.mark.parametrize("how", ["bound", "eager"])
def test_a_launch_that_has_not_run_keeps_its_module(how: str, two_modules: None) -> None:
    source, outs = problem(COUNTS[0])
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        if how == "bound":
            bound(source, outs).dispatch()
        else:
            dml.split(source, COUNTS[0], 1, out=outs)
    forget_programs()
    unloaded = card.log().count(UNLOAD)
    for count in COUNTS[1:]:
        bound(*problem(count))
    assert card.log().count(UNLOAD) > unloaded
    cupy.cuda.Device().synchronize()
    assert same(source, outs)


@pytest.mark.parametrize("non_blocking", [True, False], ids=["non-blocking", "blocking"])
def test_nothing_is_unloaded_while_a_stream_is_captured(
    non_blocking: bool, two_modules: None
) -> None:
    """A relaxed capture allows loading modules, but waiting for the device would end it."""
    source, outs = problem(COUNTS[0])
    operator = bound(source, outs)
    others = [problem(count) for count in COUNTS[1:]]
    stream = cupy.cuda.Stream(non_blocking=non_blocking)
    cupy.cuda.Device().synchronize()
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
    with stream if non_blocking else nullcontext(), card.calls() as recorded:
        for other in others:
            bound(*other)
    with stream:
        operator.dispatch()
        graph = stream.end_capture()
    assert (recorded.count(LOAD), recorded.count(UNLOAD)) == (len(others), 0)
    graph.launch(stream)
    stream.synchronize()
    assert same(source, outs)
    with card.calls() as recorded:
        bound(*problem(8))
    assert recorded.count(UNLOAD) >= len(COUNTS) - 2


@pytest.mark.parametrize("how", ["bound", "op.dispatch"])
def test_a_split_may_be_captured_before_its_first_launch(how: str, two_modules: None) -> None:
    """The card loads code lazily, which a capture forbids, so compiling must already load it."""
    source, outs = problem(COUNTS[0])
    operator = bound(source, outs)
    x, sizes = dml.TensorDesc("FLOAT32", source.shape), (1,) * COUNTS[0]
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=sizes))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        if how == "bound":
            operator.dispatch()
        else:
            op.dispatch(source, outs)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert same(source, outs)
