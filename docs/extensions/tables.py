"""Tables of the pages, as Markdown, from the library's own data and from benchmarks/results/."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import launches as planned

from benchmarks import cases
from benchmarks.prediction import CAUSES
from benchmarks.ratios import markdown
from benchmarks.results import load
from benchmarks.sweep import least, mebibytes
from benchmarks.table import duration
from dmlsplit.backends.cuda.gpus import GPUS
from dmlsplit.directml.levels import LevelSupport, support_table
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.lint.target import level_releases

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
REPORTS = ROOT / "tests" / "selftest_reports"


def levels() -> str:
    """The data types and limits of each feature level, with their sources."""
    heading = ("level", "DirectML", "Windows build", "dimensions", "data types", "source")
    return _table(heading, map(_level, support_table().values()))


def _level(row: LevelSupport) -> Sequence[str]:
    windows = row.windows
    build = f"{windows.build}, {windows.name}" if windows else "-"
    if windows and not windows.is_documented:
        build += " (inferred)"
    types = _names(row.data_types)
    directml = row.directml
    if not row.is_public:
        directml += (
            f", not widely available; {level_releases(row.level).directml} is the first that is"
        )
    return (str(row.level), directml, build, _ranks(row), types, _link(row.source))


def _link(source: str) -> str:
    return f"[document]({source})" if source.startswith("https://") else source


def windows() -> str:
    """What the DirectML.dll of each Windows accepts, by the level that added it."""
    levels = support_table().values()
    groups = list(dict.fromkeys(row.data_types for row in levels))
    added = [group - (groups[i - 1] if i else set()) for i, group in enumerate(groups)]
    builds = [row for row in levels if row.windows and row.windows.is_documented]
    heading = "Windows", "level", "dimensions", *(_names(kinds) for kinds in added)
    return _table(heading, (_accepted(row, added) for row in builds), "llr" + "c" * len(added))


def _accepted(row: LevelSupport, added: Sequence[Set[TensorDataType]]) -> Sequence[str]:
    assert row.windows
    build = f"{row.windows.name.removeprefix('Windows ')} ({row.windows.build})"
    marks = ("yes" if kinds <= row.data_types else "**no**" for kinds in added)
    return (build, str(row.level), _ranks(row), *marks)


def _names(kinds: Set[TensorDataType]) -> str:
    return ", ".join(kind.name for kind in sorted(kinds))


def _ranks(row: LevelSupport) -> str:
    return " to ".join(map(str, sorted({row.minimum_dimensions, row.maximum_dimensions})))


def gpus() -> str:
    """The GPUs whose properties are known."""
    heading = ("name", "compute capability", "SMs", "GB/s", "source")
    rows = (
        (
            gpu.name,
            gpu.compute_capability,
            gpu.limits.sm_count,
            f"{gpu.bandwidth / 1e9:.0f}",
            gpu.source,
        )
        for gpu in GPUS
        if gpu.bandwidth
    )
    return _table(heading, rows, "lrrrl")


def selftest_reports() -> str:
    """The received reports of `dmlsplit selftest`."""
    reports = [json.loads(path.read_text()) for path in sorted(REPORTS.glob("*.json"))]
    if not reports:
        return "No report has arrived yet."
    heading = ("GPU", "dmlsplit", "result", "splits", "GB/s of a copy", "shares of it")
    return _table(heading, map(_report, reports), "lllrrr")


def _report(report: dict[str, Any]) -> Sequence[object]:
    is_wrong = any(split["first_difference"] for split in report["splits"])
    result = ("exact", "wrong bytes" if is_wrong else "too slow", "not run")[report["status"]]
    copy, *others = report["speeds"] or [None]
    rate = f"{2e-9 * copy['bytes'] / copy['seconds']:.0f}" if copy else "-"
    shares = [speed["share"] for speed in others]
    span = f"{min(shares):.2f} to {max(shares):.2f}" if shares else "-"
    return report["name"], report["dmlsplit"], result, len(report["splits"]), rate, span


def launches() -> str:
    """How many outputs fit one launch, and how many launches more outputs take."""
    heading = ("outputs", "most in one launch", *(f"launches for {n:,}" for n in planned.SHOWN))
    rows = (
        (
            layout,
            f"{most:,}" if (most := planned.most_in_one_launch(layout)) else "never one",
            *(planned.launches(layout, count) for count in planned.SHOWN),
        )
        for layout in planned.LAYOUTS
    )
    return _table(heading, rows, "l" + "r" * (1 + len(planned.SHOWN)))


def slower() -> str:
    """Every measured case in which another library took less time than dmlsplit."""
    rows = load(RESULTS / "cpu-epyc-3.json")["rows"]
    times = {
        (row["case"], row["threads"], row["peer"]): row["seconds"]
        for row in rows
        if row["status"] == "ok"
    }
    ratios = {
        key: [seconds[kind] / times[*key[:2], "dmlsplit"][kind] for kind in ("median", "least")]
        for key, seconds in times.items()
        if key[2] not in ("dmlsplit", "dmlsplit, NumPy", "plain copy")
    }
    lost = sorted((pair, key) for key, pair in ratios.items() if max(pair) < 1)
    heading = ("case", "threads", "library", "its median time", "its fastest sample")
    return _table(heading, ((*key, *(f"{one:.2f}" for one in pair)) for pair, key in lost), "lrlrr")


def cpu() -> str:
    """The peers' times over ours in the seven cases."""
    return markdown(load(RESULTS / "cpu-epyc-3.json"), cases.CASES)


