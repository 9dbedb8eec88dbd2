"""The simulated card itself refuses everything that a real card would refuse."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pytest
from cupy.cuda.compiler import compile_using_nvrtc
from cupy_backends.cuda.api import driver as api

from tests.simulated_card import card
from tests.support.command import ran

RuntimeFailure = cupy.cuda.runtime.CUDARuntimeError

COPY = """
constexpr int kThreads = 64;
struct Parameters { const unsigned char* input; unsigned char* outputs[1]; };

extern "C" __global__ void __launch_bounds__(kThreads)
copy(const __grid_constant__ Parameters pointers) {
    const unsigned at = 16 * (blockIdx.x * kThreads + threadIdx.x);
    __stcs(reinterpret_cast<uint4*>(pointers.outputs[0] + at),
           __ldg(reinterpret_cast<const uint4*>(pointers.input + at)));
}
"""
SIZE = 2048


def launch(source: int, target: int, text: str = COPY, stream: Any = None) -> None:
    kernel = cupy.RawKernel(text, "copy", options=("-std=c++17",))
    table = np.array([source, target], np.uint64)
    with stream or cupy.cuda.Stream.null:
        kernel((SIZE // 1024,), (64,), (table.view("V16"),))


def ones() -> tuple[Any, Any]:
    gc.collect()  # Free arrays of earlier tests now, not while a device is broken.
    source = cupy.asarray(np.full(SIZE, 1, "u1"))
    target = cupy.asarray(np.full(SIZE, 2, "u1"))
    cupy.cuda.Device().synchronize()
    return source, target


def test_a_kernel_runs_only_when_its_result_is_read() -> None:
    source, target = ones()
    launch(source.data.ptr, target.data.ptr)
    assert card.pending() == 1
    assert target.get().tolist() == [1] * SIZE


def test_cupy_reads_the_device_properties_of_the_simulated_card() -> None:
    """CuPy was built with its own headers; the first, middle and last fields must agree."""
    properties = cupy.cuda.runtime.getDeviceProperties(1)
    assert properties["name"] == b"Simulated H200"
    assert properties["totalGlobalMem"] == cupy.cuda.runtime.memGetInfo()[1]
    assert properties["maxGridSize"] == (2147483647, 65535, 65535)
    assert properties["multiProcessorCount"] == 132
    assert properties["pciBusID"] == 2
    assert properties["l2CacheSize"] == 50 << 20
    assert properties["sharedMemPerMultiprocessor"] == 228 << 10
    assert properties["maxBlocksPerMultiProcessor"] == 32
    assert properties["reservedSharedMemPerBlock"] == 1 << 10


def test_fresh_memory_is_poisoned() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    assert cupy.empty(SIZE, "u1").get().tolist() == [0xEE] * SIZE


@pytest.mark.parametrize(
    ("first", "message"), [("others", "wrong"), ("late", "right")], ids=["read early", "read late"]
)
def test_streams_without_an_event_between_them_run_in_either_order(
    first: str, message: str
) -> None:
    """The second stream should wait for the first, but without an event either order is legal."""
    source, target = ones()
    first_stream, second_stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    source.data.memset_async(7, SIZE, first_stream)
    launch(source.data.ptr, target.data.ptr, stream=second_stream)
    card.run_others_first(first == "others")
    second_stream.synchronize()
    first_stream.synchronize()
    order = {7: "wrong", 1: "right"}[int(target.get()[0])]
    assert order == message


def test_events_and_the_legacy_stream_define_the_order_of_work() -> None:
    source, target = ones()
    first_stream, second_stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    source.data.memset_async(7, SIZE, first_stream)
    second_stream.wait_event(first_stream.record())
    launch(source.data.ptr, target.data.ptr, stream=second_stream)
    second_stream.synchronize()
    assert set(target.get().tolist()) == {7}
    blocking = cupy.cuda.Stream()
    source.data.memset_async(8, SIZE, blocking)
    launch(source.data.ptr, target.data.ptr)  # The legacy stream waits for the other.
    assert set(target.get().tolist()) == {8}


BEYOND = {
    "beyond the end": (COPY.replace("= 16 * (", "= 16 + 16 * ("), 700),
    "misaligned": (COPY.replace("= 16 * (", "= 4 + 16 * ("), 716),
    "before the start": (COPY.replace("outputs[0] + at", "outputs[0] + at - 16"), 700),
}


@pytest.mark.parametrize("case", BEYOND)
def test_an_out_of_bounds_or_misaligned_access_breaks_the_device(
    case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text, status = BEYOND[case]
    with cupy.cuda.using_allocator(None):
        source, target = ones()
    launch(source.data.ptr, target.data.ptr, text)
    for _ in range(2):  # It stays broken.
        with pytest.raises(RuntimeFailure) as failure:
            cupy.cuda.Device().synchronize()
        assert failure.value.status == status
    assert "kernel copy:" in capfd.readouterr().err
    card.break_device(0, 0)


def launch_module(text: str, source: Any, target: Any) -> int:
    """Load a module, launch its kernel and return its handle."""
    table = np.array([source.data.ptr, target.data.ptr], np.uint64)
    parameters = np.array([table.ctypes.data], np.uint64)
    module = api.moduleLoadData(compile_using_nvrtc(text, ("-std=c++17",))[0])
    function = api.moduleGetFunction(module, "copy")
    api.launchKernel(function, 1, 1, 1, 64, 1, 1, 0, 0, parameters.ctypes.data, 0)
    return int(module)


def test_a_module_loaded_after_an_unloaded_one_runs_its_own_code() -> None:
    source, target = ones()
    shift = COPY.replace("uint4*>(pointers.outputs[0]", "uint4*>(pointers.outputs[0] + 1024")
    for text, shifted_part in ((COPY, slice(0, 1024)), (shift, slice(1024, 2048))):
        target.set(np.full(SIZE, 2, "u1"))
        module = launch_module(text, source, target)
        assert set(target.get()[shifted_part].tolist()) == {1}
        api.moduleUnload(module)


def test_a_launch_fails_if_its_module_is_unloaded_before_it_runs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    module = launch_module(COPY, *ones())
    api.moduleUnload(module)
    assert card.pending() == 1
    with pytest.raises(RuntimeFailure, match="LaunchFailure"):
        cupy.cuda.Device().synchronize()
    assert "kernel copy runs, whose module is unloaded" in capfd.readouterr().err
    card.break_device(0, 0)


def test_freed_memory_and_host_memory_are_not_device_memory() -> None:
    with cupy.cuda.using_allocator(None):
        source, target = ones()
        address = source.data.ptr
        del source
    for wrong in (address, np.zeros(SIZE, "u1").ctypes.data):
        launch(wrong, target.data.ptr)
        with pytest.raises(RuntimeFailure, match="IllegalAddress"):
            cupy.cuda.Device().synchronize()
        card.break_device(0, 0)


def test_the_host_cannot_dereference_a_device_pointer() -> None:
    text = (
        "from tests.simulated_card import card; card.load(); import cupy, ctypes;"
        "ctypes.string_at(cupy.zeros(16, 'u1').data.ptr, 16)"
    )
    process = ran(sys.executable, "-c", text)
    assert process.returncode == -11, process.stderr


def test_memory_of_another_device_is_not_accessible() -> None:
    source, _ = ones()
    with cupy.cuda.Device(1):
        target = cupy.asarray(np.zeros(SIZE, "u1"))
        launch(source.data.ptr, target.data.ptr)
        with pytest.raises(RuntimeFailure, match="IllegalAddress"):
            cupy.cuda.Device(1).synchronize()
        card.break_device(1, 0)


def test_a_call_of_a_function_that_is_not_modelled_is_refused_with_its_name(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(RuntimeFailure, match="NotSupported"):
        cupy.cuda.runtime.deviceGetLimit(0)
    assert "cudaDeviceGetLimit is not modelled" in capfd.readouterr().err


def test_kernels_of_cupy_do_not_compile_on_the_simulated_card() -> None:
    with pytest.raises(cupy.cuda.compiler.CompileException):
        cupy.ones(3) + 1


# A call that a capture forbids, whether the captured stream is non-blocking, and the error.
FORBIDDEN: dict[str, tuple[Callable[[Any, Any], object], bool, str]] = {
    "waiting": (lambda stream, array: stream.synchronize(), True, "Unsupported"),
    "allocation": (lambda *_: cupy.cuda.runtime.malloc(16), True, "Unsupported"),
    "the legacy stream": (
        lambda _, array: array.data.memset_async(1, SIZE, cupy.cuda.Stream.null), False, "Implicit"
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", FORBIDDEN)
def test_a_forbidden_call_invalidates_a_capture(call: str) -> None:
    (source, _), (forbidden, non_blocking, error) = ones(), FORBIDDEN[call]
    stream = cupy.cuda.Stream(non_blocking=non_blocking)
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    with pytest.raises(RuntimeFailure, match=f"StreamCapture{error}"):
        forbidden(stream, source)
    with pytest.raises(RuntimeFailure, match="StreamCaptureInvalidated"):
        stream.end_capture()


@pytest.mark.parametrize("is_joined", [True, False])
def test_a_capture_includes_a_second_stream_that_must_be_joined(is_joined: bool) -> None:
    source, target = ones()
    first_stream, second_stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    first_stream.begin_capture()
    source.data.memset_async(7, SIZE, first_stream)
    second_stream.wait_event(first_stream.record())
    launch(source.data.ptr, target.data.ptr, stream=second_stream)
    if not is_joined:
        with pytest.raises(RuntimeFailure, match="StreamCaptureUnjoined"):
            first_stream.end_capture()
        return
    first_stream.wait_event(second_stream.record())
    graph = first_stream.end_capture()
    assert set(target.get().tolist()) == {2}
    graph.launch(first_stream)
    first_stream.synchronize()
    assert set(target.get().tolist()) == {7}
