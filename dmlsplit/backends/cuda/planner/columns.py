"""Outputs of a packed split: columns of bytes that are the same in every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Columns:
    """Outputs of a row split, in order.

    Attributes
    ----------
    rows, pitch : int
        Rows of the input, and their length in bytes.
    outputs : tuple of int
        The outputs, as indices into the geometry's pieces.
    offsets, widths : tuple of int
        Where the columns of each output begin, and how many there are, in bytes.
    """

    rows: int
    pitch: int
    outputs: tuple[int, ...]
    offsets: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def first_byte(self) -> int:
        """Column at which the first output begins."""
        return self.offsets[0]

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

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each output begins, from the first output on, and where the last one ends.

        Right only if there is no gap between outputs.
        """
        return (*(offset - self.first_byte for offset in self.offsets), self.row_bytes)

    def take(self, positions: Sequence[int]) -> Columns:
        """Return some of the outputs, by their positions here."""
        return Columns(
            self.rows,
            self.pitch,
            tuple(self.outputs[i] for i in positions),
            tuple(self.offsets[i] for i in positions),
            tuple(self.widths[i] for i in positions),
        )
