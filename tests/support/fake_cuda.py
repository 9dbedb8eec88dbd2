"""A CUDA driver that records its calls and works on any machine.

`FakeDriver` replaces `dmlsplit.backends.cuda.driver.Driver`. Its device memory is host memory, and
a launch moves nothing: results are compared on the simulated card, and on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.packed_launch import BoundLaunch
from dmlsplit.errors import DmlError, OutOfMemoryError

CURRENT_STREAM = 0x51


@dataclass(frozen=True)
class Launched:
    """One call of cuLaunchKernel."""

    device: int
    kernel: str
    grid: int
    threads: int
    addresses: tuple[int, ...]  # of the input and of each output
    arguments: bytes
    stream: int


@dataclass(frozen=True)
class FakeKernel:
    """A compiled source."""

    source: str
    name: str


@dataclass(frozen=True)
class FakeLauncher:
    """Records the launches of a kernel."""

    driver: FakeDriver
    device: int
    load: Callable[[], FakeKernel]
    launch: KernelLaunch

    def bind(self, addresses: Sequence[int]) -> BoundLaunch:
        self.driver.calls.append("pack")
        launch = self.launch
        assert len(addresses) == 1 + len(launch.outputs)
        launched = Launched(
            self.device,
            self.load().name,
            launch.grid,
            launch.threads,
            tuple(addresses),
            launch.parameters(addresses)[8 * len(addresses) :],
            CURRENT_STREAM,
        )
        return partial(self._start, launched)

    def launch_at(self, addresses: Sequence[int], handle: int | None) -> None:
        self.bind(addresses)(handle)

    def _start(self, launched: Launched, handle: int | None) -> None:
        self.driver.calls.append("launch")
        if self.driver.failure:
            raise self.driver.failure
        launched = launched if handle is None else replace(launched, stream=handle)
        self.driver.launched.append(launched)


class FakeArray:
    """An array in fake device memory, with those attributes of CuPy's arrays that are used."""

    def __init__(self, host: np.ndarray, device: int, **interface: Any) -> None:
        self.host, self._device = host, device
        self.dtype, self.shape, self.strides = host.dtype, host.shape, host.strides
        self.nbytes = host.nbytes
        address = host.__array_interface__["data"][0]
        self.data = SimpleNamespace(ptr=address, device_id=device)
        self.__cuda_array_interface__ = {
            "data": (address, not host.flags.writeable),
            "shape": host.shape,
            "strides": host.strides,
            "typestr": host.dtype.str,
            "version": 3,
            **interface,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._device


@dataclass
class FakeDriver:
    """Records calls in order."""

    device_count: int = 2
    memory_bytes: int = 1 << 26
    device_limits: DeviceLimits = H200.limits
    calls: list[str] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    failure: DmlError | None = None
    compiled_with_siblings: set[tuple[int, int]] = field(default_factory=set)
    refuses: str | None = None  # the beginning of sources that do not compile
    loaded: dict[int, Callable[[str, str], FakeKernel]] = field(default_factory=dict)

    def array(self, value: np.ndarray, device: int = 0, **interface: Any) -> FakeArray:
        """Put a copy with the same strides into device memory at an aligned address."""
        low, high = np.lib.array_utils.byte_bounds(value)
        store = self._allocate(high - low)
        start = value.__array_interface__["data"][0] - low
        store[:] = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
        host = np.ndarray(value.shape, value.dtype, store, start, value.strides)
        return FakeArray(host, device, **interface)

    def _allocate(self, size: int) -> np.ndarray:
        store = np.full(size + 256, 0xEE, np.uint8)
        begin = -store.__array_interface__["data"][0] % 256
        return store[begin : begin + size]

    def limits(self, device: int) -> DeviceLimits:
        return self.device_limits

    def why_unusable(self, device: int) -> str | None:
        return None

    def kernel_loader(self, device: int) -> Callable[[str, str], FakeKernel]:
        if device not in self.loaded:
            self.loaded[device] = cache(partial(self._compiled, device))
        return self.loaded[device]

    def _compiled(self, device: int, source: str, name: str) -> FakeKernel:
        self.calls.append("compile")
        if self.failure:
            raise self.failure
        if self.refuses is not None and source.startswith(self.refuses):
            raise DmlError(f"kernel {name} does not compile for cuda:{device}")
        self.sources.append(source)
        return FakeKernel(source, name)

    def launcher(
        self, device: int, load: Callable[[], FakeKernel], launch: KernelLaunch
    ) -> FakeLauncher:
        return FakeLauncher(self, device, load, launch)

    def empty(self, device: int, shapes: Any, dtype: np.dtype) -> list[FakeArray]:
        stores = ((shape, self._taken(prod(shape) * dtype.itemsize)) for shape in shapes)
        return [FakeArray(np.ndarray(shape, dtype, store), device) for shape, store in stores]

    def strided_view(
        self, array: FakeArray, shape: Sequence[int], strides: Sequence[int]
    ) -> FakeArray:
        view = np.ndarray(shape, array.dtype, array.host, 0, strides)
        return FakeArray(view, array.data.device_id)

    def _taken(self, size: int) -> np.ndarray:
        self.calls.append("allocate")
        if size > self.memory_bytes:
            raise MemoryError(size)
        return self._allocate(size)

    def upload(self, device: int, array: np.ndarray) -> FakeArray:
        self.calls.append("upload")
        return self.array(array, device)

    def download(self, device: int, array: FakeArray) -> np.ndarray:
        self.calls.append("download")
        assert device == array.data.device_id
        return array.host.copy()

    @contextmanager
    def on_stream(self, device: int, handle: int, stream: Any = None) -> Iterator[None]:
        self.calls.append(f"enter {handle}")
        yield
        self.calls.append(f"leave {handle}")

    def device_of(self, address: int) -> int | None:
        self.calls.append("device_of")
        return 1 if address else None

    def wait_for(self, device: int, handle: int) -> None:
        self.calls.append(f"{device} waits for {handle}")

    def from_dlpack(self, array: Any) -> Any:
        self.calls.append("from_dlpack")
        return array.alias

    def dml_error(
        self, error: Exception, device: int, what: str, needed: int | None = None
    ) -> DmlError:
        return OutOfMemoryError(
            f"{what} on cuda:{device}: {needed} bytes are needed, {self.memory_bytes} are free"
        )
