"""Engines that carry out a `SplitGeometry`. They see addresses and bytes, nothing else.

A backend compiles a geometry once, binds it to memory, and returns a launch that does
nothing but the copy::

    program = backend.compile(geometry)
    launch = program.bind(source_address, target_addresses)
    launch(stream)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dmlsplit.geometry import SplitGeometry


class Launch(Protocol):
    """A bound program. The memory it was bound to must stay alive while it is used."""

    def __call__(self, stream: Any = None) -> None:
        """Copy. `stream` is meaningful to CUDA only; None is the current one."""


class Program(Protocol):
    """A compiled geometry."""

    def bind(self, source: int, targets: Sequence[int]) -> Launch:
        """Fix the address of the first element of the input and of each output."""


class Backend(Protocol):
    """One engine on one device."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:N``."""

    def compile(self, geometry: SplitGeometry) -> Program:
        """Make a program of a geometry; the costly step, done once."""

    def __hash__(self) -> int:
        """Backends are frozen values: equal ones share compiled programs."""
