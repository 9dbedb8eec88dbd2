"""The driver's own code, against a CuPy that is made up: packing, contexts, errors."""

import ctypes
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends import driver


class FakeCudaError(RuntimeError):
    """CUDADriverError and CUDARuntimeError."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeOutOfMemory(MemoryError):  # noqa: N818
    """cupy.cuda.memory.OutOfMemoryError."""


class FakeCompileError(Exception):
    """CompileException."""

    def get_message(self) -> str:
        return "a.cu(1): error: expected a ';'"


class FakeCupy:
    """What `driver` uses of CuPy; context 7 is that of device 0."""

    def __init__(self) -> None:
        self.context = 7
        self.contexts: list[int] = []
        self.launched: list[tuple[Any, ...]] = []
        self.public: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.driver_version, self.nvrtc_version = 13000, (13, 0)
        self.count: int | FakeCudaError = 2

    def launch(self, *arguments: int) -> None:
        if self.fails:
            raise self.fails
        assert self.context == 7, "launched into the context of another device"
        *shape, stream, where, extra = arguments
        self.launched.append((*shape, stream, extra, self._struct(where)))

    def _struct(self, where: int) -> tuple[int, ...]:
        (struct,) = (ctypes.c_uint64 * 1).from_address(where)
        return tuple((ctypes.c_uint64 * 3).from_address(struct))

    def make_current(self, context: int) -> None:
        self.context = context
        self.contexts.append(context)

    def device_count(self) -> int:
        if isinstance(self.count, Exception):
            raise self.count
        return self.count

    def raw_module(self, code: str, options: tuple[str, ...]) -> Any:
        assert options == ("-std=c++17",)

        def get_function(name: str) -> Any:
            if "bad" in code:
                raise FakeCompileError

            class Raw:
                kernel = SimpleNamespace(ptr=99)

                def __call__(_, *arguments: Any) -> None:  # noqa: N805
                    if self.fails:
                        raise self.fails
                    self.public.append(arguments)

            return Raw()

        return SimpleNamespace(get_function=get_function)

    def modules(self) -> dict[str, ModuleType]:
        properties = {
            "multiProcessorCount": 132,
            "maxThreadsPerMultiProcessor": 2048,
            "sharedMemPerMultiprocessor": 228 << 10,
            "sharedMemPerBlock": 48 << 10,
            "l2CacheSize": 60 << 20,
        }
        runtime = SimpleNamespace(
            getDeviceCount=self.device_count,
            getDeviceProperties=lambda number: properties,
            driverGetVersion=lambda: self.driver_version,
            memGetInfo=lambda: (5, 10),
            CUDARuntimeError=FakeCudaError,
        )
        stream = SimpleNamespace(null=nullcontext(), from_external=nullcontext)
        cuda = SimpleNamespace(
            runtime=runtime, Device=lambda number: nullcontext(), Stream=stream,
            get_current_stream=lambda number: SimpleNamespace(ptr=40 + number),
            memory=SimpleNamespace(OutOfMemoryError=FakeOutOfMemory),
        )  # fmt: skip
        entries = SimpleNamespace(
            launchKernel=self.launch,
            ctxGetCurrent=lambda: self.context,
            ctxSetCurrent=self.make_current,
            CUDADriverError=FakeCudaError,
        )
        nvrtc = SimpleNamespace(getVersion=lambda: self.nvrtc_version)

        def module(name: str, **members: Any) -> ModuleType:
            made = ModuleType(name)
            made.__dict__.update(members)
            return made

        return {
            "cupy": module("cupy", cuda=cuda, RawModule=self.raw_module, ndarray=type(None)),
            "cupy.cuda": module("cupy.cuda", **vars(cuda)),
            "cupy.cuda.compiler": module("cupy.cuda.compiler", CompileException=FakeCompileError),
            "cupy_backends": module("cupy_backends"),
            "cupy_backends.cuda": module("cupy_backends.cuda"),
            "cupy_backends.cuda.api": module("cupy_backends.cuda.api", driver=entries),
            "cupy_backends.cuda.libs": module("cupy_backends.cuda.libs", nvrtc=nvrtc),
        }


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    for name, made in fake.modules().items():
        monkeypatch.setitem(sys.modules, name, made)
    driver.limits.cache_clear()
    driver._stream_getter.cache_clear()
    return fake


@pytest.fixture(autouse=True)
def _no_traces() -> Any:
    yield
    driver.limits.cache_clear()
    driver._stream_getter.cache_clear()


def enqueue_of(cupy: FakeCupy) -> Callable[[int], None]:
    return driver.enqueuer(driver.load(0, "vector", "code"), 8, 256, [2**63 + 1, 4096, 8192])


def test_the_pointers_are_one_parameter_by_value(cupy: FakeCupy) -> None:
    enqueue = enqueue_of(cupy)
    enqueue(5)
    enqueue(6)
    pointers = (2**63 + 1, 4096, 8192)
    shape = (99, 8, 1, 1, 256, 1, 1, 0)
    assert cupy.launched == [(*shape, 5, 0, pointers), (*shape, 6, 0, pointers)]
    assert cupy.contexts == []


def test_another_context_is_left_as_it_was(cupy: FakeCupy) -> None:
    enqueue = enqueue_of(cupy)
    cupy.context = 0  # a new thread
    enqueue(5)
    assert (len(cupy.launched), cupy.contexts, cupy.context) == (1, [7, 0], 0)
    cupy.context, cupy.fails = 3, FakeCudaError(700, "illegal address")
    with pytest.raises(dml.DeviceRemovedError):
        enqueue(5)
    assert cupy.context == 3


def test_without_the_private_entry_the_public_one_launches(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = sys.modules["cupy_backends.cuda.api"].driver
    monkeypatch.delattr(entries, "launchKernel")
    enqueue = enqueue_of(cupy)
    enqueue(5)
    enqueue(0)
    ((grid, block, (parameter,)), _) = cupy.public
    assert (grid, block, parameter.size, parameter.dtype.kind) == ((8,), (256,), 1, "V")
    assert parameter.view(np.uint64).tolist() == [2**63 + 1, 4096, 8192]
    cupy.fails = FakeCudaError(719, "launch failure")
    with pytest.raises(dml.DeviceRemovedError):
        enqueue(5)


@pytest.mark.parametrize(
    ("status", "error", "hresult"),
    [
        (2, dml.OutOfMemoryError, 0x8007000E),
        (400, dml.InvalidArgumentError, 0x80070057),
        (709, dml.InvalidArgumentError, 0x80070057),
        (901, dml.InvalidArgumentError, 0x80070057),
        (700, dml.DeviceRemovedError, 0x887A0005),
        (999, dml.DeviceRemovedError, 0x887A0005),
    ],
)
def test_errors_of_a_launch_have_an_hresult(
    cupy: FakeCupy, status: int, error: type[dml.DmlError], hresult: int
) -> None:
    enqueue = enqueue_of(cupy)
    cupy.fails = FakeCudaError(status, "what CUDA says")
    with pytest.raises(
        error, match=r"launching kernel 'vector' failed on cuda:0: what CUDA says"
    ) as found:
        enqueue(5)
    assert found.value.hresult == hresult


def test_a_device_that_is_gone_is_said_before_a_launch(cupy: FakeCupy) -> None:
    def gone(*arguments: Any) -> Any:
        raise FakeCudaError(46, "device unavailable")

    sys.modules["cupy"].__dict__.update(empty=gone, asarray=gone)
    for act in (
        lambda: driver.empty(0, (2,), None, np.dtype("f4"), 0),
        lambda: driver.upload(np.zeros(2), 0),
    ):
        with pytest.raises(dml.DeviceRemovedError, match="cuda:0: device unavailable"):
            act()


def test_a_full_device_is_out_of_memory(cupy: FakeCupy) -> None:
    def full(*arguments: Any) -> Any:
        raise FakeOutOfMemory("Out of memory allocating 8 bytes")

    sys.modules["cupy"].__dict__["empty"] = full
    for strides in (None, (4,)):
        with pytest.raises(dml.OutOfMemoryError, match="allocating 8 bytes"):
            driver.empty(0, (2,), strides, np.dtype("f4"), 8)


def test_a_failed_compilation_shows_name_and_log(cupy: FakeCupy) -> None:
    with pytest.raises(dml.DmlError, match=r"'tile' does not compile(.|\n)*expected a ';'") as e:
        driver.load(0, "tile", "bad")
    assert e.value.hresult == 0x80004005


@pytest.mark.parametrize(
    ("driver_version", "nvrtc_version", "wanted"),
    [
        (12010, (12, 1), 32764),
        (13000, (13, 0), 32764),
        (12000, (12, 1), 4096),
        (13000, (12, 0), 4096),
    ],
)
def test_old_software_takes_fewer_parameters(
    cupy: FakeCupy, driver_version: int, nvrtc_version: tuple[int, int], wanted: int
) -> None:
    cupy.driver_version, cupy.nvrtc_version = driver_version, nvrtc_version
    limits = driver.limits(0)
    assert limits.parameter_bytes == wanted
    assert (limits.sm_count, limits.shared_per_block) == (132, 48 << 10)


def test_the_current_stream_is_that_of_cupy(cupy: FakeCupy) -> None:
    assert [driver.current_stream(number) for number in (0, 1)] == [40, 41]


def test_devices_are_counted_or_their_absence_explained(cupy: FakeCupy) -> None:
    assert driver.device_count() == 2
    cupy.count = FakeCudaError(35, "driver version is insufficient")
    with pytest.raises(dml.UnsupportedError, match=r"insufficient.*install the NVIDIA driver"):
        driver.device_count()


# What this relies on in the CuPy that is installed, where one is. None of it needs a driver.


def test_the_installed_cupy_has_the_private_entries() -> None:
    pytest.importorskip("cupy")
    from cupy_backends.cuda.api import driver as entries
    from cupy_backends.cuda.libs import nvrtc

    for name in ("launchKernel", "ctxGetCurrent", "ctxSetCurrent", "CUDADriverError"):
        assert hasattr(entries, name), name
    assert len(nvrtc.getVersion()) == 2


def test_borrowed_memory_is_a_cupy_array() -> None:
    cupy = pytest.importorskip("cupy")
    owner = object()
    array = driver.borrow(4096, (2, 3), (0, 4), np.dtype("u2"), owner, 1)
    assert isinstance(array, cupy.ndarray)
    assert driver.is_array(array)
    assert not driver.is_array(np.zeros(1))
    assert (array.data.ptr, array.shape, array.strides) == (4096, (2, 3), (0, 4))
    assert driver.device_of(array) == 1
