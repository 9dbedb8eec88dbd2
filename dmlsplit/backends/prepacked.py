"""A launch whose parameters are packed once: what is left for a dispatch is one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

Enqueue = Callable[[int], None]


class Entries(Protocol):
    """What is called of the driver; CuPy has it as `cupy_backends.cuda.api.driver`."""

    @property
    def launchKernel(self) -> Callable[..., None]:  # noqa: N802
        """Do what cuLaunchKernel does, with handles and addresses as integers."""

    @property
    def ctxGetCurrent(self) -> Callable[[], int]:  # noqa: N802
        """Return the current CUcontext of the thread; 0 is none."""

    @property
    def ctxSetCurrent(self) -> Callable[[int], None]:  # noqa: N802
        """Make a CUcontext current."""

    @property
    def CUDADriverError(self) -> type[Exception]:  # noqa: N802
        """What they raise."""


def prepacked(
    entries: Entries,
    function: int,
    context: int,
    grid: int,
    block: int,
    pointers: Sequence[int],
    explain: Callable[[Exception], Exception],
) -> Enqueue:
    """Return what puts a launch on a stream, given the stream's handle.

    Parameters
    ----------
    entries
        The driver.
    function, context
        CUfunction, and the CUcontext that it was loaded into.
    grid, block
        Blocks, and threads per block.
    pointers
        The kernel's only parameter: a struct by value.
    explain
        Turns an error of the driver into the one to raise.
    """
    parameter = np.array(pointers, np.uint64)
    parameters = np.array([parameter.ctypes.data], np.uint64)
    where = parameters.ctypes.data
    launch_kernel, current = entries.launchKernel, entries.ctxGetCurrent

    # The default keeps the packed memory alive.
    def enqueue(stream: int, _keep: Any = (parameter, parameters)) -> None:
        try:
            found = current()
            if found == context:
                launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream, where, 0)
            else:
                elsewhere(found, stream)
        except entries.CUDADriverError as error:
            raise explain(error) from None

    def elsewhere(found: int, stream: int) -> None:
        """Launch where another device is current, or a thread has used none yet."""
        entries.ctxSetCurrent(context)
        try:
            launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream, where, 0)
        finally:
            entries.ctxSetCurrent(found)

    return enqueue
