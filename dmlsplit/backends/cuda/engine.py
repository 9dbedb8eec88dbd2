"""The CUDA engine: a plan's kernels, compiled once, launched with pointers and sizes by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.codegen import source as kernel_source
from dmlsplit.backends.cuda.driver import Driver
from dmlsplit.backends.cuda.launch import VECTOR, DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.errors import UnsupportedError
from dmlsplit.geometry import SplitGeometry

Variant = tuple[tuple[KernelLaunch, Any], ...]


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """A compiled geometry: one variant for each alignment of the memory it was bound to."""

    driver: Driver
    device: int
    limits: DeviceLimits
    geometry: SplitGeometry
    variants: dict[tuple[int, int], Variant] = field(default_factory=dict)

    def variant(self, input_alignment: int, output_alignment: int) -> Variant:
        """Return the launches and compiled kernels for an alignment, in bytes, of the memory."""
        key = input_alignment, output_alignment
        if key not in self.variants:
            launches = plan(self.geometry, *key, self.limits).launches
            self.variants[key] = tuple(
                (launch, self.driver.kernel(self.device, kernel_source(launch), launch.kernel))
                for launch in launches
            )
        return self.variants[key]

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the address of the first element of the input and of each output.

        The alignment of the addresses, up to 16, chooses the kernels; a new one compiles them here.
        """
        device, bind_launch = self.device, self.driver.bind_launch
        pieces = zip(dsts, self.geometry.pieces, strict=True)
        written = [dst for dst, piece in pieces if piece.run_bytes]
        launches = []
        for launch, kernel in self.variant(gcd(VECTOR, src), gcd(VECTOR, *written)):
            addresses = [src, *(dsts[output] for output in launch.outputs)]
            parameters = launch.parameters(addresses)
            launches.append(bind_launch(device, kernel, launch.grid, launch.block, parameters))

        def copy(stream: Any = None) -> None:
            handle = None if stream is None else stream_handle(stream, device)
            for start in launches:
                start(handle)

        return copy


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """The engine of ``Device("cuda:N")``.

    Raises
    ------
    UnsupportedError
        If CuPy, the CUDA driver or the device is missing.
    """

    number: int = 0

    def __post_init__(self) -> None:
        count = driver.load().device_count
        if self.number >= count:
            raise UnsupportedError(
                f"device is 'cuda:{self.number}'; there are {count}, from cuda:0 to "
                f"cuda:{count - 1}"
            )

    @property
    def device(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.number}"

    def compile(self, geometry: SplitGeometry) -> CudaProgram:
        """Return the program of a geometry, with its kernels for aligned memory compiled."""
        found = driver.load()
        program = CudaProgram(found, self.number, found.limits(self.number), geometry)
        program.variant(VECTOR, VECTOR)
        return program
