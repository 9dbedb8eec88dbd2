"""What dmlsplit asks of CuPy: launches with packed parameters, limits, and errors in its words."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.driver import Driver, prepacked


class CudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Machine:
    """A current device and stream, and a record of launches."""

    def __init__(self, failures: list[Exception] | None = None) -> None:
        self.current, self.used = 0, [0]
        self.launches: list[tuple[int, ...]] = []
        self.tables: list[bytes] = []
        self.failures = failures or []

    def launch(self, *arguments: int) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.launches.append(arguments)
        (block,) = _memory(arguments[-2], 8).view(np.uint64)
        self.tables.append(_memory(int(block), 24).tobytes())

    def device(self, number: int) -> Any:
        machine = self

        class Use:
            def __enter__(self) -> None:
                self.before, machine.current = machine.current, number

            def __exit__(self, *_: object) -> None:
                machine.current = self.before

            def use(self) -> None:
                machine.used.append(number)

        return Use()

    def start(self, device: int = 0) -> driver.Start:
        return prepacked(
            launch_kernel=self.launch,
            current_device=lambda: self.current,
            current_stream=lambda: SimpleNamespace(ptr=0x100 + self.current),
            use_device=self.device,
            translated=lambda error, device, what: dml.DmlError(f"{what} on {device}: {error}"),
            device=device,
            function=0xF,
            shape=(9, 1, 1, 256, 1, 1, 0),
            table=np.array([1, 2, 3], np.uint64),
        )


def _memory(address: int, size: int) -> np.ndarray:
    interface = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=interface)).copy()


def test_parameters_lie_ready_for_every_launch() -> None:
    machine = Machine()
    start = machine.start()
    start(None)
    start(7)
    assert [launch[:8] for launch in machine.launches] == [(0xF, 9, 1, 1, 256, 1, 1, 0)] * 2
    assert [launch[8] for launch in machine.launches] == [0x100, 7]
    assert machine.tables == [np.array([1, 2, 3], np.uint64).tobytes()] * 2


def test_a_launch_uses_its_own_device_and_gives_the_callers_back() -> None:
    machine = Machine()
    machine.start(device=1)(None)
    assert machine.launches[0][8] == 0x101
    assert machine.current == 0


def test_a_thread_without_a_context_gets_one() -> None:
    machine = Machine([CudaError(driver.INVALID_CONTEXT)])
    machine.start()(None)
    assert len(machine.launches) == 1
    assert machine.used[-1] == 0


def test_a_failing_launch_is_an_error_of_the_library() -> None:
    with pytest.raises(dml.DmlError, match="the launch failed on 0: status 1"):
        Machine([CudaError(1)]).start()(None)


def test_the_second_failure_in_a_row_is_one_too() -> None:
    failures: list[Exception] = [CudaError(driver.INVALID_CONTEXT), CudaError(719)]
    with pytest.raises(dml.DmlError, match="status 719"):
        Machine(failures).start()(None)


# A CuPy with no more than the driver uses.


class CompileException(Exception):  # noqa: N818
    pass


class FakeCupy:
    """Records what is compiled and launched through the public interface."""

    def __init__(self, driver_version: int = 13000, nvrtc: tuple[int, int] = (13, 0)) -> None:
        machine = Machine()
        properties = {
            "multiProcessorCount": 132,
            "maxThreadsPerMultiProcessor": 2048,
            "sharedMemPerMultiprocessor": 233472,
            "sharedMemPerBlock": 49152,
            "l2CacheSize": 62914560,
        }
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.launched: list[Any] = []
        self.streams: list[int] = []

        def ask(_: int) -> dict[str, int]:
            self.asked.append("properties")
            return properties

        runtime = SimpleNamespace(
            getDeviceProperties=ask,
            driverGetVersion=lambda: driver_version,
            memGetInfo=lambda: (10, 100),
            deviceGetPCIBusId=lambda _: "0000:00:00.0",
            getDevice=lambda: machine.current,
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            nvrtc=SimpleNamespace(getVersion=lambda: nvrtc),
            Device=machine.device,
            compiler=SimpleNamespace(CompileException=CompileException),
            get_current_stream=lambda: self._stream(0x100),
            Stream=SimpleNamespace(from_external=lambda s: self._stream(s.__cuda_stream__()[1])),
        )

    def _stream(self, handle: int) -> Any:
        entered = self.streams

        class Stream:
            ptr = handle

            def __enter__(self) -> None:
                entered.append(handle)

            def __exit__(self, *_: object) -> None:
                pass

        return Stream()

    def RawKernel(self, code: str, name: str, options: tuple[str, ...]) -> Any:  # noqa: N802
        def compile_() -> None:
            if self.failure:
                raise self.failure

        def kernel(grid: Any, block: Any, arguments: Any) -> None:
            if self.failure:
                raise self.failure
            self.launched.append((grid, block, arguments[0].tobytes()))

        kernel.compile = compile_  # type: ignore[attr-defined]
        return kernel


@pytest.mark.parametrize(
    ("version", "nvrtc", "limit"),
    [(13000, (13, 0), 32764), (12010, (12, 1), 32764), (12000, (12, 9), 4096),
     (12040, (12, 0), 4096), (11080, (11, 8), 4096)],
)  # fmt: skip
def test_parameters_are_as_large_as_driver_and_compiler_allow(
    version: int, nvrtc: tuple[int, int], limit: int
) -> None:
    assert Driver(FakeCupy(version, nvrtc), 1).limits(0).parameter_bytes == limit


def test_limits_are_asked_for_once() -> None:
    cupy = FakeCupy()
    found = Driver(cupy, 1)
    assert found.limits(0) is found.limits(0)
    assert found.limits(0).sm_count == 132
    assert cupy.asked == ["properties"]


def test_a_compile_failure_shows_the_log_and_the_kernel() -> None:
    cupy = FakeCupy()
    cupy.failure = CompileException('tile.cu(7): error: identifier "x" is undefined')
    with pytest.raises(dml.DmlError, match=r"(?s)kernel tile .*cuda:0.*tile\.cu\(7\): error"):
        Driver(cupy, 1).kernel(0, "source", "tile")


def test_a_module_that_cannot_be_loaded_is_named() -> None:
    cupy = FakeCupy()
    cupy.failure = CudaError(209)
    with pytest.raises(dml.DmlError, match="kernel tile cannot be loaded on cuda:0: status 209"):
        Driver(cupy, 1).kernel(0, "source", "tile")


def test_the_public_launch_stands_in_for_the_packed_one() -> None:
    cupy = FakeCupy()
    found = Driver(cupy, 1)
    # This kernel has no handle, as in a CuPy that does not show it.
    start = found.launcher(0, found.kernel(0, "source", "tile"), 5, 256, [1, 2, 3])
    start(None)
    start(9)
    table = np.array([1, 2, 3], np.uint64).tobytes()
    assert cupy.launched == [((5,), (256,), table)] * 2
    assert cupy.streams == [0x100, 9]
    cupy.failure = CudaError(719)
    with pytest.raises(dml.DeviceRemovedError, match="the launch failed: cuda:0 is gone"):
        start(None)


def test_errors_keep_their_meaning() -> None:
    found = Driver(FakeCupy(), 1)
    found.memory = lambda device: (10, 100)  # type: ignore[method-assign]
    cases = [
        (CudaError(2), dml.OutOfMemoryError, "5 bytes are needed, 10 of 100 bytes are free"),
        (MemoryError(), dml.OutOfMemoryError, "10 of 100"),
        (CudaError(700), dml.DeviceRemovedError, "gone"),
        (CudaError(101), dml.DeviceRemovedError, "gone"),
        (CudaError(400), dml.InvalidArgumentError, "a stream that is alive"),
        (CudaError(901), dml.InvalidArgumentError, "whose capture allows it"),
        (CudaError(98), dml.DmlError, "status 98"),
    ]
    for error, kind, text in cases:
        translated = found.translated(error, 0, "it", 5)
        assert type(translated) is kind
        assert text in str(translated)


def test_work_can_be_put_on_another_stream_for_a_while() -> None:
    cupy = FakeCupy()
    with Driver(cupy, 1).on_stream(0, 9):
        assert cupy.streams == [9]


def test_copies_that_fail_are_errors_of_the_library() -> None:
    def fail(array: Any) -> Any:
        raise CudaError(700)

    cupy = FakeCupy()
    cupy.asarray = cupy.asnumpy = fail  # type: ignore[attr-defined]
    for copy in (Driver(cupy, 1).upload, Driver(cupy, 1).download):
        with pytest.raises(dml.DeviceRemovedError, match="cuda:0 is gone"):
            copy(0, np.zeros(2))


class NoNvmlError(Exception):
    pass


@pytest.mark.parametrize("works", [True, False])
def test_free_memory_comes_from_nvml_else_from_cuda(
    monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    def start() -> None:
        if not works:
            raise NoNvmlError

    nvml = SimpleNamespace(
        NVMLError=NoNvmlError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(free=30, total=300),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert Driver(FakeCupy(), 1).memory(0) == ((30, 300) if works else (10, 100))


# Where there is no CUDA.


@pytest.fixture
def afresh() -> Any:
    driver.load.cache_clear()
    yield
    driver.load.cache_clear()


def test_without_cupy_the_extras_are_named(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "cupy":
            raise ImportError("No module named 'cupy'")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(dml.UnsupportedError, match=r"'dmlsplit\[cuda13\]'.*cuda12") as caught:
        dml.Device("cuda")
    assert caught.value.hresult == 0x887A0004
    assert dml.Device().name == "cpu"


def test_where_cupy_cannot_write_the_processor_is_left() -> None:
    """CuPy makes the folder of its cache when it is imported: a read-only home stops it."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    text = (
        "import dmlsplit as dml\nassert dml.Device().name == 'cpu'\n"
        "try: dml.Device('cuda')\nexcept dml.UnsupportedError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"CUPY_CACHE_DIR": "/dev/null/kernels"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "CUPY_CACHE_DIR" in done.stdout, done.stderr


@pytest.mark.parametrize("count", [0, None])
def test_without_a_driver_or_a_device_it_says_so(
    afresh: None, monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    def ask() -> int:
        if count is None:
            raise CudaError(35)
        return count

    runtime = SimpleNamespace(getDeviceCount=ask, CUDARuntimeError=CudaError)
    cuda = SimpleNamespace(runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    text = "no CUDA device" if count == 0 else "no usable CUDA driver: status 35"
    with pytest.raises(dml.UnsupportedError, match=text):
        dml.Device("cuda:0")


def test_cupy_has_what_the_driver_uses() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    from cupy_backends.cuda.api import driver as api

    assert callable(api.launchKernel)
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)
    assert callable(cupy.cuda.Stream.from_external)
    assert callable(cupy.cuda.runtime.getDevice)
    assert {"compile", "kernel"} <= set(dir(cupy.RawKernel))
    assert hasattr(cupy.cuda.function.Function, "ptr")
    assert hasattr(cupy.cuda.Device, "use")
    assert issubclass(api.CUDADriverError, RuntimeError)
