"""Tables of the pages, as Markdown, from the library's own data and from benchmarks/results/."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import launches as planned

from benchmarks import cases
from benchmarks.ratios import markdown
from benchmarks.results import load
from benchmarks.table import duration
from dmlsplit.backends.cuda.gpus import GPUS
from dmlsplit.directml.levels import LevelSupport, capability_table
from dmlsplit.lint.target import requirement

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def levels() -> str:
    """The data types and limits of each feature level, with their sources."""
    heading = ("level", "DirectML", "Windows build", "dimensions", "data types", "source")
    return _table(heading, map(_level, capability_table().values()))


def _level(row: LevelSupport) -> Sequence[str]:
    support, windows = row.input_tensor, row.windows
    build = f"{windows.build}, {windows.name}" if windows else "-"
    if windows and not windows.is_documented:
        build += " (inferred)"
    ranks = sorted({support.minimum_dimensions, support.maximum_dimensions})
    types = ", ".join(kind.name for kind in sorted(support.data_types))
    directml = row.directml
    if not row.public:
        directml += (
            f", not widely available; {requirement(row.level).directml} is the first that is"
        )
    return (str(row.level), directml, build, " to ".join(map(str, ranks)), types, _link(row.source))


def _link(source: str) -> str:
    return f"[document]({source})" if source.startswith("https://") else source


def gpus() -> str:
    """The GPUs whose properties are known."""
    heading = ("name", "compute capability", "SMs", "GB/s", "source")
    rows = (
        (
            gpu.name,
            gpu.compute_capability,
            gpu.limits.sm_count,
            f"{gpu.bandwidth / 1e9:g}",
            gpu.source,
        )
        for gpu in GPUS
        if gpu.bandwidth
    )
    return _table(heading, rows, "lrrrl")


def launches() -> str:
    """How many outputs fit one launch, and how many launches more outputs take."""
    heading = ("outputs", "most in one launch", *(f"launches for {n:,}" for n in planned.SHOWN))
    rows = (
        (
            layout,
            f"{most:,}" if (most := planned.most_in_one_launch(layout)) else "-",
            *(planned.launches(layout, count) for count in planned.SHOWN),
        )
        for layout in planned.LAYOUTS
    )
    return _table(heading, rows, "l" + "r" * (1 + len(planned.SHOWN)))


def peers() -> str:
    """The range of each peer's times over ours, over the seven cases of both runs."""
    heading = ("peer", "threads", "where dmlsplit does worst", "where it does best")
    ratios: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for name in ("cpu-xeon-2", "cpu-xeon-2-again"):
        rows = [row for row in load(RESULTS / f"{name}.json")["rows"] if row["kind"] == cases.CASES]
        ours = {(r["case"], r["threads"]): r for r in rows if r["peer"] == "dmlsplit"}
        for row in rows:
            if row["peer"] not in ("dmlsplit", "plain copy") and row["status"] == "ok":
                own = ours[row["case"], row["threads"]]["seconds"]["median"]
                found = row["seconds"]["median"] / own, row["case"]
                ratios.setdefault((row["peer"], row["threads"]), []).append(found)
    rows = (
        (peer, threads, *(f"{ratio:.2f} ({case})" for ratio, case in (min(each), max(each))))
        for (peer, threads), each in sorted(ratios.items())
    )
    return _table(heading, rows, "lrll")


def cpu() -> str:
    """The peers' times over ours in the seven cases."""
    return markdown(load(RESULTS / "cpu-xeon-2.json"), cases.CASES)


def predicted() -> str:
    """The counts of each workload, and the speed that a formula predicts from them."""
    workloads = json.loads((RESULTS / "model.json").read_text())["workloads"]
    gpus = list(workloads[0]["predicted"])
    heading = ("#", "workload", "kernels", "read", "written", "issued", *gpus)
    return _table(heading, (_workload(each, gpus) for each in workloads), "rll" + "r" * 6)


def _workload(workload: dict[str, Any], gpus: Sequence[str]) -> Sequence[object]:
    kernels = ", ".join(dict.fromkeys(launch["kernel"] for launch in workload["launches"]))
    read, written, issued = _counted(workload)
    speeds = (f"{workload['predicted'][gpu]:.2f}" for gpu in gpus)
    figures = (f"{read:.3f}", f"{written:.3f}", f"{issued:.0f}")
    return (workload["number"], workload["name"], kernels, *figures, *speeds)


def _counted(workload: dict[str, Any]) -> tuple[float, float, float]:
    """Sectors read and written over the fewest possible, and instructions per 16 bytes."""
    launches = workload["launches"]
    total = sum(launch["total_bytes"] for launch in launches)

    def mean(figure: Callable[[dict[str, Any]], float]) -> float:
        return sum(figure(launch) * launch["total_bytes"] for launch in launches) / total

    return (
        mean(lambda launch: float(launch["read_ratio"])),
        mean(lambda launch: float(launch["write_ratio"])),
        mean(lambda launch: float(launch["executed"]["issue"])),
    )


