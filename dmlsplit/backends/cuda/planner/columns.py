"""Outputs of a packed split, as columns of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Columns:
    """Outputs of a row split, in order."""

    rows: int  # of the input
    pitch: int  # bytes from one row to the next
    outputs: tuple[int, ...]  # as indices into the geometry's pieces
    offsets: tuple[int, ...]  # where the columns of each output begin, in bytes
    widths: tuple[int, ...]  # columns of each output, in bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in all outputs."""
        return sum(self.widths)

    @property
    def total_bytes(self) -> int:
        """Bytes in all outputs."""
        return self.rows * self.row_bytes

    @property
    def equal_width(self) -> int:
        """The width of every output, or 0 if they differ."""
        return self.widths[0] if len(set(self.widths)) == 1 else 0

    def take(self, positions: Sequence[int]) -> Columns:
        """Some of the outputs, by their positions here."""
        return Columns(
            self.rows,
            self.pitch,
            tuple(self.outputs[i] for i in positions),
            tuple(self.offsets[i] for i in positions),
            tuple(self.widths[i] for i in positions),
        )
