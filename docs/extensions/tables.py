"""Tables of the pages, as Markdown, from the library's own data and from benchmarks/results/."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import launches as planned

from benchmarks import cases
from benchmarks.ratios import markdown
from benchmarks.results import load
from benchmarks.table import duration
from dmlsplit.backends.cuda.gpus import GPUS
from dmlsplit.cli.levels import RUNTIME_COLUMNS, runtime_rows
from dmlsplit.directml.levels import LevelSupport, support_table
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.lint.runtimes import runtime_table
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


def runtimes() -> str:
    """What each ONNX Runtime and Windows ML loads, and the DirectML that it brings."""
    return _table(RUNTIME_COLUMNS, runtime_rows())


def provider_types() -> str:
    """The types of a Split that ONNX Runtime's provider runs on DirectML, by the releases."""
    releases = [release for release in runtime_table().onnxruntime if release.has_package]
    spans: dict[Set[str], list[str]] = {}
    for release in releases:
        spans.setdefault(release.provider.element_types.value, []).append(str(release))
    groups = list(spans)
    added = [group - (groups[i - 1] if i else set()) for i, group in enumerate(groups)]
    heading = "ONNX Runtime", *(", ".join(sorted(kinds)) for kinds in added)
    rows = (
        (f"{span[0]} to {span[-1]}", *("yes" if kinds <= types else "**no**" for kinds in added))
        for types, span in spans.items()
    )
    return _table(heading, rows, "l" + "c" * len(added))


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
    heading = ("GPU", "dmlsplit", "result", "splits", "GB/s of a copy", "fraction of it")
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
    lost = sorted((pair, key) for key, pair in _ratios().items() if max(pair) < 1)
    heading = ("case", "threads", "library", "its median time", "its fastest sample")
    return _table(heading, ((*key, *(f"{one:.2f}" for one in pair)) for pair, key in lost), "lrlrr")


def _ratios() -> dict[tuple[str, int, str], list[float]]:
    """Each library's times, median and fastest, over ours, by case, threads and library."""
    times = {
        (row["case"], row["threads"], row["peer"]): row["seconds"]
        for row in load(RESULTS / "cpu-epyc-3.json")["rows"]
        if row["status"] == "ok"
    }
    return {
        key: [seconds[kind] / times[*key[:2], "dmlsplit"][kind] for kind in ("median", "least")]
        for key, seconds in times.items()
        if key[2] not in ("dmlsplit", "dmlsplit, NumPy", "plain copy")
    }


def performance() -> str:
    """The answer to "how fast", in three sentences."""
    ratios = _ratios()
    lost = sum(max(pair) < 1 for pair in ratios.values())
    named = [key for key in ratios if key[0][1:2] == ":" and max(ratios[key]) < 1]
    assert not named, named  # the first sentence is about the cases of the chart
    workloads = json.loads((RESULTS / "model.json").read_text())["workloads"]
    h200 = [workload["predicted"]["H200"] for workload in workloads]
    return (
        "On a CPU, dmlsplit is faster than PyTorch, ONNX Runtime and OpenVINO in each of these "
        "seven splits, on one thread and on two; over all sizes and widths that were measured, "
        f"other libraries [win {lost} of {len(ratios)} "
        "comparisons](#where-dmlsplit-is-slower). **No GPU has run dmlsplit yet**; "
        f"from exact counts, a formula predicts {min(h200):.2f} to {max(h200):.2f} of a copy's "
        "speed on an H200. If your splits are small, "
        "[bind once](python.md#describe-compile-bind-dispatch): with outputs of 64 bytes, a bound "
        "dispatch took less time than any other call that was measured."
    )


def cpu() -> str:
    """The times of other libraries over ours in the seven cases."""
    return markdown(load(RESULTS / "cpu-epyc-3.json"), cases.CASES)


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
    rows = [row for row in run["rows"] if row["status"] == "ok" and "library" in row]
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


def beside() -> str:
    """The times of calls over those of what a person would write instead, and the goals."""
    rows = [row for row in load(RESULTS / "instead.json")["rows"] if "bar" in row]
    times = {(row["case"], row["peer"]): row["seconds"]["least"] for row in rows}
    cells = (
        [row["case"], f"{times[row['case'], 'dmlsplit'] / time:.2f}", str(row["bar"])]
        for row in rows
        if (time := times[row["case"], "instead"]) and row["peer"] == "dmlsplit"
    )
    return _table(("call", "dmlsplit's time over the other's", "goal: at most"), cells, "lrr")


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
        date = made["time"][:10] if "time" in made else "not recorded"
        rows.append((f"`{path.name}`", date, commit[:10] + changed))
    return _table(("results", "date", "commit"), rows)


def _table(heading: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> str:
    marks = [{"l": ":--", "c": ":-:", "r": "--:"}[side] for side in align or "l" * len(heading)]
    return "\n".join(_lines([heading, marks, *rows]))


def _lines(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


TABLES: dict[str, Callable[[], str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        levels, windows, provider_types, runtimes, gpus, selftest_reports, launches, performance,
        slower, cpu, instead, beside, predicted_ranges, host, files, machine, runs,
    )
}  # fmt: skip
