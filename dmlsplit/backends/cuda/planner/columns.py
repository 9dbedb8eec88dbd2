"""Outputs of a packed split: columns of bytes that are the same in every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter


@dataclass(frozen=True)
class Columns:
    """Outputs of a row split, in order. There may be hundreds, and calls wait for their plan."""

    rows: int  # of the input
    pitch: int  # bytes from one row to the next
    outputs: tuple[int, ...]  # as indices into the geometry's pieces
    offsets: tuple[int, ...]  # where the columns of each output begin, in bytes
    widths: tuple[int, ...]  # columns of each output, in bytes

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row in all outputs."""
        return sum(self.widths)

    @property
    def total_bytes(self) -> int:
        """Bytes in all outputs."""
        return self.rows * self.row_bytes

    @cached_property
    def equal_width(self) -> int:
        """The width of every output, or 0 if they differ."""
        return self.widths[0] if len(set(self.widths)) == 1 else 0

    @cached_property
    def widest(self) -> int:
        """The width of the widest output."""
        return max(self.widths)

    def take(self, positions: Sequence[int]) -> Columns:
        """Some of the outputs, by their positions here."""
        if len(positions) == len(self.outputs):
            return self
        # Of one position, `itemgetter` would give no tuple.
        chosen = itemgetter(*positions, positions[0])
        taken = (chosen(each)[:-1] for each in (self.outputs, self.offsets, self.widths))
        return Columns(self.rows, self.pitch, *taken)
