"""`python -m benchmarks plot RESULTS.json`: the figures of one run, as SVG and PNG.

Every peer has its own marker, line and shade, so that figures can be read in grey print.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.cases import CASES, CHANNELS, OUTPUTS, ROW_WIDTH, SIZE, SWEEP
from benchmarks.heat_map import heat_map, measured, predicted
from benchmarks.results import ResultsError

Row = dict[str, Any]
COPIES = ("plain copy", "memcpy", "copy kernel", "copy kernel, 256 bits")
SWEEPS = {
    ROW_WIDTH: "bytes of a row of one output",
    SIZE: "bytes of the input",
    CHANNELS: "bytes of the input, two halves of its channels",
    OUTPUTS: "number of outputs",
}
_MARKERS = "sD^vPX<>ph*d"
_DASHES: list[Any] = ["-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1, 5, 1))]
_OURS = {"color": "black", "marker": "o", "linestyle": "-", "linewidth": 2.2, "zorder": 5}


def plot(run: dict[str, Any], folder: Path, stem: str) -> list[Path]:
    """Draw every figure that a run has rows for; return the files.

    Raises
    ------
    ResultsError
        If the run has no rows to draw.
    """
    mpl.rcParams.update({"svg.hashsalt": "dmlsplit", "font.size": 9, "figure.dpi": 100})
    is_sweep = run["kind"] == SWEEP
    rows = [] if is_sweep else [row for row in run["rows"] if row["status"] == "ok"]
    styles = _styles(rows)
    is_latency = run["kind"] == "host"
    figures: dict[str, Figure] = {}
    panels = predicted(run) if is_sweep else measured(rows, _machine(run))
    if panels:
        figures["sweep"] = heat_map(panels)
    cases = [row for row in rows if row["kind"] == CASES]
    if cases:
        figures["cases"] = _fractions(cases, styles)
    for kind, label in SWEEPS.items():
        points = [row for row in rows if row["kind"] == kind]
        if points:
            figures[kind.replace(" ", "-")] = _sweep(points, label, styles, is_latency)
    if not figures:
        raise ResultsError("no finished rows to draw")
    folder.mkdir(parents=True, exist_ok=True)
    return [
        path
        for name, figure in figures.items()
        for path in _save(figure, folder / f"{stem}-{name}", _caption(run))
    ]


def _styles(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The style of each peer: ours black, copies grey without markers, the others by order."""
    styles: dict[str, dict[str, Any]] = {}
    others = 0
    peers = dict.fromkeys(row["peer"] for row in rows)
    for peer in peers:
        if peer == "dmlsplit":
            styles[peer] = dict(_OURS)
        elif peer in COPIES:
            dash = ":" if peer == "copy kernel" else "-"
            styles[peer] = {"color": "0.7", "linewidth": 3, "linestyle": dash, "zorder": 1}
        else:
            shade = mpl.colormaps["viridis"](0.85 * others / len(peers))
            styles[peer] = {
                "color": shade,
                "marker": _MARKERS[others % len(_MARKERS)],
                "linestyle": _DASHES[others % len(_DASHES)],
                "linewidth": 1.2,
                "markerfacecolor": "white" if others % 2 else shade,
            }
            others += 1
    return styles


def _panels(rows: Sequence[Row]) -> list[int | None]:
    return sorted({row.get("threads") for row in rows}, key=lambda count: count or 0)


def _title(threads: int | None) -> str:
    return "" if threads is None else f"{threads} thread{'s' if threads > 1 else ''}"


def _fractions(rows: Sequence[Row], styles: dict[str, dict[str, Any]]) -> Figure:
    """Draw, per case, each peer's speed as a fraction of the plain copy's."""
    names = list(dict.fromkeys(row["case"] for row in rows))
    panels = _panels(rows)
    figure = Figure((4.2 * len(panels) + 2.6, 0.34 * len(names) + 2.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, threads in zip(axes, panels, strict=True):
        for peer, style in styles.items():
            if peer in COPIES:
                continue
            points = [
                (ceiling / row["seconds"]["median"], names.index(row["case"]))
                for row in rows
                if row["peer"] == peer
                and row.get("threads") == threads
                and (ceiling := _ceiling(rows, row["case"]))
            ]
            if points:
                ax.plot(*zip(*points, strict=True), **{**style, "linestyle": ""}, label=peer)
        ax.axvline(1, color="0.6", linewidth=3, zorder=0, label="plain copy")
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.grid(axis="y", color="0.9")
        ax.set_xlabel("speed / speed of a plain copy of the same number of bytes")
        ax.set_title(_title(threads))
    _legend(figure, axes)
    return figure


def _ceiling(rows: Sequence[Row], case: str) -> float | None:
    """The time of the fastest plain copy of a case; on the CPU it has one thread."""
    times = [
        row["seconds"]["median"] for row in rows if row["case"] == case and row["peer"] in COPIES
    ]
    return min(times) if times else None


def _sweep(
    rows: Sequence[Row], label: str, styles: dict[str, dict[str, Any]], is_latency: bool
) -> Figure:
    value: Callable[[Row], float]
    if is_latency:
        value, unit = (lambda row: row["seconds"]["median"] * 1e6), "host time per call, us"
    else:
        value, unit = (lambda row: row["gb_per_s"]), "GB/s, read and written"
    panels = _panels(rows)
    figure = Figure((4.4 * len(panels) + 2.2, 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, threads in zip(axes, panels, strict=True):
        for peer, style in styles.items():
            # A plain copy has one thread, and is the yardstick in every panel.
            points = sorted(
                (row["at"], value(row))
                for row in rows
                if row["peer"] == peer and (row.get("threads") == threads or peer in COPIES)
            )
            if points:
                ax.plot(*zip(*points, strict=True), **style, markersize=5, label=peer)
        _decorate(ax, unit, _title(threads), is_latency)
        ax.set_xlabel(label)
        is_count = label == SWEEPS[OUTPUTS]
        ax.xaxis.set_major_formatter(lambda x, _, plain=is_count: f"{x:g}" if plain else _bytes(x))
    _legend(figure, axes)
    return figure


def _decorate(ax: Axes, unit: str, title: str, is_latency: bool) -> None:
    ax.set_xscale("log", base=2)
    if is_latency:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    ax.set_ylabel(unit)
    ax.set_title(title)
    ax.grid(color="0.9")


def _bytes(value: float) -> str:
    for scale, suffix in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if value >= scale:
            return f"{value / scale:g} {suffix}"
    return f"{value:g}"


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(
        entries.values(), entries.keys(), loc="outside right upper", frameon=False, handlelength=3.5
    )


def _caption(run: dict[str, Any]) -> str:
    environment = run["environment"]
    machine = "predicted" if run["kind"] == SWEEP else _machine(run)
    commit = environment.get("commit") or "no commit"
    changed = "+" if commit.endswith("+") else ""  # the tree had changes
    return f"{machine}, commit {commit[:10]}{changed}, {environment['time'][:10]}"


def _machine(run: dict[str, Any]) -> str:
    """The card, or else the processor."""
    environment = run["environment"]
    card = environment.get("card") or {}
    return str(card.get("name") or environment["machine"]["processor"])


def _save(figure: Figure, path: Path, caption: str) -> list[Path]:
    figure.supxlabel(caption, fontsize=7, color="0.4", x=0.01, ha="left")
    files = [path.with_name(path.name + suffix) for suffix in (".svg", ".png")]
    figure.savefig(files[0], metadata={"Date": None})
    figure.savefig(files[1], dpi=130)
    return files
