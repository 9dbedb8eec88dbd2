"""Calls of cuLaunchKernel with parameters that were packed in advance.

CuPy's RawKernel packs its arguments and looks up the kernel's handle at every call. Here arguments
are packed when a launch is planned and addresses when memory is bound; a dispatch passes only the
stream.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.launch import COUNT_64, KernelLaunch, struct_of
from dmlsplit.backends.cuda.modules import Kernel
from dmlsplit.errors import DmlError

# One launch, bound to memory; takes a stream's handle, or None for CuPy's current stream.
BoundLaunch = Callable[[int | None], None]
INVALID_CONTEXT = 201  # of CUresult, in cuda.h
# cuLaunchKernel reads one address per parameter; the size follows for `public_launch`.
_Pointers = ctypes.c_uint64 * 2


class _Parameters:
    """The struct of parameters, and the address of its address, which the driver reads."""

    __slots__ = ("_pointers", "address", "block")

    def __init__(self, content: bytes) -> None:
        self.block = ctypes.create_string_buffer(content, len(content))
        self._pointers = _Pointers(ctypes.addressof(self.block), len(content))
        self.address = ctypes.addressof(self._pointers)


class Launcher:
    """One launch on one device, which can be sent any number of times."""

    def __init__(
        self,
        cuda: Any,  # cupy.cuda
        launch_kernel: Callable[..., None],  # cuLaunchKernel, or `public_launch`
        translated: Callable[[Exception, int, str], DmlError],  # Driver's
        device: int,
        load: Callable[[], Kernel],  # loads it again after it was evicted
        launch: KernelLaunch,
    ) -> None:
        self._cuda, self._translated, self._device = cuda, translated, device
        self._load, self._grid, self._block = load, launch.grid, launch.block
        # Looked up once, because a dispatch takes less than half a microsecond.
        self._launch_kernel = launch_kernel
        self._current_device = cuda.runtime.getDevice
        self._current_stream = cuda.get_current_stream
        self._is_capturing = cuda.runtime.streamIsCapturing
        self._pack = struct_of(COUNT_64, 1 + len(launch.outputs)).pack_into
        self._content = launch.parameters(())
        # Parameters that no call of `once` is using. Threads must not share them: the driver reads
        # them without the interpreter's lock.
        self._free: list[_Parameters] = []

    def bind(self, addresses: Sequence[int]) -> BoundLaunch:
        """Fix the addresses of the input and of each output. The result keeps the kernel loaded."""
        parameters = _Parameters(self._content)
        self._pack(parameters.block, 0, *addresses)
        return partial(self._launch, self._send, self._load(), parameters)

    def once(self, addresses: Sequence[int], handle: int | None) -> None:
        """Launch on memory at these addresses, on a stream or on CuPy's current one."""
        kernel = self._load()
        try:
            parameters = self._free.pop()
        except IndexError:
            parameters = _Parameters(self._content)
        self._pack(parameters.block, 0, *addresses)
        self._launch(self._send_once, kernel, parameters, handle)
        self._free.append(parameters)

    def _launch(
        self,
        send: Callable[[Kernel, _Parameters, int | None], None],
        kernel: Kernel,
        parameters: _Parameters,
        handle: int | None,
    ) -> None:
        """Launch on a stream, on this launch's own device."""
        try:
            if self._current_device() == self._device:
                send(kernel, parameters, handle)
            else:
                with self._cuda.Device(self._device):
                    send(kernel, parameters, handle)
        except RuntimeError as error:
            raise self._translated(error, self._device, "the launch failed") from None

    def _send_once(self, kernel: Kernel, parameters: _Parameters, handle: int | None) -> None:
        stream = self._current_stream().ptr if handle is None else handle
        self._send(kernel, parameters, stream)
        if self._is_capturing(stream):
            # Neither the graph nor a bound operator keeps the kernel loaded.
            kernel.keep_loaded()

    def _send(self, kernel: Kernel, parameters: _Parameters, handle: int | None) -> None:
        stream = self._current_stream().ptr if handle is None else handle
        target, address = kernel.target, parameters.address
        grid, block = self._grid, self._block
        try:
            self._launch_kernel(target, grid, 1, 1, block, 1, 1, 0, stream, address, 0)
        except RuntimeError as error:
            if getattr(error, "status", None) != INVALID_CONTEXT:
                raise
            # A thread that never used CUDA has no context yet.
            self._cuda.Device(self._device).use()
            self._launch_kernel(target, grid, 1, 1, block, 1, 1, 0, stream, address, 0)


def public_launch(cuda: Any) -> Callable[..., None]:
    """A cuLaunchKernel from CuPy's documented API. Several times slower; takes a Function."""

    def launch(function: Any, grid: int, _y: int, _z: int, block: int, *rest: int) -> None:
        *_, stream, address, _extra = rest
        start, size = _Pointers.from_address(address)
        # CuPy passes an array of one item by value.
        packed = np.frombuffer(ctypes.string_at(start, size), f"V{size}")
        on = SimpleNamespace(__cuda_stream__=lambda: (0, stream))
        with cuda.Stream.from_external(on):
            function((grid,), (block,), (packed,))

    return launch
