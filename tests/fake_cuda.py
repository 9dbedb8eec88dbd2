"""A CUDA driver that records what it is asked, for any machine.

`FakeDriver` stands in for `dmlsplit.backends.cuda.driver.Driver`. Its device memory is host memory,
and a launch moves nothing: what comes out is compared on the simulated card, and on a GPU.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.planner import H200
from dmlsplit.errors import DmlError, OutOfMemoryError
from dmlsplit.geometry import packed_byte_strides

CURRENT_STREAM = 0x51


@dataclass(frozen=True)
class Launched:
    """One call of cuLaunchKernel."""

    device: int
    kernel: str
    grid: int
    block: int
    addresses: tuple[int, ...]  # of the input and of each output
    arguments: bytes
    stream: int


class FakeArray:
    """An array in fake device memory; CuPy's attributes as far as they are used."""

    def __init__(self, host: np.ndarray, device: int, **interface: Any) -> None:
        self.host, self._device = host, device
        self.dtype, self.shape, self.strides = host.dtype, host.shape, host.strides
        self.__cuda_array_interface__ = {
            "data": (host.__array_interface__["data"][0], not host.flags.writeable),
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
    device_limits: DeviceLimits = H200
    calls: list[str] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    failure: DmlError | None = None

    def array(self, value: np.ndarray, device: int = 0, **interface: Any) -> FakeArray:
        """Put a copy, with its strides kept, into device memory at an aligned address."""
        low, high = np.lib.array_utils.byte_bounds(value)
        store = self._allocate(high - low)
        start = value.__array_interface__["data"][0] - low
        store[:] = np.ndarray(high - low, np.uint8, buffer=_bytes_at(low, high - low))
        host = np.ndarray(value.shape, value.dtype, store, start, value.strides)
        return FakeArray(host, device, **interface)

    def _allocate(self, size: int) -> np.ndarray:
        store = np.full(size + 256, 0xEE, np.uint8)
        begin = -store.__array_interface__["data"][0] % 256
        return store[begin : begin + size]

    def limits(self, device: int) -> DeviceLimits:
        return self.device_limits

    def kernel(self, device: int, source: str, name: str) -> tuple[str, str]:
        self.calls.append("compile")
        if self.failure:
            raise self.failure
        self.sources.append(source)
        return source, name

    def bind_launch(
        self,
        device: int,
        kernel: tuple[str, str],
        grid: int,
        block: int,
        parameters: bytes,
    ) -> Callable[[int | None], None]:
        self.calls.append("pack")
        source, name = kernel
        ((outputs,),) = [re.findall(r"kOutputs = (\d+);", source)]
        layout = f"<{1 + int(outputs)}Q"
        addresses, size = struct.unpack_from(layout, parameters), struct.calcsize(layout)
        # A kernel may have room for more outputs.
        while addresses[-1] == 0:
            addresses = addresses[:-1]
        arguments = parameters[size:]
        launch = Launched(device, name, grid, block, addresses, arguments, CURRENT_STREAM)

        def start(handle: int | None) -> None:
            self.calls.append("launch")
            if self.failure:
                raise self.failure
            self.launched.append(launch if handle is None else replace(launch, stream=handle))

        return start

    def empty(
        self,
        device: int,
        shape: Sequence[int],
        dtype: Any,
        strides: Sequence[int] | None,
        size_in_bytes: int,
    ) -> FakeArray:
        self.calls.append("allocate")
        kind = np.dtype(dtype)
        needed = size_in_bytes if strides is not None else prod(shape) * kind.itemsize
        if needed > self.memory_bytes:
            raise MemoryError(needed)
        steps = packed_byte_strides(shape, kind.itemsize) if strides is None else tuple(strides)
        return FakeArray(np.ndarray(shape, kind, self._allocate(needed), 0, steps), device)

    def upload(self, device: int, array: np.ndarray) -> FakeArray:
        self.calls.append("upload")
        return self.array(array, device)

    def download(self, device: int, array: FakeArray) -> np.ndarray:
        self.calls.append("download")
        return array.host.copy()

    @contextmanager
    def on_stream(self, device: int, handle: int, stream: Any = None) -> Iterator[None]:
        self.calls.append(f"enter {handle}")
        yield
        self.calls.append(f"leave {handle}")

    def device_of(self, address: int) -> int:
        self.calls.append("device_of")
        return 1

    def wait_for(self, device: int, handle: int) -> None:
        self.calls.append(f"wait for {handle}")

    def from_dlpack(self, array: Any) -> Any:
        self.calls.append("from_dlpack")
        return array.alias

    def translated(
        self, error: Exception, device: int, what: str, needed: int | None = None
    ) -> DmlError:
        return OutOfMemoryError(
            f"{what} on cuda:{device}: {needed} bytes are needed, {self.memory_bytes} are free"
        )


def _bytes_at(address: int, size: int) -> Any:
    class Memory:
        __array_interface__ = {  # noqa: RUF012
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    return np.asarray(Memory()).data if size else bytearray()
