"""The CUDA calls of a bound dispatch, one by one, with the real CuPy."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays.cupy_adapter import CUPY
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.execution import jax
from tests.simulated_card import card
from tests.support.descriptors import packed_split
from tests.support.gpu_arrays import bound, compiled_split, is_split_into, noise, source_and_outputs

LAUNCH, SET = "cuLaunchKernel", "cudaSetDevice"


def calls_of(work: Callable[[], object]) -> list[str]:
    """The CUDA calls of `work`, without cudaGetDevice, which only reads a number of the thread."""
    with card.calls() as cuda_calls:
        work()
    return [name for name in cuda_calls if name != "cudaGetDevice"]


def many_outputs(count: int) -> tuple[Any, list[Any]]:
    return cupy.asarray(noise((count, 3), "u4").view("f4")), [
        cupy.zeros((1, 3), "f4") for _ in range(count)
    ]


def bound_rows(source: Any, outs: list[Any], device: str = "cuda:0") -> dml.BoundOperator:
    return bound(source, outs, 0, device)


def test_a_dispatch_is_one_launch_and_nothing_else() -> None:
    source, outs = source_and_outputs()
    split = bound(source, outs)
    for _ in range(3):
        assert calls_of(split.dispatch) == [LAUNCH]
    assert is_split_into(source, outs)


def test_the_number_of_launches_is_as_planned() -> None:
    source, outs = many_outputs(9000)
    split = bound_rows(source, outs)
    geometry = packed_split(
        source.shape, axis=0, sizes=[1] * 9000, element_bytes=4, input_strides=source.strides
    )
    launch_count = len(plan(geometry, 16, 16, H200.limits))
    assert launch_count > 2
    assert calls_of(split.dispatch) == [LAUNCH] * launch_count
    output_values = np.concatenate([out.get() for out in outs])
    assert output_values.tobytes() == source.get().tobytes()


@pytest.mark.parametrize(
    "number", [0, 1, 2, None], ids=["null", "legacy", "per thread", "new stream"]
)
def test_a_launch_is_queued_on_the_given_stream(number: int | None) -> None:
    """The default streams have their documented numbers."""
    own_stream, other_stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    stream = {0: cupy.cuda.Stream.null, 1: cupy.cuda.Stream.null, 2: cupy.cuda.Stream.ptds}
    waited, call_stream = stream.get(number, own_stream), own_stream if number is None else number
    source, outs = source_and_outputs()
    split = bound(source, outs)
    cupy.cuda.Device().synchronize()
    with other_stream:  # CuPy's current stream, which the given one replaces
        names = calls_of(lambda: split.dispatch(call_stream))
    assert names.count(LAUNCH) == 1
    assert set(names) <= {SET, LAUNCH}
    other_stream.synchronize()
    assert card.pending() == 1
    waited.synchronize()
    assert card.pending() == 0
    assert is_split_into(source, outs)
    (piece,) = compiled_split(source.shape, source.shape[:1], axis=0)(source, stream=call_stream)
    waited.synchronize()
    assert piece.get().tobytes() == source.get().tobytes()


def test_a_bound_operator_keeps_its_buffers_alive() -> None:
    with cupy.cuda.using_allocator(None):
        source, outs = source_and_outputs()
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
    source, outs = source_and_outputs()
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
        assert is_split_into(source, outs)


def test_a_thread_without_a_context_may_launch() -> None:
    source, outs = source_and_outputs()
    split = bound(source, outs)
    split.dispatch()
    with ThreadPoolExecutor(1) as pool:
        cuda_calls = pool.submit(calls_of, split.dispatch).result()
    assert cuda_calls.count(LAUNCH) == 1
    assert not {"cudaMalloc", "cudaStreamSynchronize", "cudaMemcpyAsync"} & set(cuda_calls)
    assert is_split_into(source, outs)


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
        output_values = np.concatenate([out.get() for out in outs])
        assert output_values.tobytes() == source.get().tobytes()


def test_a_launch_on_another_device_is_on_the_current_stream_of_that_device() -> None:
    with cupy.cuda.Device(1):
        source, outs = many_outputs(3)
        split = bound_rows(source, outs, "cuda:1")
        cupy.cuda.Device().synchronize()
        own_stream = cupy.cuda.Stream(non_blocking=True).use()
    try:
        split.dispatch()
        assert card.pending() == 1
        own_stream.synchronize()
        assert card.pending() == 0
    finally:
        with cupy.cuda.Device(1):
            cupy.cuda.Stream.null.use()


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


def test_a_binding_that_breaks_a_rule_is_refused_without_a_launch() -> None:
    source, outs = source_and_outputs()
    op, small = compiled_split(source.shape, (100, 200)), cupy.zeros(64, "u1")
    wrong = {
        "DML-BIND-SIZE": [dml.BufferBinding(small), outs[1]],
        "DML-BIND-OFFSET-ALIGNMENT": [dml.BufferBinding(outs[1], 8), outs[0]],
        "DML-BIND-OUTPUT-OVERLAP": [dml.BufferBinding(outs[1], 0, 1 << 18), outs[1]],
        "DML-BIND-IN-PLACE": [dml.BufferBinding(source, 0, 1 << 18), outs[1]],
        "DML-BIND-COUNT": outs[1:],
        "DML-BIND-KIND": [np.zeros((512, 100), "f4"), outs[1]],
    }
    with card.calls() as cuda_calls:
        for rule, targets in wrong.items():
            with pytest.raises(dml.InvalidArgumentError) as error:
                op.bind(source, targets)
            assert error.value.report is not None
            assert rule in error.value.report.rule_ids
    assert LAUNCH not in cuda_calls


def test_an_array_goes_only_to_an_operator_on_its_own_device() -> None:
    source, _ = source_and_outputs()
    with pytest.raises(dml.InvalidArgumentError, match=r"an array on cpu.*on cuda:0"):
        compiled_split(source.shape, (100, 200))(source.get())
    with pytest.raises(dml.InvalidArgumentError, match=r"an array on cuda:0.*on cpu"):
        compiled_split(source.shape, (100, 200), device="cpu")(source)
    with pytest.raises(dml.InvalidArgumentError, match=r"an array on cuda:0.*on cuda:1"):
        compiled_split(source.shape, (100, 200), device="cuda:1")(source)


def test_a_split_without_bytes_launches_nothing() -> None:
    empty = cupy.zeros((0, 4), "f4")
    with card.calls() as cuda_calls:
        pieces = dml.split(empty, (0, 0))
        jax._copy(1, (1, 3), SimpleNamespace(stream=0), [empty[:, :1], empty[:, 1:]], empty)
    assert [piece.shape for piece in pieces] == [(0, 4)] * 2
    assert LAUNCH not in cuda_calls


def test_a_given_stream_is_recorded_for_the_arrays_that_it_uses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uses: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        type(CUPY), "record_stream", lambda _, array, stream: uses.append((array, stream))
    )
    source, outs = source_and_outputs()
    op = compiled_split(source.shape, (100, 200))
    op(source)
    op.dispatch(source, outs)
    assert not uses
    op(source, stream=0)
    assert [array is source for array, _ in uses] == [True]  # outputs are made for that stream
    uses.clear()
    op.dispatch(source, outs, stream=0)
    assert [(id(array), stream) for array, stream in uses] == [
        (id(array), 0) for array in (source, *outs)
    ]


@pytest.mark.parametrize("is_cupys", [True, False])
def test_arrays_are_viewed_on_the_stream_of_the_call(
    is_cupys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy's own streams are entered themselves, so that its pools know them."""
    entered: list[object] = []
    enter = driver.Driver.on_stream

    def on_stream(self: driver.Driver, *arguments: Any) -> Any:
        entered.append(arguments)
        return enter(self, *arguments)

    monkeypatch.setattr(driver.Driver, "on_stream", on_stream)
    source, outs = source_and_outputs()
    own_stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    stream: Any = (
        own_stream if is_cupys else SimpleNamespace(__cuda_stream__=own_stream.__cuda_stream__)
    )
    op = compiled_split(source.shape, (100, 200))
    op(source, stream=stream)
    op.dispatch(source, outs, stream)
    assert entered == [(0, own_stream.ptr, own_stream if is_cupys else None)] * 2
    own_stream.synchronize()
    assert is_split_into(source, outs)


def test_the_callback_of_jax_is_one_launch_on_xlas_stream() -> None:
    """CuPy arrays have the attributes of a buffer of XLA."""
    with cupy.cuda.Device(1):
        source = cupy.asarray(noise((64, 30), "i2"))
        pieces = [cupy.zeros((64, size), "i2") for size in (7, 23)]
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
    for _ in range(2):
        names = calls_of(
            lambda: jax._copy(1, (7, 23), SimpleNamespace(stream=stream.ptr), pieces, source)
        )
    assert names.count(LAUNCH) == 1
    assert set(names) <= {SET, LAUNCH, "cudaPointerGetAttributes"}  # the last by CuPy's DLPack
    assert card.pending() == 2
    stream.synchronize()
    with cupy.cuda.Device(1):
        assert is_split_into(source, pieces)