def predicted() -> str:
    """The counts of each workload, and the speed that a formula predicts from them."""
    workloads = json.loads((RESULTS / "model.json").read_text())["workloads"]
    gpus = list(workloads[0]["predicted"])
    heading = ("#", "workload", "kernels", "read", "written", "issued", *gpus)
    return _table(
        heading, (_workload(each, gpus) for each in workloads), "rll" + "r" * (3 + len(gpus))
    )


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


def sweep() -> str:
    """The cells of the sweep that miss the goal: where, how far, and the cause."""
    run = load(RESULTS / "sweep.json")
    missed: dict[tuple[str, str, str], list[tuple[float, int, str]]] = {}
    for row in run["rows"]:
        cells = zip(row["fractions"], run["sizes"], row["causes"], strict=True)
        low = [cell for cell in cells if cell[0] < least(cell[1])]
        if low:
            missed[row["family"], row["placement"], row["gpu"]] = low
    heading = ("split", "addresses", "GPU", "sizes", "least", "at", "cause")
    table = _table(heading, (_missed(*item) for item in missed.items()), "lllrrrl")
    count, total = sum(map(len, missed.values())), len(run["sizes"]) * len(run["rows"])
    return f"{count} of {total} cells miss the goal:\n\n{table}"


def _missed(where: tuple[str, str, str], low: list[tuple[float, int, str]]) -> Sequence[object]:
    fraction, size, cause = min(low)
    return (*where, len(low), f"{fraction:.2f}", mebibytes(size), CAUSES[cause])


def host() -> str:
    """The host time of calls on CUDA arrays, measured on the simulated card."""
    rows = load(RESULTS / "dispatch.json")["rows"]
    times = {(row["at"], row["peer"]): row["seconds"]["median"] for row in rows}
    columns = {
        "bound dispatch": "dispatch",
        "`bind`": "bind",
        "`op.dispatch`": "op dispatch",
        "`op(a)`": "call",
        "`dml.split`": "split",
        "of that, CuPy's arrays": "cupy alone",
    }
    cells = (
        [outputs, *(duration(times[outputs, call]) for call in columns.values())]
        for outputs in dict.fromkeys(row["at"] for row in rows)
    )
    return _table(("outputs", *columns), cells, "r" * (1 + len(columns)))


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


def files() -> str:
    """The rates of splits of zarr arrays through Dask, and what they were measured with."""
    run = json.loads((RESULTS / "scale.json").read_text("utf-8"))
    raw, zstd = run["raw"], run["zstd"]

    def rate(part: dict[str, Any]) -> str:
        seconds = part["median_cpu_seconds_of_busiest_worker"]["1"]
        return f"{run['source_bytes'] / 1e9 / seconds:.2f} GB of input per second of processor time"

    speedups = " raw, ".join(f"{part['speedup_of_two_workers']:.2f}" for part in (raw, zstd))
    rows = (
        ("read, split and write, one core, not compressed", rate(raw)),
        ("read, split and write, one core, zstd on noise (its worst case)", rate(zstd)),
        (
            "the split alone, one thread, in memory",
            f"{run['split_bytes_per_second'] / 1e9:.0f} GB/s",
        ),
        ("peak memory of a worker", _peak(run)),
        ("two workers instead of one, one core each", f"{speedups} with zstd times as fast"),
        (
            "blocks that the scheduler assigns",
            f"{run['scheduler_tasks_per_second']:.0f} per second",
        ),
    )
    made = run["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    return f"{_table(('what', 'rate'), rows)}\n\n{versions}; commit {made['commit'][:10]}."


def _peak(run: dict[str, Any]) -> str:
    runs = [one for kind in ("raw", "zstd") for one in run[kind]["runs"]]
    peak, loaded = (max(max(one[key]) for one in runs) for key in ("peak_bytes", "loaded_bytes"))
    return f"{peak / 1e6:.0f} MB, of which {loaded / 1e6:.0f} MB are Python, Dask and zarr"


def machine() -> str:
    """The machine and the versions with which the CPU was measured."""
    made = load(RESULTS / "cpu-epyc-3.json")["environment"]
    return _made(made, "numpy torch onnxruntime openvino")


def _made(made: dict[str, Any], names: str) -> str:
    machine, libraries = made["machine"], made["libraries"]
    versions = ", ".join(f"{name} {libraries[name]}" for name in names.split())
    return (
        f"{machine['processor']}, {machine['processors']} virtual processors, {versions}; commit "
        f"{made['commit'][:10]}, {made['time'][:10]}."
    )


def runs() -> str:
    """The date and the commit of each results file."""
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
        for pattern in (r"^ *def test_", r"^ *@given\(")
    )
    return (
        f"{functions} test functions in {sum('def test_' in text for text in sources)} files; "
        f"{drawn} of them draw their cases at random (Hypothesis), 100 unless they say otherwise."
    )


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> str:
    marks = [{"l": ":--", "c": ":-:", "r": "--:"}[side] for side in align or "l" * len(heading)]
    return "\n".join(_lines([heading, marks, *rows]))


def _lines(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


TABLES: dict[str, Callable[[], str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        levels, windows, gpus, selftest_reports, launches, slower, cpu, instead,
        predicted, predicted_ranges, sweep, host, files, machine, runs, tests,
    )
}  # fmt: skip
