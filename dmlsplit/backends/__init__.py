"""Engines that carry out a `SplitGeometry`. They see addresses and bytes, nothing else.

A backend compiles a geometry once, binds it to memory, and returns a call that does nothing
but the copy::

    program = backend.compile(geometry)
    copy = program.bind(src, dsts)
    copy(stream)
"""

from collections.abc import Sequence
from typing import Any, Protocol

from dmlsplit.geometry import SplitGeometry


class BoundCopy(Protocol):
    """A program bound to memory, which must stay alive for as long as the copy is used."""

    def __call__(self, stream: Any = None) -> None:
        """Copy. `stream` is for CUDA only, where None is the current stream; the CPU refuses it."""


class Program(Protocol):
    """A compiled geometry."""

    def prepare(self) -> None:
        """Do now what the first copy between aligned addresses would wait for."""

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input (`src`) and of each output."""

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``, but cheaper for a single use."""


class Backend(Protocol):
    """One engine on one device."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:N``."""

    def compile(self, geometry: SplitGeometry) -> Program:
        """The program of a geometry: the costly step, done once."""

    def __hash__(self) -> int:
        """Backends are frozen values: equal ones share compiled programs."""
