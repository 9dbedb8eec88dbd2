"""Calls of cuLaunchKernel with parameters that were packed in advance.

CuPy's RawKernel packs its arguments and looks up the kernel's handle at every call. Here, arguments
are packed when a launch is planned, and addresses when memory is bound. A dispatch passes only the
stream.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.launch import KernelLaunch, pointers
from dmlsplit.backends.cuda.modules import Kernel
from dmlsplit.errors import DmlError

# One launch, bound to memory; takes a stream's handle, or None for CuPy's current stream.
BoundLaunch = Callable[[int | None], None]
INVALID_CONTEXT = 201  # of CUresult, in cuda.h
# A pointer to the kernel's only parameter, for cuLaunchKernel, then the parameter's size, for
# `public_launch`.
_POINTERS = pointers(2)


class _Parameters:
    """A buffer with the kernel's parameter struct, a pointer to the struct, and its size.

    `address` is that of the pointer: the `kernelParams` of cuLaunchKernel.
    """

    __slots__ = ("address", "memory")

    def __init__(self, content: ctypes.Array[ctypes.c_char]) -> None:
        self.memory = type(content).from_buffer_copy(content)
        start, size = ctypes.addressof(self.memory), len(content) - _POINTERS.size
        self.address = start + size
        _POINTERS.pack_into(self.memory, size, start, size)


class Launcher:
    """A planned launch on one device, which can be launched any number of times."""

    def __init__(
        self,
        cuda: Any,  # cupy.cuda
        launch_kernel: Callable[..., None],  # cuLaunchKernel, or `public_launch`
        dml_error: Callable[[Exception, int, str], DmlError],  # Driver's
        device: int,
        load: Callable[[], Kernel],  # loads the kernel, again if it was evicted
        launch: KernelLaunch,
    ) -> None:
        self._cuda, self._dml_error, self._device = cuda, dml_error, device
        self._load, self._grid, self._threads = load, launch.grid, launch.threads
        # Looked up once, because a dispatch takes less than half a microsecond.
        self._launch_kernel = launch_kernel
        self._current_device = cuda.runtime.getDevice
        self._current_stream = cuda.get_current_stream
        self._is_capturing = cuda.runtime.streamIsCapturing
        self._pack = pointers(1 + len(launch.outputs)).pack_into
        content = launch.parameters(()) + bytes(_POINTERS.size)
        # Copied for every binding. As an array of this very length, that takes half the time.
        self._content = (ctypes.c_char * len(content)).from_buffer_copy(content)
        # Parameters that no call of `launch_at` is using. Threads must not share them: the driver
        # reads them while the GIL is released.
        self._free: list[_Parameters] = []

    def bind(self, addresses: Sequence[int]) -> BoundLaunch:
        """Fix the addresses of the input and of each output. The result keeps the kernel loaded."""
        parameters = _Parameters(self._content)
        self._pack(parameters.memory, 0, *addresses)
        return partial(Launcher._launch, self, self._load(), parameters, False)

    def launch_at(self, addresses: Sequence[int], handle: int | None) -> None:
        """Launch on memory at these addresses, on a stream or on CuPy's current one."""
        kernel = self._load()
        try:
            parameters = self._free.pop()
        except IndexError:
            parameters = _Parameters(self._content)
        self._pack(parameters.memory, 0, *addresses)
        self._launch(kernel, parameters, True, handle)
        self._free.append(parameters)

    def _launch(
        self, kernel: Kernel, parameters: _Parameters, is_once: bool, handle: int | None
    ) -> None:
        """Launch on a stream and on the launcher's device, for `launch_at` and bound launches."""
        try:
            if self._current_device() != self._device:
                with self._cuda.Device(self._device):
                    return self._launch(kernel, parameters, is_once, handle)
            stream = self._current_stream().ptr if handle is None else handle
            target, grid, threads = kernel.target, self._grid, self._threads
            address = parameters.address
            try:
                self._launch_kernel(target, grid, 1, 1, threads, 1, 1, 0, stream, address, 0)
            except RuntimeError as error:
                if getattr(error, "status", None) != INVALID_CONTEXT:
                    raise
                # A thread that never used CUDA has no context yet.
                self._cuda.Device(self._device).use()
                self._launch_kernel(target, grid, 1, 1, threads, 1, 1, 0, stream, address, 0)
            # A captured graph does not keep the kernel loaded, and after `launch_at` no bound
            # launch does.
            if is_once and self._is_capturing(stream):
                kernel.keep_loaded()
        except RuntimeError as error:
            raise self._dml_error(error, self._device, "the launch failed") from None


def public_launch(cuda: Any) -> Callable[..., None]:
    """A slower substitute for cuLaunchKernel, made of CuPy's documented API.

    Its kernels are CuPy's Functions instead of handles.
    """

    def launch(function: Any, grid: int, _y: int, _z: int, threads: int, *rest: int) -> None:
        *_, stream, address, _extra = rest
        start, size = _POINTERS.unpack(ctypes.string_at(address, _POINTERS.size))
        # CuPy passes an array of one item by value.
        packed = np.frombuffer(ctypes.string_at(start, size), f"V{size}")
        external = SimpleNamespace(__cuda_stream__=lambda: (0, stream))
        with cuda.Stream.from_external(external):
            function((grid,), (threads,), (packed,))

    return launch
