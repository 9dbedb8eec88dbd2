"""The CUDA calls of a bound dispatch, one by one, with the real CuPy."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.geometry import split_geometry
from tests.simulated_card import card
from tests.support.gpu_arrays import bound, noise, operator, problem, public_launch, same

LAUNCH, SET = "cuLaunchKernel", "cudaSetDevice"


def calls_of(work: Callable[[], object]) -> list[str]:
    """The CUDA calls of `work`, without cudaGetDevice, which only reads a number of the thread."""
    with card.calls() as recorded:
        work()
    return [name for name in recorded if name != "cudaGetDevice"]


def many_outputs(count: int) -> tuple[Any, list[Any]]:
    return cupy.asarray(noise((count, 3), "u4").view("f4")), [
        cupy.zeros((1, 3), "f4") for _ in range(count)
    ]


def bound_rows(source: Any, outs: list[Any], device: str = "cuda:0") -> dml.BoundOperator:
    return bound(source, outs, 0, device)


def test_a_dispatch_is_one_launch_and_nothing_else() -> None:
    source, outs = problem()
    split = bound(source, outs)
    for _ in range(3):
        assert calls_of(split.dispatch) == [LAUNCH]
    assert same(source, outs)


def test_the_number_of_launches_is_as_planned() -> None:
    source, outs = many_outputs(9000)
    split = bound_rows(source, outs)
    geometry = split_geometry(source.shape, 0, [1] * 9000, 4, source.strides, [None] * 9000)
    planned = len(plan(geometry, 16, 16, H200.limits))
    assert planned > 2
    assert calls_of(split.dispatch) == [LAUNCH] * planned
    found = np.concatenate([out.get() for out in outs])
    assert found.tobytes() == source.get().tobytes()


@pytest.mark.parametrize(
    "number", [0, 1, 2, None], ids=["null", "legacy", "per thread", "new stream"]
)
def test_a_launch_is_queued_on_the_given_stream(number: int | None) -> None:
    """The default streams have their documented numbers."""
    own, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    stream = {0: cupy.cuda.Stream.null, 1: cupy.cuda.Stream.null, 2: cupy.cuda.Stream.ptds}
    waited, given = stream.get(number, own), own if number is None else number
    source, outs = problem()
    split = bound(source, outs)
    cupy.cuda.Device().synchronize()
    assert calls_of(lambda: split.dispatch(given)) == [LAUNCH]
    other.synchronize()
    assert card.pending() == 1
    waited.synchronize()
    assert card.pending() == 0
    assert same(source, outs)
    (found,) = operator(source.shape, source.shape[:1], 0)(source, stream=given)
    waited.synchronize()
    assert found.get().tobytes() == source.get().tobytes()


def test_a_bound_operator_keeps_its_buffers_alive() -> None:
    with cupy.cuda.using_allocator(None):
        source, outs = problem()
        split = bound(source, outs)
        before = card.memory_used(0)
        del source, outs
        gc.collect()
        assert card.memory_used(0) == before
        split.dispatch()
        cupy.cuda.Device().synchronize()  # Freed memory would break the device.
        del split
        gc.collect()
        assert card.memory_used(0) < before


def test_a_capture_holds_one_launch_that_every_replay_repeats() -> None:
    source, outs = problem()
    split = bound(source, outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        assert calls_of(split.dispatch) == [LAUNCH]
        graph = stream.end_capture()
    assert card.pending() == 0
    assert not any(out.get().any() for out in outs)
    for seed in (1, 2):
        source.set(noise(source.shape, "u4", seed=seed).view("f4"))
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert same(source, outs)


def test_a_launch_makes_the_device_current_in_a_thread_without_a_context() -> None:
    source, outs = problem()
    split = bound(source, outs)
    split.dispatch()
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(calls_of, split.dispatch).result()
    # The first launch is refused (201), and only then is the device made current.
    assert seen.count(LAUNCH) == 2
    assert seen.index(LAUNCH) < seen.index(SET)
    assert not {"cudaMalloc", "cudaStreamSynchronize", "cudaMemcpyAsync"} & set(seen)
    assert same(source, outs)


def test_another_device_is_current_only_during_the_launch() -> None:
    with cupy.cuda.Device(1):
        source, outs = many_outputs(3)
        split = bound_rows(source, outs, "cuda:1")
    assert cupy.cuda.runtime.getDevice() == 0
    names = calls_of(split.dispatch)
    assert names.count(LAUNCH) == 1
    assert set(names) <= {SET, LAUNCH}
    assert cupy.cuda.runtime.getDevice() == 0
    with cupy.cuda.Device(1):
        cupy.cuda.Device(1).synchronize()
        found = np.concatenate([out.get() for out in outs])
        assert found.tobytes() == source.get().tobytes()


def test_arrays_of_another_device_are_refused() -> None:
    source, outs = many_outputs(3)
    with pytest.raises(dml.InvalidArgumentError, match=r"cuda:0.*cuda:1"):
        bound_rows(source, outs, "cuda:1")
    with cupy.cuda.Device(1):
        strange = cupy.cuda.Stream()
    with pytest.raises(dml.InvalidArgumentError, match="stream belongs to cuda:1"):
        bound_rows(source, outs).dispatch(strange)


def test_a_handle_of_another_devices_stream_is_refused_by_cuda() -> None:
    source, outs = many_outputs(3)
    with cupy.cuda.Device(1):
        strange = cupy.cuda.Stream()
    with pytest.raises(dml.InvalidArgumentError, match="use a stream of this device"):
        bound_rows(source, outs).dispatch(strange.ptr)


def test_cupys_public_launch_also_queues_one_launch_on_the_given_stream() -> None:
    with public_launch():
        source, outs = many_outputs(900)
        split = bound_rows(source, outs)
        split.dispatch()
        names = calls_of(split.dispatch)
        assert names.count(LAUNCH) == 1
        assert not {"cudaMalloc", "cudaStreamSynchronize", "cudaMemcpyAsync"} & set(names)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        split.dispatch(stream.ptr)
        assert card.pending() == 1
        stream.synchronize()
        found_bytes = np.concatenate([out.get() for out in outs]).tobytes()
        assert found_bytes == source.get().tobytes()
