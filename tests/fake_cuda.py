"""A CUDA machine that is made up: `backends.driver` replaced, device memory on the host.

It records every launch. With `build` it carries them out as well: the generated source runs
on the CPU (tests/host_cuda) on copies of the memory, and what it wrote is brought back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlsplit import device, eager
from dmlsplit.backends import cuda, driver
from dmlsplit.backends.kernel_launch import DeviceLimits
from dmlsplit.backends.planning import H200
from dmlsplit.backends.prepacked import Enqueue
from dmlsplit.errors import OutOfMemoryError, UnsupportedError
from host_cuda import harness

# The address of a fake context is its device's number plus this.
CONTEXTS = 1000


class FakeArray:
    """What a CuPy array shows of itself, on host memory."""

    def __init__(self, host: np.ndarray, number: int = 0) -> None:
        self.host = host
        self.number = number

    @property
    def data(self) -> Any:
        """Of the form of `cupy.ndarray.data`."""

        class Pointer:
            ptr = self.host.__array_interface__["data"][0]
            device_id = self.number

        return Pointer

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.host.strides

    @property
    def dtype(self) -> np.dtype:
        return self.host.dtype

    @property
    def ndim(self) -> int:
        return self.host.ndim

    @property
    def device(self) -> str:
        return f"cuda:{self.number}"

    def reshape(self, *shape: Any) -> FakeArray:
        return FakeArray(self.host.reshape(*shape), self.number)

    def view(self, dtype: Any) -> FakeArray:
        return FakeArray(self.host.view(dtype), self.number)

    def copy(self) -> FakeArray:
        return FakeArray(self.host.copy(), self.number)

    def __getitem__(self, key: Any) -> FakeArray:
        return FakeArray(self.host[key], self.number)


class Foreign:
    """An array of another library, which has only ``__cuda_array_interface__``."""

    def __init__(self, host: np.ndarray, number: int = 0, read_only: bool = False) -> None:
        self.host = host
        self.number = number
        interface = host.__array_interface__
        self.__cuda_array_interface__ = {**interface, "data": (interface["data"][0], read_only)}


@dataclass(frozen=True)
class Launched:
    """One call of the driver's launch."""

    kernel: str
    device: int
    grid: int
    block: int
    pointers: tuple[int, ...]
    stream: int


