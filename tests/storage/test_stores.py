"""`dmlsplit run` into zarr: progress, runs that stop, and schedulers that do not answer."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import dmlsplit as dml
from dmlsplit.storage import schedulers
from dmlsplit.storage.stores import split_store
from tests.support.command import refused
from tests.support.stores import VALUES, assert_pieces, stop_after

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_progress_goes_up_to_all_bytes(store: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    split_store(store, (1, 6), 2, tmp_path, progress=lambda *step: seen.append(step))
    assert seen == sorted(seen)
    assert len(set(seen)) >= 15
    assert seen[-1] == (VALUES.nbytes, VALUES.nbytes)


def test_a_run_that_stops_leaves_the_old_pieces_and_starts_over(
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
    host: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://{host}:{server.getsockname()[1]}"
    line = f"run {store} --axis 0 --count 2 -o {tmp_path / 'out'} --scheduler '{address}'"
    begun = time.monotonic()
    said = refused(capsys, line)
    assert time.monotonic() - begun < 5
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
