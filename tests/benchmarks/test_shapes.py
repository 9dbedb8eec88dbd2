"""``python -m benchmarks shapes``: its replays, its bars, and its table."""

from itertools import islice
from math import prod
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import shapes
from benchmarks.replays import DTYPE, MOST_BYTES, PREFILL_ROWS, REPLAYS, Replay


@pytest.mark.parametrize("replay", REPLAYS, ids=lambda replay: replay.name)
def test_every_shape_is_a_split_that_fits(replay: Replay) -> None:
    draw = np.random.default_rng(1)
    splits = list(islice(replay.splits(draw), 300))
    for split in splits:
        assert sum(split.sizes) == split.shape[split.axis]
        assert 0 < prod(split.shape) * np.dtype(DTYPE).itemsize <= MOST_BYTES
        assert replay.has_empty or min(split.sizes) > 0
    assert len(set(splits)) > 290
    again = islice(replay.splits(np.random.default_rng(1)), 300)
    assert list(again) == splits


def test_a_prefill_has_every_length_once() -> None:
    (replay,) = (replay for replay in REPLAYS if replay.name.startswith("prefill"))
    rows = [split.shape[0] for split in islice(replay.splits(np.random.default_rng(2)), 8192)]
    assert sorted(rows) == list(range(1, PREFILL_ROWS + 1))
    assert rows != sorted(rows)


def a_row(**changed: Any) -> dict[str, Any]:
    checkpoint = {"modules": 3, "loads": 4, "resident_bytes": 150 << 20}
    return {
        "replay": "MoE, 8 experts",
        "peer": "dml.split",
        "status": "ok",
        "shapes": 100_000,
        "compiles": 4,
        "later_compiles": 0,
        "files": 4,
        "first_us": 200_000.0,
        "p50_us": 9.5,
        "p99_us": 20.0,
        "checkpoints": [dict(checkpoint) for _ in range(10)],
        **changed,
    }


def test_a_row_that_meets_its_bars() -> None:
    assert shapes.missed_bars(a_row()) == []
    cells = shapes.line(a_row(p50_us=19.0), 9.5).removeprefix("MoE, 8 experts").split()
    assert cells == "dml.split 100000 4 (0) 3 of 4 4 150 - 150 200 ms 19 us 20 us 2.00".split()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"later_compiles": 1}, "1 compiles after the first call; the bar is 0"),
        ({"replay": "prefill, 1 to 8192 rows", "compiles": 7}, "7 compiles; the bar is 6"),
        ({"replay": "first call, warm cache", "compiles": 1}, "1 compiles; the bar is 0"),
        ({"status": "failed", "message": "no"}, "failed: no"),
    ],
)
def test_a_missed_bar_is_named(changed: dict[str, Any], message: str) -> None:
    (line,) = shapes.missed_bars(a_row(**changed))
    assert line.startswith("missed: ")
    assert line.endswith(message)


def test_modules_and_memory_must_not_grow_in_a_long_run() -> None:
    row = a_row()
    row["checkpoints"][-1] = {"modules": 4, "loads": 9, "resident_bytes": 160 << 20}
    modules, memory = shapes.missed_bars(row)
    assert modules.endswith("4 modules; the bar is 3")
    assert memory.endswith("160 MiB; the bar is 153")
    assert shapes.missed_bars({**row, "shapes": 200}) == []


def test_peers_have_no_bars() -> None:
    assert shapes.missed_bars(a_row(peer="torch out=", later_compiles=9)) == []
    assert "absent: no torch" in shapes.line(a_row(status="absent", message="no torch"), None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shapes", "1"], "1 is below 2"),
        (["--only", "nothing such"], "no replay's name contains"),
    ],
)
def test_wrong_usage_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["shapes", *words])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
