"""The sweep over sizes as a heat map: a panel for each GPU, a row for each family and placement."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from benchmarks import sweep
from benchmarks.cases import SWEEP
from benchmarks.copies import COPIES

# Limits between shades, and the shades, which get darker in grey print too.
LIMITS = (0, 0.7, 0.8, 0.85, 0.9, 0.95, 1)
SHADES = ("#40004b", "#762a83", "#9970ab", "#c2a5cf", "#d9ead3", "#f7f7f7")
ABSENT = "#ffffff00"
TICK = 8  # sizes between labels

# Fractions of a copy's speed by family and placement, then by size.
Fractions = Mapping[str, Mapping[int, float]]


def predicted(run: Mapping[str, Any]) -> dict[str, Fractions]:
    """The fractions of `model --sweep` by GPU."""
    panels: dict[str, dict[str, dict[int, float]]] = {}
    for row in run["rows"]:
        cells = dict(zip(run["sizes"], row["fractions"], strict=True))
        panels.setdefault(row["gpu"], {})[f"{row['family']}, {row['placement']}"] = cells
    return dict(panels)


def measured(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Fractions]:
    """The fractions of `gpu --sweep`, where a copy was measured as well, by the GPU's name."""
    seconds = {
        (row["case"], row["peer"]): row["seconds"]["median"] for row in rows if row["kind"] == SWEEP
    }
    cells: dict[str, dict[int, float]] = {}
    for case in sweep.cases():
        copies = [seconds.get((case.name, peer)) for peer in COPIES]
        own, copy = seconds.get((case.name, "dmlsplit")), min(filter(None, copies), default=None)
        if own and copy:
            label = case.name.rpartition(", ")[0]
            cells.setdefault(label, {})[round(case.at)] = min(1.0, copy / own)
    return {name: cells} if cells else {}


def heat_map(panels: Mapping[str, Fractions]) -> Figure:
    """Draw fractions of a copy's speed by GPU."""
    labels = list(dict.fromkeys(label for cells in panels.values() for label in cells))
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure((4.6 * columns + 2.4, (0.19 * len(labels) + 0.6) * lines + 0.6))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    colours = ListedColormap(SHADES).with_extremes(bad=ABSENT)
    norm = BoundaryNorm(LIMITS, len(SHADES))
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, (name, cells) in zip(axes.flat, panels.items(), strict=False):
        values = [
            [cells.get(label, {}).get(size, float("nan")) for size in sweep.SIZES]
            for label in labels
        ]
        image = ax.pcolormesh(values, cmap=colours, norm=norm, rasterized=True)
        _decorate(ax, name, labels)
    bar = figure.colorbar(image, ax=axes, shrink=0.5, spacing="uniform")
    bar.set_label("speed / speed of a plain copy of the same number of bytes")
    return figure


def _decorate(ax: Axes, name: str, labels: Sequence[str]) -> None:
    ax.set_title(name)
    ax.set_ylim(len(labels), 0)
    ax.set_yticks([row + 0.5 for row in range(len(labels))], labels)
    ticks = range(0, len(sweep.SIZES), TICK)
    ax.set_xticks([tick + 0.5 for tick in ticks], [sweep.mebibytes(sweep.SIZES[t]) for t in ticks])
