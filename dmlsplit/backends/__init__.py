"""Engines that carry out a `SplitGeometry`. They see only addresses and bytes.

A backend makes a program of a geometry once. Bound to memory, the program is a call that copies::

    program = backend.compile(geometry)
    copy = program.bind(src, dsts)
    copy(stream)
"""

from collections.abc import Sequence
from typing import Any, Protocol

from dmlsplit.geometry import SplitGeometry


class BoundCopy(Protocol):
    """A program bound to memory, which the caller must keep alive."""

    def __call__(self, stream: Any = None) -> None:
        """Copy on a CUDA stream; None is the current one, and the only choice on the CPU."""


class Program(Protocol):
    """A compiled geometry."""

    def prepare(self, alignment: int = 16) -> None:
        """Compile in advance what copies need at addresses that are multiples of `alignment`."""

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input (`src`) and of each output."""

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``, but cheaper for a single use."""


class Backend(Protocol):
    """One engine on one device: a frozen value, as devices with equal ones share operators."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:N``."""

    def compile(self, geometry: SplitGeometry) -> Program:
        """Make the program that copies a geometry's bytes on this device.

        Its kernels may be compiled later: by `prepare`, or for the first addresses.
        """
