"""Outputs of a packed split: columns of bytes that are the same in every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlsplit.backends.cuda.launch import Constant, KernelLaunch, kernel_launch


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
        Where the columns of each begin, and how many there are, in bytes.
    """

    rows: int
    pitch: int
    outputs: tuple[int, ...]
    offsets: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def first_byte(self) -> int:
        """Where the first output begins."""
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
        """The width, if all are equal; else 0."""
        return self.widths[0] if len(set(self.widths)) == 1 else 0

    @property
    def starts(self) -> tuple[int, ...]:
        """Columns from the first output on, with the end of the last."""
        return (*(offset - self.first_byte for offset in self.offsets), self.row_bytes)

    def take(self, places: Sequence[int]) -> Columns:
        """Return some of the outputs, by their places here."""
        return Columns(
            self.rows,
            self.pitch,
            tuple(self.outputs[i] for i in places),
            tuple(self.offsets[i] for i in places),
            tuple(self.widths[i] for i in places),
        )


def row_launch(
    kernel: str,
    columns: Columns,
    constants: list[Constant],
    grid: int,
    *,
    in_flight: int,
    reason: str,
    shared_bytes: int = 0,
) -> KernelLaunch:
    """Return a launch that writes all outputs of some columns; parameters as in `KernelLaunch`."""
    return kernel_launch(
        kernel,
        columns.outputs,
        constants,
        grid,
        in_flight=in_flight,
        total_bytes=columns.total_bytes,
        reason=reason,
        shared_bytes=shared_bytes,
    )
