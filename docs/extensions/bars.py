"""Bar charts of measured times, as tables in HTML: they follow the theme and the window's width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

from tables import RESULTS

from benchmarks import cases
from benchmarks.results import load
from benchmarks.table import duration

_LONGEST = 6.0  # times of dmlsplit; a longer bar is cut, and its number says how long it is
_OURS = "dmlsplit"
_LEFT_OUT = ("plain copy", "dmlsplit, NumPy", "numpy split")  # no peers, or slower than NumPy's own


def cpu() -> str:
    """The time of each library in the seven cases, over that of dmlsplit."""
    rows = [
        row
        for row in load(RESULTS / "cpu-epyc-3.json")["rows"]
        if row["kind"] == cases.CASES and row["status"] == "ok" and row["peer"] not in _LEFT_OUT
    ]
    panels = (_panel(rows, threads) for threads in sorted({row["threads"] for row in rows}))
    return f'<div class="bars">{"".join(panels)}</div>'


def _panel(rows: Sequence[dict[str, Any]], threads: int) -> str:
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["threads"] == threads:
            times.setdefault(row["case"], {})[row["peer"]] = row["seconds"]["median"]
    lines = (line for case, seconds in times.items() for line in _case(case, seconds))
    counted = f"{threads} thread{'s' if threads > 1 else ''}"
    return f"<table><caption>{counted}</caption>{''.join(lines)}</table>"


def _case(case: str, seconds: dict[str, float]) -> Iterator[str]:
    own = seconds[_OURS]
    yield f'<tr><th colspan="2" scope="rowgroup">{escape(case)}</th></tr>'
    for peer, time in sorted(seconds.items(), key=lambda one: one[0] != _OURS):
        ratio = time / own
        kind = "ours" if peer == _OURS else "faster" if ratio < 1 else "slower"
        width = 100 * min(ratio, _LONGEST) / _LONGEST
        text = duration(own) if peer == _OURS else f"{ratio:.2f}"
        bar = f'<span class="{kind}" style="width: {width:.1f}%"></span>'
        yield f"<tr><td>{escape(peer)}</td><td>{bar}<span>{text}</span></td></tr>"


BARS: dict[str, Callable[[], str]] = {"cpu": cpu}
