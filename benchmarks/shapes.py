"""`python -m benchmarks shapes`: the cost of calls whose shapes change all the time.

Each replay of each peer has its own process and its own folder of compiled kernels. Without a GPU
the processes run on the idle simulated card: the real CuPy calls a CUDA driver that compiles with
the real NVRTC and launches nothing. Host times then do not include the driver's own launch.

- *compiles*: NVRTC compilations in total, and after the first call.
- *modules*: those still loaded at the end, of all that were loaded. *files*: in the kernel folder.
- *MiB*: resident memory of the process after a tenth of the calls, and at the end.
- *first*, *p50*, *p99*: host time of the first call, and percentiles of the others.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.environment import environment
from benchmarks.host import has_gpu
from benchmarks.replays import COLD, REPLAYS, WARM, Replay
from benchmarks.shape_process import CACHE, ON_CARD, PEERS
from benchmarks.table import duration

ROOT = Path(__file__).parent.parent
REFERENCE, OPERATOR = "dml.split", "op(a)"
OURS = (REFERENCE, OPERATOR)
QUICK_SHAPES = 200
# In runs of `FLAT_SHAPES` and more, all caches fill up in the first half. In the second half no
# module may be added, and resident memory may grow by `MOST_GROWTH`, because of the allocator.
FLAT_SHAPES, MOST_GROWTH = 10_000, 1.02

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Platform:
    """The GPU or card that the processes run on."""

    name: str
    environment: Mapping[str, str]
    peers: tuple[str, ...]


def main(argv: Sequence[str]) -> int:
    """Print the table, write it as JSON if asked, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks shapes", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SHAPES} shapes each")
    parser.add_argument("--shapes", type=_two_or_more, metavar="N", help="N shapes each")
    parser.add_argument("--only", default="", help="only replays whose name contains this text")
    options = parser.parse_args(argv)
    shapes = options.shapes or (QUICK_SHAPES if options.quick else None)
    chosen = [replay for replay in REPLAYS if options.only in replay.name]
    if not chosen:
        parser.error(f"no replay's name contains {options.only!r}")
    with tempfile.TemporaryDirectory(prefix="dmlsplit-shapes-") as folder:
        platform = found_platform(Path(folder))
        print(f"Calls of changing shapes, on {platform.name}\n{HEADER}")
        rows = list(_rows(platform, chosen, shapes, Path(folder)))
    missed = [text for row in rows for text in missed_bars(row)]
    if options.json:
        head = {
            "environment": environment(
                ["shapes", *argv], with_gpu=ON_CARD not in platform.environment
            ),
            "platform": platform.name,
            "missed": missed,
        }
        options.json.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    print("\n".join(missed) or "bars: met")
    return int(bool(missed))


def _two_or_more(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"{text} is below 2, a first call and another one")
    return value


def found_platform(folder: Path) -> Platform:
    """The GPU, or else the simulated card, built in a folder.

    Raises
    ------
    SystemExit
        If neither is available; the message says what is missing.
    """
    if has_gpu():
        return Platform("the GPU", {}, tuple(PEERS))
    sys.path.append(str(ROOT / "tests"))
    from tests.simulated_card import build

    if lacking := build.missing():
        raise SystemExit(f"there is no CUDA device, and {lacking}")
    return on_card(build.build(folder).environment)


def on_card(variables: Mapping[str, str]) -> Platform:
    """The simulated card of an environment. PyTorch cannot run on it."""
    idle = {**variables, "CARD_IDLE": "1", ON_CARD: "1"}
    return Platform("the simulated card (no kernel runs)", idle, OURS)


def _rows(
    platform: Platform, replays: Sequence[Replay], shapes: int | None, folder: Path
) -> Iterator[Row]:
    """A row for every replay and peer, printed as soon as it is measured."""
    pairs = [
        (replay, peer)
        for replay in replays
        for peer in platform.peers
        if peer != OPERATOR or not replay.has_empty
    ]
    references: dict[str, float] = {}
    for replay, peer in tqdm(pairs, unit="replay", disable=not sys.stderr.isatty()):
        count = replay.shapes if replay.name in (COLD, WARM) else shapes or replay.shapes
        with _cache(platform, replay, peer, folder) as cache:
            row = run(platform, replay, peer, count, cache)
        if peer == REFERENCE and row["status"] == "ok":
            references[replay.name] = row["p50_us"]
        tqdm.write(line(row, references.get(replay.name)))
        yield row


@contextmanager
def _cache(platform: Platform, replay: Replay, peer: str, folder: Path) -> Iterator[Path]:
    """An empty folder for a replay's compiled kernels, or a warm one for the warm-cache replay."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        cache = Path(name)
        if replay.name == WARM:
            run(platform, replay, peer, replay.shapes, cache)
        yield cache


def run(platform: Platform, replay: Replay, peer: str, shapes: int, cache: Path) -> Row:
    """Run one process, and return its row."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        **platform.environment,
        CACHE: str(cache),
    }
    command = [sys.executable, "-m", "benchmarks.shape_process", replay.name, peer, str(shapes)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    head = {"replay": replay.name, "peer": peer}
    if done.returncode:
        message = " ".join(done.stderr.split())[-300:]
        return {**head, "status": "failed", "message": message or f"exit {done.returncode}"}
    return {**head, **json.loads(done.stdout.splitlines()[-1])}


def missed_bars(row: Row) -> list[str]:
    """The bars that a row of ours misses, one per line."""
    if row["peer"] not in OURS:
        return []
    name = f"{row['replay']}, {row['peer']}"
    if row["status"] != "ok":
        return [f"missed: {name}: {row['status']}: {row['message']}"]
    (replay,) = (replay for replay in REPLAYS if replay.name == row["replay"])
    bars = [
        ("compiles", row["compiles"], replay.compiles),
        ("compiles after the first call", row["later_compiles"], replay.later_compiles),
    ]
    if row["shapes"] >= FLAT_SHAPES:
        half, last = row["checkpoints"][len(row["checkpoints"]) // 2 - 1], row["checkpoints"][-1]
        most_mib = int(half["resident_bytes"] * MOST_GROWTH) >> 20
        bars += [
            ("modules", last["modules"], half["modules"]),
            ("MiB", last["resident_bytes"] >> 20, most_mib),
        ]
    return [
        f"missed: {name}: {found} {what}; the bar is {most}"
        for what, found, most in bars
        if most is not None and found > most
    ]


HEADER = (
    f"{'replay':<24}{'peer':<25}{'shapes':>7}{'compiles':>13}{'modules':>14}{'files':>7}"
    f"{'MiB':>12}{'first':>9}{'p50':>9}{'p99':>9}{'ratio':>7}"
)


def line(row: Row, reference: float | None) -> str:
    """A row as text; `ratio` is its p50 over that of `dml.split`."""
    start = f"{row['replay']:<24}{row['peer']:<25}"
    if row["status"] != "ok":
        return f"{start}{row['status']}: {row['message'][:80]}"
    begin, end = row["checkpoints"][0], row["checkpoints"][-1]
    compiles = f"{row['compiles']} ({row['later_compiles']})"
    modules = f"{end['modules']} of {end['loads']}"
    memory = f"{begin['resident_bytes'] >> 20} - {end['resident_bytes'] >> 20}"
    times = "".join(f"{duration(row[name] * 1e-6):>9}" for name in ("first_us", "p50_us", "p99_us"))
    ratio = f"{row['p50_us'] / reference:>7.2f}" if reference else ""
    return (
        f"{start}{row['shapes']:>7}{compiles:>13}{modules:>14}{row['files']:>7}{memory:>12}"
        f"{times}{ratio}"
    )
