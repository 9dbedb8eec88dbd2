"""A call of cuLaunchKernel whose parameters are packed once, when memory is bound.

CuPy's RawKernel packs its arguments and looks up the kernel's handle at every call, although only
the stream changes from one dispatch to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.failures import INVALID_CONTEXT
from dmlsplit.errors import DmlError

# One launch, bound to memory; takes a stream's handle, or None for CuPy's current stream.
BoundLaunch = Callable[[int | None], None]


class PackedLaunch:
    """A kernel's launch on memory that it was bound to. Its method `launch` is a `BoundLaunch`.

    The driver reads the parameters at every launch, through raw pointers: cuLaunchKernel gets the
    address of an array that holds the address of the `parameters`. This object keeps both and the
    kernel alive, and a bound method keeps this object.
    """

    def __init__(
        self,
        cuda: Any,  # cupy.cuda
        launch_kernel: Callable[..., None],  # cuLaunchKernel
        translated: Callable[[Exception, int, str], DmlError],  # Driver's
        kernel: Any,
        function: int,  # the kernel's handle on the device; the kernel owns it
        device: int,
        grid: int,
        block: int,
        parameters: bytes,  # the only one: a struct by value
    ) -> None:
        block_bytes = np.frombuffer(parameters, np.uint64)
        pointers = np.array([block_bytes.ctypes.data], np.uint64)
        self._alive = kernel, block_bytes, pointers
        self._address = pointers.ctypes.data
        self._cuda, self._translated, self._device = cuda, translated, device
        # Looked up once: a dispatch takes less than half a microsecond.
        self._current_device = cuda.runtime.getDevice
        self._current_stream = cuda.get_current_stream
        self._launch = partial(launch_kernel, function, grid, 1, 1, block, 1, 1, 0)

    def launch(self, handle: int | None) -> None:
        """Launch on a stream, on this launch's own device."""
        try:
            if self._current_device() == self._device:
                self._launch_here(handle)
            else:
                with self._cuda.Device(self._device):
                    self._launch_here(handle)
        except RuntimeError as error:
            raise self._translated(error, self._device, "the launch failed") from None

    def _launch_here(self, handle: int | None) -> None:
        stream = self._current_stream().ptr if handle is None else handle
        try:
            self._launch(stream, self._address, 0)
        except RuntimeError as error:
            if getattr(error, "status", None) != INVALID_CONTEXT:
                raise
            # A thread that never used CUDA has no context yet.
            self._cuda.Device(self._device).use()
            self._launch(stream, self._address, 0)
