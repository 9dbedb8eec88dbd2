"""`dml.split` of dask arrays on clusters, in this process and of two others."""

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dmlsplit as dml
from tests.support.clusters import two_workers

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from distributed import Client

    with two_workers() as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def threads() -> Iterator[Any]:
    from distributed import Client

    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as one:
        yield one


@pytest.mark.parametrize(
    ("where", "splits"), [("threads", 10), pytest.param("client", 40, marks=pytest.mark.slow)]
)
def test_a_piece_can_be_computed_again_while_all_are_persisted(
    where: str, splits: int, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(where)
    chosen = random.Random(splits)
    for number in range(splits):
        # In the first split, some column of blocks is not needed for the first piece.
        shape, chunks, sizes = (40, 60), (10, 7), (11, 22, 27)
        if number:
            shape = (chosen.randint(1, 40), chosen.randint(3, 60))
            chunks = (max(1, shape[0] // chosen.randint(1, 6)), chosen.randint(1, shape[1]))
            borders = sorted(chosen.choices(range(shape[1] + 1), k=2))
            sizes = (borders[0], borders[1] - borders[0], shape[1] - borders[1])
        values = RNG.random(shape)
        pieces = dml.split(da.from_array(values, chunks), sizes, 1)
        kept = dask.persist(*pieces)
        dask.compute(*kept)
        index = chosen.randrange(3) if number else 0
        right = np.split(values, np.cumsum(sizes)[:-1], 1)[index]
        np.testing.assert_array_equal(pieces[index].compute(), right)


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
