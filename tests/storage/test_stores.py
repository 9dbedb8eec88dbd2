"""`dmlsplit run` into zarr: blocks, progress, runs that stop, and silent schedulers."""

import socket
import time
from collections.abc import Callable
from itertools import accumulate
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zarr
from dask.base import collections_to_expr
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.geometry import ceil_div
from dmlsplit.storage import schedulers, stores
from dmlsplit.storage.stores import BlockCopies, split_store
from dmlsplit.storage.zarr_arrays import NamedArray
from tests.support.command import refused
from tests.support.fixtures import Capsys, Patch
from tests.support.stores import VALUES, assert_pieces, stop_after

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_progress_increases_until_all_bytes_are_done(store: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    split_store(store, (1, 6), 2, tmp_path, progress=lambda *step: seen.append(step))
    assert seen == sorted(seen)
    assert len(set(seen)) >= 15
    assert seen[-1] == (VALUES.nbytes, VALUES.nbytes)


def test_a_stopped_run_leaves_the_old_pieces_and_the_next_one_starts_over(
    store: Path, tmp_path: Path
) -> None:
    split_store(store, (3, 4), 2, tmp_path)
    with pytest.raises(dml.UnsupportedError, match="StopError"):
        split_store(store, (1, 6), 2, tmp_path, overwrite=True, progress=stop_after(5))
    assert_pieces(tmp_path, VALUES, 2, (3, 4))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.zarr", "in_0.zarr", "in_1.zarr"]
    split_store(store, (1, 6), 2, tmp_path, overwrite=True)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


@pytest.mark.parametrize("address", ["", "tcp://", "http://x", "nonsense://x", "localhost"])
def test_a_scheduler_needs_an_address(
    address: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"run {store} --axis 0 --count 2 -o {tmp_path / 'out'} --scheduler '{address}'"
    text = f"--scheduler is {address!r}; it must be an address such as tcp://host:8786"
    assert text in refused(capsys, line)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "nowhere.invalid", "[::1]"])
def test_a_dead_scheduler_is_reported_at_once(
    host: str, store: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://{host}:{server.getsockname()[1]}"
    line = f"run {store} --axis 0 --count 2 -o {tmp_path / 'out'} --scheduler '{address}'"
    monkeypatch.setattr(schedulers, "ANSWER_SECONDS", 60.0)
    begun = time.monotonic()
    said = refused(capsys, line)
    assert time.monotonic() - begun < 30
    assert f"no Dask scheduler answers at {address}: " in said
    assert not (tmp_path / "out").exists()


def test_a_server_that_is_not_a_scheduler_is_not_waited_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(dml.UnsupportedError, match=f"{address}: TimeoutError: timed out"):
            split_store(store, (1, 6), 2, tmp_path / "out", scheduler=address)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("machine", ["a worker", "the scheduler"])
def test_a_cluster_without_dmlsplit_is_refused_before_it_gets_a_block(machine: str) -> None:
    """A dask worker stops if it cannot load a task, so the check uses a built-in function."""

    def asked(name: str) -> Callable[[Callable[[str], None], str], None]:
        elsewhere = "dmlsplit_of_elsewhere" if name == machine else "dmlsplit"
        return lambda function, code: function(code.replace("dmlsplit", elsewhere))

    client = SimpleNamespace(run=asked("a worker"), run_on_scheduler=asked("the scheduler"))
    with pytest.raises(
        dml.UnsupportedError, match="where the scheduler and every worker run"
    ) as error:
        schedulers._check_cluster(client)
    assert error.value.message.startswith(f"{machine} cannot import dmlsplit and zarr: No module")


@pytest.mark.parametrize(
    ("cause", "fix"),
    [(ModuleNotFoundError("No module named 'zarr'"), True), (KeyError("deserialize"), False)],
)
def test_an_error_of_a_block_names_its_cause(cause: Exception, fix: bool) -> None:
    """A worker that joins later is not checked; its import error arrives with the block."""
    error = RuntimeError("Error during deserialization of the task graph")
    error.__cause__ = cause
    with pytest.raises(dml.UnsupportedError) as caught, schedulers._named_errors():
        raise error
    assert caught.value.message.startswith(f"a block failed: {type(cause).__name__}")
    assert ("where the scheduler and every worker run" in caught.value.message) == fix


@st.composite
def cuts(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], list[int]]:
    """A shape, a chunk, the chunks of a block, and sizes along the second axis."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=9).filter(any))
    rows, side = draw(st.integers(1, 7)), st.integers(1, 5)
    chunk, counts = draw(st.tuples(side, side)), draw(st.tuples(st.integers(1, 3), side))
    return (rows, sum(sizes)), chunk, counts, sizes


@given(cuts())
def test_each_chunk_of_a_piece_is_written_once_and_read_from_at_most_two_blocks(cut: Any) -> None:
    shape, chunk, counts, sizes = cut
    source = np.arange(prod(shape)).reshape(shape)
    pieces = [Chunked((shape[0], n), (chunk[0], max(1, min(chunk[1], n)))) for n in sizes]
    block = chunk[0] * counts[0], chunk[1] * counts[1]
    starts = (0, *accumulate(sizes))
    named = tuple(NamedArray(Path("out"), piece) for piece in pieces)
    read = Chunked(shape, chunk)
    read.values[:] = source
    copies = BlockCopies(NamedArray(Path("in"), read), block, 1, starts, named)
    for index in np.ndindex(*map(ceil_div, shape, block)):
        copies.copy(index)
    assert all(side.stop - side.start < 2 * block[1] for _, side in read.read)
    for piece, right in zip(pieces, np.split(source, starts[1:-1], 1), strict=True):
        assert np.array_equal(piece.values, right)
        assert (piece.writes == 1).all()
        for region in piece.written:
            for side, size, length in zip(region, piece.shape, piece.chunks, strict=True):
                assert side.start % length == 0
                assert side.stop % length == 0 or side.stop == size


class Chunked:
    """An array that records what is read and written."""

    shards = None

    def __init__(self, shape: tuple[int, int], chunks: tuple[int, int]) -> None:
        self.shape, self.chunks = shape, chunks
        self.values, self.writes = np.full(shape, -1), np.zeros(shape, int)
        self.read: list[tuple[slice, ...]] = []
        self.written: list[tuple[slice, ...]] = []

    def __getitem__(self, region: tuple[slice, ...]) -> np.ndarray:
        self.read.append(region)
        return self.values[region]

    def __setitem__(self, region: tuple[slice, ...], part: np.ndarray) -> None:
        self.written.append(region)
        self.values[region] = part
        self.writes[region] += 1


def test_a_task_of_a_block_depends_on_no_other_block(store: Path, tmp_path: Path) -> None:
    """A task that keeps data for others would make the memory grow with the array."""
    array = zarr.open_array(store)
    source = NamedArray(store, array)
    tasks = stores._tasks(BlockCopies(source, array.chunks, 2, (0, 3, 7), (source, source)))
    graph = dict(collections_to_expr([tasks]).optimize().__dask_graph__())
    blocks = prod(map(ceil_div, array.shape, array.chunks))
    assert len(graph) == blocks + 1  # and one for what all of them need
    assert len({need for task in graph.values() for need in task.dependencies}) == 1
