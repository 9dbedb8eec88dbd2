"""The live table: one line per finished row, and a progress bar on a terminal."""

import sys
from typing import Any

from tqdm import tqdm

Row = dict[str, Any]


class Table:
    """Prints rows as they finish. Ratios are relative to the peer `reference` on the same case."""

    def __init__(self, total: int, reference: str) -> None:
        self._bar = tqdm(total=total, unit="case", disable=not sys.stderr.isatty())
        self._total = total
        self._done = 0
        self._reference = reference
        self._base: dict[tuple[Any, ...], float] = {}
        tqdm.write(heading())

    def add(self, row: Row) -> None:
        """Print a row."""
        key = (row["case"], row.get("threads"))
        if row["status"] == "ok" and row["peer"] == self._reference:
            self._base[key] = row["seconds"]["median"]
        tqdm.write(line(row, self._base.get(key)) + f"   [{self._done + 1}/{self._total}]")

    def advance(self) -> None:
        """Count a case as finished."""
        self._done += 1
        self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


def heading() -> str:
    """The names of the columns."""
    columns = f"{'case':30} {'threads':>7} {'peer':22} {'time':>11}"
    return f"{columns} {'spread':>7} {'GB/s':>8} {'ratio':>6}"


def line(row: Row, base: float | None) -> str:
    """A row as text; `ratio` is its time over the reference's."""
    start = f"{row['case'][:30]:30} {row.get('threads') or '':>7} {row['peer'][:22]:22}"
    if row["status"] != "ok":
        return f"{start} {row['status']}: {row['message'][:80]}"
    seconds = row["seconds"]
    median = seconds["median"]
    spread = (seconds["p80"] - seconds["p20"]) / (2 * median)
    ratio = f"{median / base:6.2f}" if base else " " * 6
    text = f"{start} {duration(median):>11} {spread:7.1%} {row['gb_per_s']:8.1f} {ratio}"
    if "host_seconds" in row:
        text += f"  host {duration(row['host_seconds']['median'])}, {row['mode']}"
    return text


def duration(seconds: float) -> str:
    """A time with three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