@dataclass
class FakeDriver:
    """The functions of `backends.driver`, and what was done through them.

    Attributes
    ----------
    devices : int
        How many there are; 0 makes the driver refuse.
    parameter_bytes : int
        Kernel parameters that the driver takes.
    free : int
        Bytes that can still be allocated.
    streams : dict
        The current stream of each device.
    refuses : exception or None
        What a launch raises.
    launches, loads : list
        Launches; and names, devices and sources of compiled kernels.
    allocated_on : list of int
        The stream that was current at each allocation.
    calls : list of str
        Everything else that was called.
    """

    devices: int = 2
    parameter_bytes: int = 32764
    free: int = 1 << 40
    streams: dict[int, int] = field(default_factory=dict)
    refuses: Exception | None = None
    build: Callable[[str], harness.Program] | None = None
    launches: list[Launched] = field(default_factory=list)
    loads: list[tuple[str, int, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    allocated_on: list[int] = field(default_factory=list)
    memory: list[np.ndarray] = field(default_factory=list)

    def array(self, host: np.ndarray, number: int = 0) -> FakeArray:
        """Put a copy of an array on a device, at an address that is a multiple of 256."""
        made = self._allocate(host.nbytes)[: host.nbytes].view(host.dtype).reshape(host.shape)
        made[...] = host
        return FakeArray(made, number)

    def _allocate(self, size: int) -> np.ndarray:
        store = np.full(size + 512, 0xEE, np.uint8)
        start = -store.__array_interface__["data"][0] % 256
        memory = store[start : start + size]
        self.memory.append(memory)
        return memory

    # What follows are the functions of `backends.driver`.

    def device_count(self) -> int:
        if not self.devices:
            raise UnsupportedError("CUDA is not available: no driver")
        return self.devices

    def limits(self, device: int) -> DeviceLimits:
        self.calls.append("limits")
        return DeviceLimits(
            H200.sm_count,
            H200.threads_per_sm,
            H200.shared_per_sm,
            H200.shared_per_block,
            H200.l2_bytes,
            self.parameter_bytes,
        )

    def memory_info(self, device: int) -> tuple[int, int]:
        return self.free, 1 << 40

    def pci_bus_id(self, device: int) -> str:
        return "none"

    def current_stream(self, device: int) -> int:
        return self.streams.get(device, 0)

    def load(self, device: int, name: str, source: str) -> driver.Kernel:
        self.loads.append((name, device, source))
        program = self.build(source) if self.build else None
        return driver.Kernel(name, device, CONTEXTS + device, len(self.loads), program)

    def enqueuer(
        self, kernel: driver.Kernel, grid: int, block: int, pointers: Sequence[int]
    ) -> Enqueue:
        self.calls.append("enqueuer")

        def enqueue(stream: int) -> None:
            if self.refuses:
                raise self.refuses
            packed = tuple(pointers)
            self.launches.append(Launched(kernel.name, kernel.device, grid, block, packed, stream))
            if kernel.owner:
                self._execute(kernel.owner, grid, block, packed)

        return enqueue

    @contextmanager
    def on_stream(self, device: int, handle: int) -> Iterator[None]:
        before = self.streams.get(device, 0)
        self.streams[device] = handle
        yield
        self.streams[device] = before

    def is_array(self, value: Any) -> bool:
        return isinstance(value, FakeArray)

    def device_of(self, array: Any) -> int:
        return int(array.number)

    def adopt(self, array: Any) -> FakeArray:
        self.calls.append("adopt")
        return FakeArray(array.host, array.number)

    def borrow(
        self,
        address: int,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: np.dtype,
        owner: Any,
        device: int,
    ) -> FakeArray:
        self.calls.append("borrow")

        class Memory:
            keep = owner
            __array_interface__ = {  # noqa: RUF012
                "data": (address, False),
                "shape": tuple(shape),
                "strides": tuple(strides),
                "typestr": dtype.str,
                "version": 3,
            }

        return FakeArray(np.asarray(Memory()), device)

    def empty(
        self,
        device: int,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        dtype: np.dtype,
        size_in_bytes: int,
    ) -> FakeArray:
        self.calls.append("empty")
        self.allocated_on.append(self.current_stream(device))
        size = int(np.prod(shape)) * dtype.itemsize if strides is None else size_in_bytes
        if size > self.free:
            raise OutOfMemoryError("out of memory")
        self.free -= size
        store = self._allocate(size)
        return FakeArray(np.ndarray(tuple(shape), dtype, store.data, 0, strides), device)

    def upload(self, array: np.ndarray, device: int) -> FakeArray:
        self.calls.append("upload")
        return self.array(array, device)

    def download(self, array: Any) -> np.ndarray:
        self.calls.append("download")
        return np.array(array.host)

    def _execute(
        self, program: harness.Program, grid: int, block: int, pointers: tuple[int, ...]
    ) -> None:
        stores = [self._store(pointer) for pointer in pointers]
        before = [store.copy() for store in stores]
        source, *targets = (
            harness.Buffer(
                store.size,
                pointer - _address(store),
                pointer % 4096,
                ((0, copy),),
                ((0, copy.size),),
            )
            for pointer, store, copy in zip(pointers, stores, before, strict=True)
        )
        done = program.run(grid, block, [source, *targets])
        for store, old, (new,) in zip(stores, before, done.windows, strict=True):
            store[new != old] = new[new != old]

    def _store(self, pointer: int) -> np.ndarray:
        for store in self.memory:
            if _address(store) <= pointer < _address(store) + store.size:
                return store
        raise AssertionError(f"{pointer:#x} lies in no allocation")


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def surface(module: object) -> dict[str, inspect.Signature]:
    """Return the public functions that a driver has, with what they take."""
    return {
        name: inspect.signature(value)
        for name, value in inspect.getmembers(module, callable)
        if getattr(value, "__module__", None) in (driver.__name__, __name__)
        and not name.startswith("_")
        and not inspect.isclass(value)
    }


def forget() -> None:
    """Empty every cache that could hold kernels of a fake or a real device."""
    for cached in (cuda._kernel, device.compiled, device._compile, eager._program):
        cached.cache_clear()


@contextmanager
def fake_machine(**options: Any) -> Iterator[FakeDriver]:
    """Put a fake in the place of `backends.driver`."""
    fake = FakeDriver(**options)
    forget()
    with pytest.MonkeyPatch.context() as patch:
        for name in surface(driver):
            patch.setattr(driver, name, getattr(fake, name))
        yield fake
    forget()


def executing(folder: Path) -> Callable[[str], harness.Program]:
    """Return what builds a source for the CPU, keeping programs in a folder."""
    return lambda source: harness.build([source], folder)[source]
