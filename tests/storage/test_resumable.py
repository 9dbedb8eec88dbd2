"""`dmlsplit run` into zarr: each block runs once, interrupted runs resume, a cluster is checked."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

import dmlsplit as dml
from dmlsplit.storage import executors, resumable, workspace
from dmlsplit.storage.resumable import split_store
from tests.support.command import refused
from tests.support.stores import (
    VALUES,
    StopError,
    assert_pieces,
    finished_blocks,
    publishing_stops_at,
    stop_after,
)

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_each_block_is_moved_once(store: Path, tmp_path: Path, moved: list[int]) -> None:
    seen: list[tuple[int, int]] = []
    split_store(store, (1, 6), 2, tmp_path, progress=lambda *step: seen.append(step))
    assert sorted(moved) == list(range(15))
    assert seen[0] == (0, VALUES.nbytes)
    assert seen[-1] == (VALUES.nbytes, VALUES.nbytes)


def test_an_interrupted_run_resumes_where_it_stopped(
    store: Path, tmp_path: Path, begun: Path, moved: list[int]
) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == [".in.unfinished", "in.zarr"]
    finished = finished_blocks(begun)
    assert len(finished) >= 6
    split_store(store, (1, 6), 2, tmp_path)
    assert sorted(moved) == sorted(set(range(15)) - finished)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def test_earlier_pieces_stay_until_the_new_ones_are_complete(store: Path, tmp_path: Path) -> None:
    split_store(store, (3, 4), 2, tmp_path)
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, overwrite=True, progress=stop_after(5))
    assert_pieces(tmp_path, VALUES, 2, (3, 4))
    split_store(store, (1, 6), 2, tmp_path, overwrite=True)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def test_an_unfinished_run_of_another_split_is_not_continued(
    store: Path, tmp_path: Path, begun: Path
) -> None:
    with pytest.raises(
        dml.InvalidArgumentError, match=r"with sizes \[1, 6\]; this one has \[2, 5\]"
    ):
        split_store(store, (2, 5), 2, tmp_path)


@pytest.mark.parametrize("exchanges", [True, False], ids=["exchange", "two renames"])
def test_an_interrupted_renaming_is_finished(
    exchanges: bool, store: Path, tmp_path: Path, moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    split_store(store, (3, 4), 2, tmp_path)
    if not exchanges:
        monkeypatch.setattr(workspace, "_exchanged", lambda one, other: False)
    with publishing_stops_at("in_1.zarr"):
        split_store(store, (1, 6), 2, tmp_path, overwrite=True)
    moved.clear()
    split_store(store, (1, 6), 2, tmp_path, overwrite=True)
    assert moved == []
    assert_pieces(tmp_path, VALUES, 2, (1, 6))
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["in.zarr", "in_0.zarr", "in_1.zarr"]


def test_a_run_whose_pieces_cannot_be_created_leaves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *rest: object) -> None:
        if path.name == "1":
            raise OSError(28, "No space left on device")
        path.mkdir()

    monkeypatch.setattr(resumable, "create_piece", full)
    with pytest.raises(OSError, match="No space left"):
        split_store(store, (1, 6), 2, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        *("", "tcp://", "http://x", "nonsense://x"),
        *(f"tcp://{host}:PORT" for host in ("127.0.0.1", "localhost", "nowhere.invalid", "[::1]")),
    ],
)
def test_a_dead_scheduler_is_reported_at_once(
    address: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = address.replace("PORT", str(server.getsockname()[1]))
    line = f"run {store} --axis 0 --count 2 -o {tmp_path / 'out'} --scheduler '{address}'"
    begun = time.monotonic()
    said = refused(capsys, line)
    assert time.monotonic() - begun < 5
    assert f"no Dask scheduler answers at {address or repr('')}: " in said
    assert not (tmp_path / "out").exists()


def test_a_server_that_is_not_a_scheduler_is_not_waited_for(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert executors._silence(address.replace("tcp", "tls")) == ""  # only dask can tell
        with pytest.raises(dml.InvalidArgumentError, match="something else is listening there"):
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
        executors._check_cluster(client)
    assert error.value.message.startswith(f"{machine} cannot import dmlsplit and zarr: No module")


@pytest.mark.parametrize(
    ("cause", "fix"),
    [(ModuleNotFoundError("No module named 'zarr'"), True), (KeyError("deserialize"), False)],
)
def test_an_error_of_a_block_names_its_cause(cause: Exception, fix: bool) -> None:
    """A worker that joins later is not checked; its import error arrives with the block."""
    future: Future[int] = Future()
    error = RuntimeError("Error during deserialization of the task graph")
    error.__cause__ = cause
    future.set_exception(error)
    with pytest.raises(dml.UnsupportedError, match=f"a block failed: {type(cause).__name__}") as it:
        executors._result(future)
    assert ("where the scheduler and every worker run" in it.value.message) == fix
