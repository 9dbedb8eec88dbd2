"""`dml.split` of dask arrays on clusters, in this process and of two others."""

import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dmlsplit as dml
from benchmarks import scale
from tests.support.clusters import two_workers
from tests.support.command import ROOT

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two workers that are processes."""
    from distributed import Client

    with two_workers() as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def threads() -> Iterator[Any]:
    """A client of one worker with two threads, in this process."""
    from distributed import Client

    with Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None
    ) as thread_client:
        yield thread_client


@pytest.mark.parametrize(
    ("where", "splits"), [("threads", 10), pytest.param("client", 40, marks=pytest.mark.slow)]
)
def test_a_piece_can_be_computed_again_while_all_are_persisted(
    where: str, splits: int, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(where)
    draw = random.Random(splits)
    for number in range(splits):
        # In the first split, some column of blocks is not needed for the first piece.
        shape, chunks, sizes = (40, 60), (10, 7), (11, 22, 27)
        if number:
            shape = (draw.randint(1, 40), draw.randint(3, 60))
            chunks = (max(1, shape[0] // draw.randint(1, 6)), draw.randint(1, shape[1]))
            borders = sorted(draw.choices(range(shape[1] + 1), k=2))
            sizes = (borders[0], borders[1] - borders[0], shape[1] - borders[1])
        values = RNG.random(shape)
        pieces = dml.split(da.from_array(values, chunks), sizes, 1)
        persisted_pieces = dask.persist(*pieces)
        dask.compute(*persisted_pieces)
        index = draw.randrange(3) if number else 0
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
    pids, first_piece, last_piece = client.gather(
        client.compute(dml.split(lazy, (1, 11, 18), axis=2))
    )
    np.testing.assert_array_equal(first_piece, values[:, :, 1:12])
    np.testing.assert_array_equal(last_piece, values[:, :, 12:])
    assert set(pids.ravel().tolist()) == set(client.run(os.getpid).values())


RECIPE = re.findall(
    r"^>>> (\w+ = (?:da\.from_zarr\(\"IN|dml\.split\(array|\[da\.to|dask\.compute\(writes).*)$",
    (ROOT / "docs/scale.md").read_text("utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize("version", [2, 3])
def test_the_recipe_for_zarr_writes_the_bytes_of_numpys_pieces(
    version: int, client: Any, tmp_path: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    values = RNG.integers(0, 1 << 32, (1100, 4096), dtype="u4")
    source = str(tmp_path / "IN.zarr")
    zarr.create_array(source, data=values, chunks=(512, 1000), zarr_format=version)
    before = contents(Path(source))
    assert len(RECIPE) == 4
    lines = "\n".join(RECIPE).replace('"IN.zarr"', repr(source))
    exec(lines.replace('"OUT_', f'"{tmp_path}/OUT_'), {"da": da, "dml": dml, "dask": dask})
    for index, right in enumerate(np.split(values, [1000, 1096], 1)):
        piece = zarr.open_array(tmp_path / f"OUT_{index}.zarr", mode="r")
        assert (piece.dtype, piece.chunks) == (right.dtype, (1024, right.shape[1]))
        np.testing.assert_array_equal(piece[:], right)
    assert contents(Path(source)) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_worker_needs_the_memory_of_a_few_blocks_for_a_zarr_array(
    client: Any, tmp_path: Path
) -> None:
    """Not that of its half of the array: 200 MB, and as much for the pieces."""
    source, out = tmp_path / "in.zarr", tmp_path / "out"
    scale.make_source(source, 400_000_000, None)
    out.mkdir()
    loaded_bytes = client.run(scale.loaded_bytes)
    client.run(scale.bind_to_core, min(os.sched_getaffinity(0)))  # zarr has a thread per core
    scale.split_store(source, out)
    scale.check(source, out)
    for worker, peak in client.run(scale.peak_bytes).items():
        assert peak - loaded_bytes[worker] < 150e6


def test_pieces_whose_chunks_are_cut_are_stored_after_a_rechunk(
    client: Any, tmp_path: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    array = da.from_array(np.arange(48).reshape(4, 12), chunks=(2, 4))
    _, piece = dml.split(array, (7, 5), axis=1)
    assert piece.chunks == ((2, 2), (1, 4))
    da.to_zarr(piece.rechunk(array.chunksize), str(tmp_path / "OUT.zarr"))
    zarr_array = zarr.open_array(tmp_path / "OUT.zarr", mode="r")
    np.testing.assert_array_equal(zarr_array[:], np.arange(48).reshape(4, 12)[:, 7:])
