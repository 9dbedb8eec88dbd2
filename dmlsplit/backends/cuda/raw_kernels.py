"""Kernels as `cupy.RawKernel`, launched with one struct by value.

CuPy chooses the architecture, compiles, keeps compiled kernels on disk, and loads them. A loaded
kernel stays loaded until the process ends, so a captured graph may outlive its operator.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.launch import KernelLaunch, pointers
from dmlsplit.backends.cuda.specialization import POINTER_BYTES
from dmlsplit.backends.cuda.streams import external_stream
from dmlsplit.errors import DmlError, UnsupportedError

# One launch, bound to memory; takes a stream's handle, or None for CuPy's current stream.
BoundLaunch = Callable[[int | None], None]
OPTIONS = ("-std=c++17",)


class RawKernels:
    """The loaded kernels of all devices, by source.

    `on_device` makes a device current and translates CUDA's errors; its second argument says what
    failed.
    """

    def __init__(
        self, cupy: Any, on_device: Callable[[int, str], AbstractContextManager[object]]
    ) -> None:
        self._cupy = cupy
        self._on_device = on_device
        self._kernels: dict[tuple[int, str], Any] = {}
        # Reentrant, because a signal handler may split.
        self._loading = RLock()

    def loaded(self, device: int, source: str) -> Any | None:
        """The kernel of a source, if it is loaded on a device."""
        return self._kernels.get((device, source))

    def load(self, device: int, source: str, name: str) -> Any:
        """The kernel of a source, loaded on a device."""
        # Without the lock, each of several threads would load the kernel, and CuPy would unload
        # all but one of the modules, which a capture forbids.
        with self._loading:
            if (kernel := self.loaded(device, source)) is None:
                kernel = self._kernels[device, source] = self._load(device, source, name)
        return kernel

    def _load(self, device: int, source: str, name: str) -> Any:
        """A kernel that CuPy compiles, or reads from its cache, and loads on a device."""
        kernel = self._cupy.RawKernel(source, name, OPTIONS)
        cuda = self._cupy.cuda
        with self._on_device(device, f"kernel {name} cannot be loaded"):
            try:
                # Reading an attribute loads the code. The driver would load it at the first launch
                # otherwise, which a capture forbids before CUDA 12.3 (CUDA programming guide, "Lazy
                # Loading").
                _ = kernel.num_regs
            except (cuda.compiler.CompileException, cuda.nvrtc.NVRTCError) as error:
                raise DmlError(
                    f"kernel {name} does not compile for cuda:{device}; please report this bug of "
                    f"dmlsplit, with what NVRTC says:\n{error}"
                ) from None
            except OSError as error:
                raise UnsupportedError(
                    f"CuPy cannot write kernel {name} to its cache: {error}. Fix: set "
                    "CUPY_CACHE_DIR to a folder that can be written, or CUPY_CACHE_IN_MEMORY=1"
                ) from None
        return kernel


class Launcher:
    """A planned launch on one device, which can be launched any number of times."""

    def __init__(
        self,
        cuda: Any,  # cupy.cuda
        dml_error: Callable[[Exception, int, str], DmlError],  # Driver's
        device: int,
        kernel: Any,  # loaded on the device
        launch: KernelLaunch,
    ) -> None:
        self._cuda = cuda
        self._dml_error = dml_error
        self._device = device
        self._kernel = kernel
        self._grid = (launch.grid,)
        self._block = (launch.threads,)
        # Looked up once, because a dispatch takes about a microsecond.
        self._current_device = cuda.runtime.getDevice
        addresses = 1 + len(launch.outputs)
        self._pack = pointers(addresses).pack
        self._rest = launch.parameters(())[addresses * POINTER_BYTES :]

    def bind(self, addresses: Sequence[int]) -> BoundLaunch:
        """Fix the addresses of the input and of each output."""
        return partial(self._launch, self._packed(addresses))

    def launch_at(self, addresses: Sequence[int], handle: int | None) -> None:
        """Launch on memory at these addresses, on a stream or on CuPy's current one."""
        self._launch(self._packed(addresses), handle)

    def _packed(self, addresses: Sequence[int]) -> tuple[np.void]:
        """The arguments of the kernel: one struct."""
        # CuPy passes a scalar of type void by value. Threads may share it: nothing writes to it.
        return (np.void(self._pack(*addresses) + self._rest),)

    def _launch(self, arguments: tuple[np.void], handle: int | None) -> None:
        """Launch on the device, which is made current first if another one is."""
        try:
            if self._current_device() != self._device:
                with self._cuda.Device(self._device):
                    self._launch(arguments, handle)
            elif handle is None:
                self._kernel(self._grid, self._block, arguments)
            else:
                with external_stream(self._cuda, handle):
                    self._kernel(self._grid, self._block, arguments)
        except RuntimeError as error:
            raise self._dml_error(error, self._device, "the launch failed") from None
