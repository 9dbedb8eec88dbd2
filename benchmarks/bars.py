"""`python -m benchmarks bars RESULTS.json`: which bars of the CPU engine a run meets.

A bar is the ratio of two times that the engine must reach, or must not exceed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks import cases
from benchmarks.peers_cpu import BAR
from benchmarks.table import duration

# The least ratio of the best peer's time to ours; the second at LARGE bytes and above.
LEAST, MIN_LARGE, LARGE = 1.0, 1.3, 16 << 20
SMALLEST = 800_000  # bytes; smaller ones have no bar in a sweep
# The least share of a copy's speed, for rows of narrow elements.
WIDER, NARROWEST = ("RGB", "pairs of", "1 + 3"), ("7 x 3", "16 x 5")
SHARE, SHARE_NARROWEST = 0.8, 0.5
# The most that a time grows where the size grows by a fifth.
MAX_STEP = 1.5

_Key = tuple[str, int]  # case and number of threads


class Measured(NamedTuple):
    """A ratio of two times, and its bar.

    Attributes
    ----------
    case, threads
        What was measured.
    time
        Median seconds of dmlsplit.
    other
        What it is compared with.
    ratio, fastest
        Of the medians, and of the fastest samples, which depend less on other load.
    bar
        The least ratio, or the most of a step.
    """

    case: str
    threads: int
    time: float
    other: str
    ratio: float
    fastest: float
    bar: float

    @property
    def is_met(self) -> bool:
        """Whether the medians meet the bar."""
        return self.ratio <= self.bar if self.other == "size before" else self.ratio >= self.bar


def bars(run: dict[str, Any]) -> list[Measured]:
    """The bars of all cases that have one, in the order of the results file."""
    return [*_of_peers(run), *_of_copies(run), *_of_steps(run)]


def markdown(run: dict[str, Any]) -> str:
    """The bars as a Markdown table, with a count of those that are missed."""
    lines = [
        "| case | threads | dmlsplit | beside | ratio | of fastest | bar | |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | --- |",
    ]
    measured = bars(run)
    for one in measured:
        figures = f"{one.ratio:.2f} | {one.fastest:.2f} | {one.bar:.1f}"
        verdict = "met" if one.is_met else "**missed**"
        head = f"{one.case} | {one.threads} | {duration(one.time)} | {one.other}"
        lines.append(f"| {head} | {figures} | {verdict} |")
    missed = sum(not one.is_met for one in measured)
    return "\n".join([*lines, "", f"{missed} of {len(measured)} bars missed"])


def _of_peers(run: dict[str, Any]) -> Iterator[Measured]:
    """The fastest peer's time over ours; in the sweeps, at 1 MiB and above."""
    for (case, threads), rows in _by_case(run).items():
        kind, size = rows["dmlsplit"]["kind"], rows["dmlsplit"]["bytes"]
        is_sweep = kind in (cases.SIZE, cases.CHANNELS, cases.NEW)
        peers = [peer for peer in BAR if peer in rows]
        if not peers or (kind != cases.CASES and not (is_sweep and size >= SMALLEST)):
            continue
        best = min(peers, key=lambda peer: rows[peer]["seconds"]["median"])
        fastest = min(rows[peer]["seconds"]["least"] for peer in peers)
        own = rows["dmlsplit"]["seconds"]
        ratio = rows[best]["seconds"]["median"] / own["median"]
        is_large = kind in (cases.SIZE, cases.CHANNELS) and size >= LARGE
        bar = MIN_LARGE if is_large else LEAST
        yield Measured(case, threads, own["median"], best, ratio, fastest / own["least"], bar)


def _of_copies(run: dict[str, Any]) -> Iterator[Measured]:
    """A plain copy's time over ours, for narrow elements; both have one thread."""
    for (case, threads), rows in _by_case(run).items():
        if rows["dmlsplit"]["kind"] != cases.NARROW or "plain copy" not in rows:
            continue
        if not case.startswith(WIDER + NARROWEST):
            continue
        bar = SHARE if case.startswith(WIDER) else SHARE_NARROWEST
        own, copy = rows["dmlsplit"]["seconds"], rows["plain copy"]["seconds"]
        yield Measured(case, threads, own["median"], "plain copy", *_ratios(copy, own), bar)


def _of_steps(run: dict[str, Any]) -> Iterator[Measured]:
    """Our time over that of the size before."""
    before: dict[int, Any] = {}
    for (case, threads), rows in _by_case(run).items():
        if rows["dmlsplit"]["kind"] != cases.STEP:
            continue
        own = rows["dmlsplit"]["seconds"]
        if old := before.get(threads):
            ratios = _ratios(own, old)
            yield Measured(case, threads, own["median"], "size before", *ratios, MAX_STEP)
        before[threads] = own


def _ratios(time: dict[str, float], other: dict[str, float]) -> tuple[float, float]:
    return time["median"] / other["median"], time["least"] / other["least"]


def _by_case(run: dict[str, Any]) -> dict[_Key, dict[str, Any]]:
    """The rows of each case and number of threads, by peer: those that ran, with dmlsplit."""
    groups: dict[_Key, dict[str, Any]] = {}
    for row in run["rows"]:
        if row["status"] == "ok":
            groups.setdefault((row["case"], row["threads"]), {})[row["peer"]] = row
    return {key: rows for key, rows in groups.items() if "dmlsplit" in rows}
