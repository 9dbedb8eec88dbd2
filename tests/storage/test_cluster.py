"""`dmlsplit run` into zarr on a cluster of two worker processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.storage import schedulers
from dmlsplit.storage.stores import split_store
from tests.support.clusters import two_workers
from tests.support.stores import VALUES, assert_pieces, make_store, stop_after

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_workers() as cluster:
        yield cluster


def test_workers_read_npy_files_by_themselves(tmp_path: Path, cluster: Any) -> None:
    np.save(tmp_path / "in.npy", VALUES)
    split_store(tmp_path / "in.npy", (1, 6), 2, tmp_path, scheduler=cluster.scheduler_address)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def test_a_cluster_run_that_stops_or_fails_leaves_no_pieces_or_locks(
    store: Path, tmp_path: Path, cluster: Any
) -> None:
    out, address = tmp_path / "out", cluster.scheduler_address
    with pytest.raises(dml.UnsupportedError, match="StopError"):
        split_store(store, (1, 6), 2, out, scheduler=address, progress=stop_after(0))
    (store / "c/9/0/0").write_bytes(b"short")
    with pytest.raises(dml.InvalidArgumentError, match=r"chunks of \[36:40, 0:33, 0:7\] cannot"):
        split_store(store, (1, 6), 2, out, scheduler=address)
    assert not list(out.glob("in_*"))
    assert not [p for p in out.glob(".*/*") if p.name == "lock"]


def test_a_run_on_a_cluster_continues_after_a_worker_is_killed(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "POLL_SECONDS", 0.01)
    values = np.random.default_rng(2).integers(0, 1 << 16, (400, 33, 7), dtype="u2")
    long = make_store(tmp_path / "long.zarr", values, chunks=(2, 33, 7))
    victim = cluster.workers[0].pid
    cluster.workers[0].close_gracefully()  # no other process takes its place

    def kill_early(done: int, total: int) -> None:
        nonlocal victim
        if victim and 0 < done < total // 2:
            os.kill(victim, signal.SIGKILL)
            victim = 0

    address = cluster.scheduler_address
    split_store(long, (1, 6), 2, tmp_path, scheduler=address, progress=kill_early)
    assert victim == 0
    assert_pieces(tmp_path, values, 2, (1, 6), "long")


@pytest.mark.slow
def test_memory_per_worker_is_that_of_its_blocks(tmp_path: Path) -> None:
    """The measurement of benchmarks/scale.py on a tenth of the data."""
    from benchmarks import scale

    source, out = tmp_path / "in.zarr", tmp_path / "out"
    scale.make_source(source, 200_000_000, "auto")
    run = scale.run_on_cluster(source, out, 2)
    scale.check(source, out)
    for loaded, peak in zip(run["loaded_bytes"], run["peak_bytes"], strict=True):
        assert peak - loaded < 150e6
        # Zarr imports CuPy if it is installed, which takes some 200 MB.
        assert peak < 300e6 or run["cupy_is_loaded"]
