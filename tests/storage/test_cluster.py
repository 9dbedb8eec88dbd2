"""A cluster of two worker processes: `dml.split` of a dask array, and `run` into zarr."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.storage.resumable import split_store
from tests.support.command import ROOT
from tests.support.stores import assert_pieces, make_store

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes, which import this tree."""
    from distributed import LocalCluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
        ) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def client(cluster: Any) -> Iterator[Any]:
    from distributed import Client

    with Client(cluster) as client:
        yield client


def test_two_worker_processes_share_the_blocks(client: Any) -> None:
    def stamped(block: np.ndarray) -> np.ndarray:
        time.sleep(0.01)
        block = block.copy()
        block[..., 0] = os.getpid()
        return block

    values = RNG.integers(0, 100, (32, 4, 30))
    lazy = da.from_array(values, chunks=(2, 4, 30)).map_blocks(stamped, dtype=values.dtype)
    pids, left, right = client.gather(client.compute(dml.split(lazy, (1, 11, 18), axis=2)))
    np.testing.assert_array_equal(left, values[:, :, 1:12])
    np.testing.assert_array_equal(right, values[:, :, 12:])
    assert set(pids.ravel().tolist()) == set(client.run(os.getpid).values())


@pytest.mark.usefixtures("small_blocks")
def test_a_cluster_goes_on_when_a_worker_is_killed(tmp_path: Path, cluster: Any) -> None:
    values = np.random.default_rng(2).integers(0, 1 << 16, (80, 33, 7), dtype="u2")
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
