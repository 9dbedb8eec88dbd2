"""Measured times as a chart in SVG, whose text and lines have the colours of the theme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from math import log10

from tables import RESULTS

from benchmarks import cases
from benchmarks.results import load

# The libraries that run the same split into given outputs, with the shape of their marks.
LIBRARIES = {
    "torch": '<circle class="torch" cx="{x:.1f}" cy="{y}" r="5.5">',
    "onnxruntime": '<rect class="onnxruntime" x="{x:.1f}" y="{y}" width="10" height="10" '
    'transform="translate(-5 -5)">',
    "openvino": '<path class="openvino" d="M{x:.1f} {y} m0 -6 l6 11 h-12 z">',
}
_TICKS = 1, 2, 5, 10, 20, 50, 100
_NAMES, _WIDTH, _ROW, _HEAD = 182, 460, 24, 44  # in pixels: names of cases, all, a row, the top


def cpu() -> str:
    """The time of each library in the seven cases over that of dmlsplit, one panel per thread."""
    rows = load(RESULTS / "cpu-epyc-3.json")["rows"]
    seconds: dict[int, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["kind"] == cases.CASES and row["status"] == "ok":
            times = seconds.setdefault(row["threads"], {}).setdefault(row["case"], {})
            times[row["peer"]] = row["seconds"]["median"]
    return f'<div class="chart">{"".join(_panel(*item) for item in sorted(seconds.items()))}</div>'


def _panel(threads: int, times: Mapping[str, Mapping[str, float]]) -> str:
    height = _HEAD + _ROW * len(times) + 22
    title = f"{threads} thread{'s' if threads > 1 else ''}"
    parts = [f'<text class="title" x="0" y="14">{title}</text>', *_legend(), *_axis(height)]
    for i, (case, own) in enumerate(times.items()):
        y = _HEAD + _ROW * i + _ROW // 2
        parts.append(f'<text x="0" y="{y + 4}">{escape(case)}</text>')
        parts += (_mark(name, y, own[name] / own["dmlsplit"]) for name in LIBRARIES if name in own)
    label = f"Times of other libraries over those of dmlsplit, {title}; the table has the numbers"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {height}">'
        f"{''.join(parts)}</svg>"
    )


def _axis(height: int) -> Iterator[str]:
    for tick in _TICKS:
        kind, x = ("one" if tick == 1 else "tick"), _x(tick)
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD}" y2="{height - 20}"/>'
        yield f'<text class="number" x="{x:.1f}" y="{height - 5}">{tick}</text>'


def _legend() -> Iterator[str]:
    for x, name in zip((_NAMES + 8, _NAMES + 75, _NAMES + 190), LIBRARIES, strict=True):
        yield f'{_shape(name, x, 26)}<text x="{x + 10}" y="30">{name}</text>'


def _mark(name: str, y: int, ratio: float) -> str:
    return _shape(name, _x(ratio), y, f"{name}: {ratio:.2f}")


def _shape(name: str, x: float, y: int, title: str = "") -> str:
    shape = LIBRARIES[name].format(x=x, y=y)
    return f"{shape}<title>{title or name}</title></{shape[1:].split()[0]}>"


def _x(ratio: float) -> float:
    """The place of a ratio on the logarithmic axis, which begins at 0.8."""
    share = log10(ratio / 0.8) / log10(_TICKS[-1] / 0.8)
    return _NAMES + (_WIDTH - _NAMES - 12) * share


CHARTS: dict[str, Callable[[], str]] = {"cpu": cpu}
