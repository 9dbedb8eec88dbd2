"""Which kernels carry out a geometry, and how they are launched. Pure, and GPU-free.

A plan bakes every size and offset into constants; a launch passes pointers only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What the planner must know of a CUDA device.

    Attributes
    ----------
    sm_count, threads_per_sm : int
        Streaming multiprocessors, and resident threads of each.
    shared_per_sm, shared_per_block : int
        Shared memory, in bytes; per block without opting in.
    l2_bytes : int
        Size of the L2 cache.
    parameter_bytes : int
        Kernel parameters that the driver takes: 32764 since CUDA 12.1, 4096 before.
    """

    sm_count: int
    threads_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    l2_bytes: int
    parameter_bytes: int


H200 = DeviceLimits(132, 2048, 228 << 10, 48 << 10, 60 << 20, 32764)


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of one kernel.

    The kernel's only parameter is a struct by value of 64-bit pointers: the first element of
    the input, then the first element of each output in `outputs`, in that order.

    Attributes
    ----------
    kernel : str
        Its name, and that of its file in ``cuda/``.
    constants : tuple of (str, int or tuple of int)
        Baked into the source by `codegen`.
    outputs : tuple of int
        The outputs it writes, as indices into the geometry's pieces.
    grid, block : int
        Blocks (one dimension) and threads per block.
    shared_bytes : int
        Static shared memory of a block.
    bytes_in_flight : int
        Bytes that one thread has requested before it waits for the first.
    total_bytes : int
        Bytes read, which is also the number of bytes written.
    reason : str
        Why this kernel, in one line.
    """

    kernel: str
    constants: tuple[tuple[str, int | tuple[int, ...]], ...]
    outputs: tuple[int, ...]
    grid: int
    block: int
    shared_bytes: int
    bytes_in_flight: int
    total_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches that carry out a geometry; their order does not matter."""

    launches: tuple[KernelLaunch, ...]
