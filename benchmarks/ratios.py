"""`python -m benchmarks ratios RESULTS.json`: peers' times over ours, as a Markdown table."""

from typing import Any

from benchmarks.table import duration

OURS = "dmlsplit"


def markdown(run: dict[str, Any], kind: str | None = None) -> str:
    """A table with one line per case and number of threads.

    A cell is the peer's median time over ours, above 1 if we are faster. After the slash is the
    same ratio for the fastest samples, which depend less on other load on the machine.

    Parameters
    ----------
    run
        A results file.
    kind
        Only rows of this kind; None for all.
    """
    rows = [row for row in run["rows"] if kind in (None, row["kind"])]
    peers = [peer for peer in dict.fromkeys(row["peer"] for row in rows) if peer != OURS]
    by_key = {(row["case"], row.get("threads"), row["peer"]): row for row in rows}
    lines = [
        f"| case | threads | {OURS} | " + " | ".join(peers) + " |",
        "| --- | ---: | ---: |" + " ---: |" * len(peers),
    ]
    for case, threads in dict.fromkeys((row["case"], row.get("threads")) for row in rows):
        ours = by_key.get((case, threads, OURS))
        cells = [_ratio(by_key.get((case, threads, peer)), ours) for peer in peers]
        time = duration(ours["seconds"]["median"]) if _is_ok(ours) and ours else "failed"
        lines.append(f"| {case} | {threads or ''} | {time} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _is_ok(row: dict[str, Any] | None) -> bool:
    return row is not None and row["status"] == "ok"


def _ratio(row: dict[str, Any] | None, ours: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if not _is_ok(row) or ours is None or not _is_ok(ours):
        return str(row["status"])
    peer, own = row["seconds"], ours["seconds"]
    return f"{peer['median'] / own['median']:.2f} / {peer['least'] / own['least']:.2f}"
