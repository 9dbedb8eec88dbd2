"""What a bound dispatch asks of CUDA, call by call, through the real CuPy."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.geometry import split_geometry
from tests.simulated_card import card
from tests.support.gpu_arrays import bound, noise, problem, public_launch, same

LAUNCH, SET = "cuLaunchKernel", "cudaSetDevice"


def calls_of(work: Callable[[], object]) -> list[str]:
    """What `work` asks of CUDA, without cudaGetDevice, which reads a number of the thread."""
    with card.calls() as recorded:
        work()
    return [name for name in recorded.names if name != "cudaGetDevice"]


def many_outputs(count: int) -> tuple[Any, list[Any]]:
    return cupy.asarray(noise((count, 3), "u4").view("f4")), [
        cupy.zeros((1, 3), "f4") for _ in range(count)
    ]


def bound_rows(source: Any, outs: list[Any], device: str = "cuda:0") -> dml.BoundOperator:
    x = dml.TensorDesc("FLOAT32", source.shape)
    sizes = [out.shape[0] for out in outs]
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=sizes)
    return dml.Device(device).compile(desc).bind(source, outs)


def test_a_dispatch_is_one_launch_and_nothing_else() -> None:
    source, outs = problem()
    operator = bound(source, outs)
    for _ in range(3):
        assert calls_of(operator.dispatch) == [LAUNCH]
    assert same(source, outs)


def test_as_many_launches_as_are_planned() -> None:
    source, outs = many_outputs(9000)
    operator = bound_rows(source, outs)
    geometry = split_geometry(source.shape, 0, [1] * 9000, 4, source.strides, [None] * 9000)
    planned = len(plan(geometry, 16, 16, H200.limits))
    assert planned > 2
    assert calls_of(operator.dispatch) == [LAUNCH] * planned
    found = np.concatenate([out.get() for out in outs])
    assert found.tobytes() == source.get().tobytes()


class Protocol:
    """A stream of a library that CuPy does not know."""

    def __init__(self, stream: cupy.cuda.Stream) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.ptr


FORMS: dict[str, Callable[[cupy.cuda.Stream], Any]] = {
    "stream of CuPy": lambda stream: stream,
    "handle": lambda stream: stream.ptr,
    "__cuda_stream__": Protocol,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_launch_waits_on_the_stream_that_is_given(form: str) -> None:
    source, outs = problem()
    operator = bound(source, outs)
    mine, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    cupy.cuda.Device().synchronize()
    assert calls_of(lambda: operator.dispatch(FORMS[form](mine))) == [LAUNCH]
    assert card.pending() == 1
    other.synchronize()
    assert card.pending() == 1
    mine.synchronize()
    assert card.pending() == 0
    assert same(source, outs)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["null", "legacy", "per thread"])
def test_the_default_streams_go_by_their_numbers(number: int) -> None:
    source, outs = problem()
    operator = bound(source, outs)
    cupy.cuda.Device().synchronize()
    operator.dispatch(number)
    assert card.pending() == 1
    default = cupy.cuda.Stream.ptds if number == 2 else cupy.cuda.Stream.null
    default.synchronize()
    assert card.pending() == 0
    assert same(source, outs)
    (found,) = dml.Device("cuda").compile(whole(source.shape))(source, stream=number)
    assert found.get().tobytes() == source.get().tobytes()


def whole(shape: tuple[int, ...]) -> dml.SplitOperatorDesc:
    x = dml.TensorDesc("FLOAT32", shape)
    return dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=shape[:1])


def test_a_bound_operator_keeps_its_buffers_alive() -> None:
    with cupy.cuda.using_allocator(None):
        source, outs = problem()
        operator = bound(source, outs)
        before = card.memory_used(0)
        del source, outs
        gc.collect()
        assert card.memory_used(0) == before
        operator.dispatch()
        cupy.cuda.Device().synchronize()  # Freed memory would break the device.
        del operator
        gc.collect()
        assert card.memory_used(0) < before


def test_threads_split_on_streams_of_their_own() -> None:
    arrays = [noise((64, 10 + i), "u4", seed=i).view("f4") for i in range(8)]
    found: list[Any] = [None] * len(arrays)

    def work(number: int) -> None:
        with cupy.cuda.Device(number % 2), cupy.cuda.Stream(non_blocking=True) as stream:
            pieces = dml.split(cupy.asarray(arrays[number]), (3, 7 + number), 1)
            found[number] = [piece.get() for piece in pieces]
            stream.synchronize()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(arrays))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for array, pieces in zip(arrays, found, strict=True):
        assert np.concatenate(pieces, 1).tobytes() == array.tobytes()


def test_the_current_stream_is_the_default() -> None:
    source, outs = problem()
    operator = bound(source, outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        operator.dispatch()
    cupy.cuda.Stream.null.synchronize()  # Does not wait for a non-blocking stream.
    assert card.pending() == 1
    stream.synchronize()
    assert same(source, outs)


def test_a_capture_holds_one_launch_that_every_replay_repeats() -> None:
    source, outs = problem()
    operator = bound(source, outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        assert calls_of(operator.dispatch) == [LAUNCH]
        graph = stream.end_capture()
    assert card.pending() == 0
    assert not any(out.get().any() for out in outs)
    for seed in (1, 2):
        source.set(noise(source.shape, "u4", seed=seed).view("f4"))
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert same(source, outs)


def test_a_thread_without_a_context_gets_one() -> None:
    source, outs = problem()
    operator = bound(source, outs)
    operator.dispatch()
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.extend(calls_of(operator.dispatch)))
    thread.start()
    thread.join()
    # The first launch is refused (201); only then is the device made current.
    assert seen.count(LAUNCH) == 2
    assert seen.index(LAUNCH) < seen.index(SET)
    assert not {"cudaMalloc", "cudaStreamSynchronize", "cudaMemcpyAsync"} & set(seen)
    assert same(source, outs)


def test_another_device_is_made_current_for_the_launch_only() -> None:
    with cupy.cuda.Device(1):
        source, outs = many_outputs(3)
        operator = bound_rows(source, outs, "cuda:1")
    assert cupy.cuda.runtime.getDevice() == 0
    names = calls_of(operator.dispatch)
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
    with pytest.raises(dml.InvalidArgumentError, match="a stream that is alive, of this device"):
        bound_rows(source, outs).dispatch(strange.ptr)


def test_the_public_launch_does_the_same() -> None:
    with public_launch():
        source, outs = many_outputs(900)
        operator = bound_rows(source, outs)
        operator.dispatch()
        names = calls_of(operator.dispatch)
        assert names.count(LAUNCH) == 1
        assert not {"cudaMalloc", "cudaStreamSynchronize", "cudaMemcpyAsync"} & set(names)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        operator.dispatch(stream.ptr)
        assert card.pending() == 1
        stream.synchronize()
        found_bytes = np.concatenate([out.get() for out in outs]).tobytes()
        assert found_bytes == source.get().tobytes()