def predicted_ranges() -> str:
    """The lowest and the highest figures over all workloads."""
    workloads = json.loads((RESULTS / "model.json").read_text())["workloads"]
    read, written, issued = zip(*map(_counted, workloads), strict=True)
    lines = [
        f"{len(workloads)} workloads",
        f"sectors read: at most {max(read):.3f} times the least possible",
        f"sectors written: at most {max(written):.3f} times the least possible",
        f"instructions issued per 16 bytes: {min(issued):.0f} to {max(issued):.0f}",
    ]
    for gpu in workloads[0]["predicted"]:
        found = [workload["predicted"][gpu] for workload in workloads]
        lines.append(f"predicted on {gpu}: {min(found):.2f} to {max(found):.2f} of a copy's speed")
    return "\n".join(f"- {line}" for line in lines)


def host() -> str:
    """The host time of calls on CUDA arrays, measured on the simulated card."""
    rows = json.loads((RESULTS / "dispatch.json").read_text())["rows"]
    columns = {
        "bound dispatch": "dispatch_us",
        "`bind`": "bind_us",
        "`op.dispatch`": "op_dispatch_us",
        "`op(a)`": "call_us",
        "`dml.split`": "split_us",
        "of that, CuPy's arrays": "cupy_alone_us",
    }
    cells = ([row["outputs"], *(_us(row.get(key)) for key in columns.values())] for row in rows)
    return _table(("outputs", *columns), cells, "r" * (1 + len(columns)))


def _us(value: float | None) -> str:
    return "-" if value is None else duration(value * 1e-6)


def shapes() -> str:
    """The number of compilations if shapes change at every call."""
    rows = json.loads((RESULTS / "shapes.json").read_text())["rows"]
    keys = ("replay", "shapes", "compiles", "later_compiles")
    heading = ("calls", "shapes", "compilations", "of them after the first call")
    cells = ([row[key] for key in keys] for row in rows if row["peer"] == "dml.split")
    return _table(heading, cells, "lrrr")


def instead() -> str:
    """The times of other libraries' splits over those of `dml.split`, and the machine."""
    run = load(RESULTS / "instead.json")
    rows = [row for row in run["rows"] if row["status"] == "ok"]
    peers = [peer for peer in dict.fromkeys(row["peer"] for row in rows) if peer != "dmlsplit"]
    times = {(row["case"], row["peer"]): row["seconds"]["least"] for row in rows}
    cells = (
        [
            row["library"],
            row["at"],
            duration(own := times[row["case"], "dmlsplit"]),
            *(_over(times.get((row["case"], peer)), own) for peer in peers),
        ]
        for row in rows
        if row["peer"] == "dmlsplit"
    )
    table = _table(
        ("library", "input", "`dml.split`", *peers), cells, "ll" + "r" * (1 + len(peers))
    )
    made = run["environment"]
    where = _made(made, "numpy torch jax").removesuffix(".")
    return f"{table}\n\n{where}; load {made['load_before']} from other programs."


def _over(peer: float | None, own: float) -> str:
    return "-" if peer is None else f"{peer / own:.2f}" if peer > own / 100 else "below 0.01"


def machine() -> str:
    """The machine and the versions with which the CPU was measured."""
    made = load(RESULTS / "cpu-xeon-2.json")["environment"]
    return _made(made, "numpy torch onnxruntime openvino")


def _made(made: dict[str, Any], names: str) -> str:
    machine, libraries = made["machine"], made["libraries"]
    versions = ", ".join(f"{name} {libraries[name]}" for name in names.split())
    return (
        f"{machine['processor']}, {machine['processors']} virtual processors, {versions}; commit "
        f"{made['commit'][:10]}, {made['time'][:10]}."
    )


def runs() -> str:
    """Return when each results file was made, and of which commit."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        made = json.loads(path.read_text("utf-8"))["environment"]
        commit = made["commit"]
        changed = ", with changes" if commit.endswith("+") else ""
        rows.append((f"`{path.name}`", made.get("time", "-")[:10], commit[:10] + changed))
    return _table(("results", "date", "commit"), rows)


def tests() -> str:
    """The number of tests, and how many of them draw their cases at random."""
    sources = [path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))]
    functions, drawn = (
        sum(len(re.findall(pattern, source, re.MULTILINE)) for source in sources)
        for pattern in (r"^def test_", r"^@given\(")
    )
    return (
        f"{functions} test functions in {sum('def test_' in text for text in sources)} files; "
        f"{drawn} of them draw their cases at random (Hypothesis), 100 unless they say otherwise."
    )


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> str:
    marks = [":--" if side == "l" else "--:" for side in align or "l" * len(heading)]
    return "\n".join(_lines([heading, marks, *rows]))


def _lines(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


TABLES: dict[str, Callable[[], str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        levels, gpus, launches, peers, cpu, instead, predicted, predicted_ranges, host, shapes,
        machine, runs, tests,
    )
}  # fmt: skip
