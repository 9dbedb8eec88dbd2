"""A call of cuLaunchKernel whose parameters are packed once, when memory is bound.

CuPy's RawKernel packs its arguments and looks up the kernel's handle at every call, although only
the stream changes from one dispatch to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    address of `_parameters`, which holds the address of `_table`. This object keeps both and the
    kernel alive, and a bound method keeps this object.

    Parameters
    ----------
    launch_kernel, current_device, current_stream, use_device, translated
        The calls of CUDA, CuPy and `Driver` that a launch makes.
    device, function
        The device's ordinal and the kernel's handle on it.
    grid, block
        Blocks, and threads per block.
    addresses
        The kernel's only parameter: a struct of pointers, by value.
    kernel
        The object that owns `function`.
    """

    __slots__ = (
        "_current_device",
        "_current_stream",
        "_device",
        "_kernel",
        "_launch_kernel",
        "_parameters",
        "_parameters_address",
        "_table",
        "_translated",
        "_use_device",
    )

    def __init__(
        self,
        *,
        launch_kernel: Callable[..., None],
        current_device: Callable[[], int],
        current_stream: Callable[[], Any],
        use_device: Callable[[int], Any],
        translated: Callable[[Exception, int, str], DmlError],
        device: int,
        function: int,
        grid: int,
        block: int,
        addresses: Sequence[int],
        kernel: Any = None,
    ) -> None:
        self._launch_kernel = partial(launch_kernel, function, grid, 1, 1, block, 1, 1, 0)
        self._current_device, self._current_stream = current_device, current_stream
        self._use_device, self._translated = use_device, translated
        self._device, self._kernel = device, kernel
        self._table = np.array(addresses, np.uint64)
        self._parameters = np.array([self._table.ctypes.data], np.uint64)
        self._parameters_address = self._parameters.ctypes.data

    def launch(self, handle: int | None) -> None:
        """Launch on a stream, on this launch's own device."""
        try:
            if self._current_device() == self._device:
                self._launch_here(handle)
            else:
                with self._use_device(self._device):
                    self._launch_here(handle)
        except RuntimeError as error:
            raise self._translated(error, self._device, "the launch failed") from None

    def _launch_here(self, handle: int | None) -> None:
        stream = self._current_stream().ptr if handle is None else handle
        try:
            self._launch_kernel(stream, self._parameters_address, 0)
        except RuntimeError as error:
            if getattr(error, "status", None) != INVALID_CONTEXT:
                raise
            # A thread that never used CUDA has no context yet.
            self._use_device(self._device).use()
            self._launch_kernel(stream, self._parameters_address, 0)
