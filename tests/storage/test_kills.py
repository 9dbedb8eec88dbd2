"""Runs that are killed, and inputs that change, at random moments."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import numpy as np
import pytest
import zarr

import dmlsplit as dml
from dmlsplit.storage import resumable, worker
from dmlsplit.storage.resumable import split_store
from tests.faults import harness
from tests.support.stores import VALUES, StopError, assert_pieces, contents, make_store

LINE = "run in.zarr --axis 2 --split 1,5 -o out --block-bytes 2048".split()


def changing(store: Path, rows: slice, values: np.ndarray, moment: int) -> Callable[..., None]:
    """A progress function that overwrites rows of the input after `moment` blocks."""
    moments = iter(range(1000))

    def progress(done: int, total: int) -> None:
        if next(moments) == moment:
            zarr.open_array(str(store))[rows] = values[rows]

    return progress


@pytest.mark.parametrize("changes", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_change_at_a_random_moment_is_either_noticed_or_harmless(
    changes: int, store: Path, tmp_path: Path, small_blocks: None
) -> None:
    chosen, noticed = random.Random(3), 0
    for number in range(changes):
        chunk, moment, out = chosen.randrange(15), chosen.randrange(16), tmp_path / str(number)
        rows = slice(4 * chunk, 4 * chunk + 4)
        values: Any = zarr.open_array(str(store))[:]
        values[rows] += 1
        try:
            change = changing(store, rows, values, moment)
            split_store(store, (1, 6), 2, out, progress=change)
        except dml.InvalidArgumentError:
            noticed += 1
            split_store(store, (1, 6), 2, out)
        assert_pieces(out, values, 2, (1, 6))
    assert 0 < noticed < changes


@pytest.mark.parametrize("runs", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_the_last_run_is_right_whatever_changed_between_interrupted_runs(
    runs: int, store: Path, tmp_path: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks are replaced, and the old ones come back with their old times."""
    chosen, values, left = random.Random(4), VALUES.copy(), 0
    for version in (0, 1):
        make_store(tmp_path / f"{version}.zarr", VALUES + version, chunks=(4, 33, 7))

    def written_or_killed(*arguments: Any) -> tuple[int, int]:
        nonlocal left
        left -= 1
        if left < -1:
            raise StopError
        done = worker.move_block(*arguments)
        if left < 0:
            raise StopError
        return done

    monkeypatch.setattr(resumable, "move_block", written_or_killed)
    for _ in range(runs):
        for chunk in chosen.sample(range(15), 3):
            version = chosen.randrange(2)
            name = f"c/{chunk}/0/0"
            shutil.copy2(tmp_path / f"{version}.zarr" / name, store / name)
            values[4 * chunk : 4 * chunk + 4] = VALUES[4 * chunk : 4 * chunk + 4] + version
        left = chosen.randrange(5)
        with suppress(dml.UnsupportedError):  # a block failed
            split_store(store, (1, 6), 2, tmp_path / "out", overwrite=True)
            assert_pieces(tmp_path / "out", values, 2, (1, 6))
    left = 1000
    split_store(store, (1, 6), 2, tmp_path / "out", overwrite=True)
    assert_pieces(tmp_path / "out", values, 2, (1, 6))


@pytest.mark.parametrize("most", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_runs_that_are_killed_end_with_the_same_pieces(
    most: int, builds: Path, tmp_path: Path
) -> None:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    values = np.random.default_rng(1).integers(0, 1 << 16, (120, 16, 6), dtype="u2")
    folder, chosen = tmp_path / "here", random.Random(1)
    make_store(folder / "in.zarr", values, chunks=(8, 16, 6))
    kills = runs_that_ended = 0
    with harness.running(builds, tmp_path) as runs:
        whole = runs.run(LINE, folder)
        assert whole.status == 0
        right = contents(folder / "out")
        shutil.rmtree(folder / "out")
        while kills < most:
            at = chosen.randrange(1, whole.calls)
            outcome = runs.run(LINE, folder, at, signal=SIGKILL)
            kills += outcome.status == -SIGKILL
            is_complete = (folder / "out/in_1.zarr").exists() and not list(
                folder.glob("out/.*/journal")
            )
            if outcome.status == 0 or is_complete:
                runs_that_ended += 1
                pieces = {k: v for k, v in contents(folder / "out").items() if k[0] != "."}
                assert pieces == right
                shutil.rmtree(folder / "out")
            else:
                assert outcome.status == -SIGKILL, outcome.err
    assert runs_that_ended > most // 40
