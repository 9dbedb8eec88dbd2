"""`python -m benchmarks compare A B`: which rows became faster or slower beyond noise."""

from dataclasses import dataclass
from math import hypot
from typing import Any

from benchmarks.table import duration

# Changes below this are not reported, however small the spread is.
MIN_CHANGE = 0.03
REFERENCES = ("plain copy", "memcpy", "copy kernel", "copy kernel, 256 bits")
Key = tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One row of both runs.

    Attributes
    ----------
    key
        Case, threads and peer.
    before, after
        Median seconds; None if the row failed or is missing.
    change
        Relative change of the time, divided by that of the plain copy in the same runs; 0.1 is
        ten per cent slower. None if there is no pair.
    noise
        The least `change` that is reported.
    """

    key: Key
    before: float | None
    after: float | None
    change: float | None = None
    noise: float = 0.0

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, ``same``, ``new``, ``gone``, or ``none`` in either run."""
        if self.change is None:
            if self.before is None and self.after is None:
                return "none"
            return "new" if self.before is None else "gone"
        if abs(self.change) <= self.noise:
            return "same"
        return "slower" if self.change > 0 else "faster"


def compare(a: dict[str, Any], b: dict[str, Any]) -> list[Change]:
    """Pair the rows of two runs."""
    old, new = _rows(a), _rows(b)
    return [_change(key, old, new) for key in dict.fromkeys([*old, *new])]


def report(changes: list[Change]) -> str:
    """The changes as text: slower first, then faster, then a count of the rest."""
    lines = []
    for verdict in ("slower", "faster", "gone", "new"):
        alike = [change for change in changes if change.verdict == verdict]
        alike.sort(key=lambda change: -abs(change.change or 0))
        lines += [_line(change) for change in alike]
    same = sum(change.verdict == "same" for change in changes)
    lines.append(f"{same} of {len(changes)} rows unchanged within noise")
    return "\n".join(lines)


def _rows(run: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    return {(row["case"], row.get("threads"), row["peer"]): row for row in run["rows"]}


def _change(key: Key, old: dict[Key, Any], new: dict[Key, Any]) -> Change:
    before, after = _median(old.get(key)), _median(new.get(key))
    if before is None or after is None:
        return Change(key, before, after)
    ratio, spreads = after / before, [_spread(old[key]), _spread(new[key])]
    reference = _reference(key, old, new)
    if reference:
        ratio /= _median(new[reference]) / _median(old[reference])  # type: ignore[operator]
        spreads += [_spread(old[reference]), _spread(new[reference])]
    return Change(key, before, after, ratio - 1, max(MIN_CHANGE, 2 * hypot(*spreads)))


def _reference(key: Key, old: dict[Key, Any], new: dict[Key, Any]) -> Key | None:
    """The plain copy of the same case, if both runs have it and `key` is not a copy."""
    case, threads, peer = key
    if peer in REFERENCES:
        return None
    for name in REFERENCES:
        for count in dict.fromkeys((threads, 1)):
            other = (case, count, name)
            if _median(old.get(other)) and _median(new.get(other)):
                return other
    return None


def _median(row: dict[str, Any] | None) -> float | None:
    return row["seconds"]["median"] if row and row["status"] == "ok" else None


def _spread(row: dict[str, Any]) -> float:
    seconds = row["seconds"]
    return float(seconds["p80"] - seconds["p20"]) / (2 * float(seconds["median"]))


def _line(change: Change) -> str:
    case, threads, peer = change.key
    times = " -> ".join("none" if t is None else duration(t) for t in (change.before, change.after))
    size = "" if change.change is None else f"{change.change:+7.1%} (noise {change.noise:.1%})"
    return f"{change.verdict:7} {case[:30]:30} {threads or '':>3} {peer[:22]:22} {times:24} {size}"
