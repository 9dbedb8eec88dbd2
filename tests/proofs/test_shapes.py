"""Calls of changing shapes on the simulated card: the kernels compiled, loaded and kept for them.

Compilations are counted where CUDA sees them. NVRTC itself is left out, because it would take
minutes if a kernel were compiled for every shape.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import shapes
from benchmarks.driver_counts import files_in
from benchmarks.replays import COLD, PREFILL_COMPILES, REPLAYS, WARM, Replay
from tests.host_cuda import harness
from tests.simulated_card import build
from tests.support.command import ran

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=str(build.missing()))

SHAPES = 200


@pytest.fixture(scope="module")
def platform(builds: Path) -> shapes.Platform:
    return shapes.on_card({**build.build(builds).environment, "CARD_NVRTC": ""})


@pytest.fixture(scope="module")
def rows(
    platform: shapes.Platform, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The rows of `dml.split`, by replay."""

    def row(replay: Replay) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("cache")
        count = replay.shapes if replay.name in (COLD, WARM) else SHAPES
        if replay.name == WARM:
            shapes.run(platform, replay, "dml.split", count, folder)
        return shapes.run(platform, replay, "dml.split", count, folder)

    with ThreadPoolExecutor(harness.COMPILERS) as pool:
        found = list(pool.map(row, REPLAYS))
    assert all(one["status"] == "ok" for one in found), found
    return {one["replay"]: one for one in found}


def test_a_prefill_compiles_a_few_kernels_for_all_lengths(rows: dict[str, Any]) -> None:
    assert 1 <= rows["prefill, 1 to 8192 rows"]["compiles"] <= PREFILL_COMPILES


@pytest.mark.parametrize(
    "name",
    [
        "MoE, 8 experts",
        "MoE, 64 experts",
        "MoE, 256 experts",
        "heads, 64 + 80 channels",
        "heads, 85 columns",
    ],
)
def test_nothing_is_compiled_after_the_first_call(name: str, rows: dict[str, Any]) -> None:
    assert rows[name]["later_compiles"] == 0


def test_with_a_warm_cache_on_disk_nothing_is_compiled(rows: dict[str, Any]) -> None:
    assert rows[COLD]["compiles"] == rows[COLD]["files"] > 0
    assert rows[WARM]["compiles"] == 0
    assert rows[WARM]["files"] == rows[COLD]["files"]
    assert rows[WARM]["loads"] == rows[COLD]["loads"]


@pytest.mark.parametrize("replay", REPLAYS, ids=lambda replay: replay.name)
def test_the_counts_are_consistent(replay: Any, rows: dict[str, Any]) -> None:
    row = rows[replay.name]
    last = row["checkpoints"][-1]
    assert last["calls"] == row["shapes"]
    assert len(row["checkpoints"]) == 10
    assert row["compiles"] <= row["files"]
    assert last["modules"] == row["loads"] - row["unloads"] >= 1
    assert 0 < row["p50_us"] <= row["p99_us"] <= row["longest_us"]
    assert last["resident_bytes"] > 10 << 20


def test_the_command_writes_its_rows(
    platform: shapes.Platform,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shapes, "found_platform", lambda folder: platform)
    path = tmp_path / "shapes.json"
    words = ["shapes", "--only", WARM, "--shapes", "3", "--json", str(path)]
    assert command.main(words) == 0
    assert "bars: met" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [row["peer"] for row in found["rows"]] == ["dml.split", "op(a)"]
    assert found["environment"]["command"][3:] == words
    assert found["missed"] == []


# On a GPU the classes that CuPy uses are wrapped: both ways must count the same.
BOTH_WAYS = """
import gc
from tests.simulated_card import card
card.load()
from benchmarks.driver_counts import card_counts, wrapped_counts
wrapped, by_card = wrapped_counts(), card_counts(card.count)
import cupy
from cupy.cuda.compiler import compile_using_nvrtc
import dmlsplit as dml
for columns in (64, 63):
    dml.split(cupy.empty((3, columns), "u1"), (32, columns - 32), 1)
text = 'extern "C" __global__ void __launch_bounds__(64) none(int) {}'
module = cupy.cuda.function.Module()
module.load(compile_using_nvrtc(text, ("-std=c++17",))[0])
del module
gc.collect()
print(wrapped(), by_card(), sep="\\n")
"""


def test_calls_are_counted_alike_on_the_card_and_around_cupy(
    platform: shapes.Platform, tmp_path: Path
) -> None:
    environment = {**platform.environment, "CUPY_CACHE_DIR": str(tmp_path)}
    done = ran(sys.executable, "-c", BOTH_WAYS, env=environment, check=True)
    wrapped, by_card = done.stdout.splitlines()
    assert wrapped == by_card
    compiles = files_in(tmp_path) + 1
    assert wrapped == f"Counts(compiles={compiles}, loads={compiles}, unloads=1)"
