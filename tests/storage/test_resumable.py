"""`dmlsplit run` on zarr: every layout, interruptions, damage, a cluster."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.storage import resumable, worker, zarr_arrays
from dmlsplit.storage.resumable import split_store

ROOT = Path(__file__).parent.parent.parent
VALUES = np.random.default_rng(5).integers(0, 1 << 16, (60, 33, 7), dtype="u2")
LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {"chunks": (16, 8, 3)},
    "v2": {"chunks": (16, 8, 3), "zarr_format": 2},
    "v2-fortran": {"chunks": (16, 8, 3), "zarr_format": 2, "order": "F"},
    "sharded": {"chunks": (4, 4, 3), "shards": (16, 8, 3)},
    "big-endian, raw": {"chunks": (16, 8, 3), "dtype": ">u2", "compressors": None},
    "one chunk": {"chunks": (60, 33, 7)},
}
CUTS = [(0, (20, 0, 40)), (1, (1, 30, 2)), (2, (1, 1, 5)), (0, (60,))]


def make_store(path: Path, values: np.ndarray = VALUES, **layout: Any) -> Path:
    settings = {"shape": values.shape, "dtype": values.dtype, **layout}
    store = zarr.create_array(str(path), **settings)
    store[:] = values
    store.attrs["unit"] = "K"
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "in.zarr", chunks=(4, 33, 7))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_arrays, "BLOCK_BYTES", 2048)
    monkeypatch.setattr(zarr_arrays, "CHUNK_BYTES", 1024)


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of every block that is moved."""
    blocks: list[int] = []

    def counted(*arguments: Any) -> int:
        blocks.append(arguments[-1])
        return worker.move_block(*arguments)

    monkeypatch.setattr(resumable, "move_block", counted)
    return blocks


def assert_pieces(
    folder: Path, values: np.ndarray, axis: int, sizes: tuple[int, ...], name: str = "in"
) -> list[Any]:
    opened = []
    for index, right in enumerate(np.split(values, np.cumsum(sizes)[:-1], axis)):
        piece = zarr.open_array(str(folder / f"{name}_{index}.zarr"), mode="r")
        assert piece.shape == right.shape
        np.testing.assert_array_equal(piece[:], right)
        opened.append(piece)
    return opened


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("axis", "sizes"), CUTS)
def test_every_layout_is_split_and_kept(
    layout: dict[str, Any], axis: int, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    source = zarr.open_array(str(make_store(tmp_path / "in.zarr", **layout)), mode="r")
    split_store(tmp_path / "in.zarr", sizes, axis, tmp_path / "out")
    for piece in assert_pieces(tmp_path / "out", VALUES, axis, sizes):
        assert piece.dtype == source.dtype
        assert piece.metadata.zarr_format == source.metadata.zarr_format
        assert piece.compressors == source.compressors
        assert piece.attrs["unit"] == "K"
        assert (piece.shards is None) == (source.shards is None)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"in_{index}.zarr" for index in range(len(sizes))]


@pytest.mark.parametrize(("axis", "sizes"), CUTS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_becomes_zarr(axis: int, sizes: tuple[int, ...], order: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.asarray(VALUES, order=order))
    split_store(tmp_path / "in.npy", sizes, axis, tmp_path)
    assert_pieces(tmp_path, VALUES, axis, sizes)


def test_a_zip_store_can_be_read(tmp_path: Path) -> None:
    archive = zarr.storage.ZipStore(tmp_path / "in.zarr.zip", mode="w")
    zarr.create_array(archive, shape=VALUES.shape, dtype=VALUES.dtype, chunks=(16, 8, 3))[:] = (
        VALUES
    )
    archive.close()
    split_store(tmp_path / "in.zarr.zip", (20, 40), 0, tmp_path)
    assert_pieces(tmp_path, VALUES, 0, (20, 40))


def test_the_command_says_what_it_wrote(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", str(store), "--axis", "-1", "--split", "1,6", "-o", str(tmp_path / "out")]
    assert main(line) == 0
    assert_pieces(tmp_path / "out", VALUES, 2, (1, 6))
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("in.zarr: uint16 (60, 33, 7) -> 2 pieces along axis 2, on cpu")
    assert out[1].endswith("in_0.zarr  uint16 (60, 33, 1)")


def test_each_block_is_moved_once(store: Path, tmp_path: Path, moved: list[int]) -> None:
    seen: list[tuple[int, int]] = []
    split_store(store, (1, 6), 2, tmp_path, progress=lambda *step: seen.append(step))
    assert sorted(moved) == list(range(15))
    assert seen[0] == (0, VALUES.nbytes)
    assert seen[-1] == (VALUES.nbytes, VALUES.nbytes)


def test_missing_chunks_stay_missing(tmp_path: Path) -> None:
    """Zarr does not store chunks that hold only the fill value; neither do the pieces."""
    store = zarr.create_array(
        str(tmp_path / "in.zarr"), shape=(40, 8), dtype="f4", chunks=(4, 8), fill_value=7
    )
    store[8:20] = 1
    split_store(tmp_path / "in.zarr", (8, 32), 0, tmp_path)
    assert set(contents(tmp_path / "in_0.zarr")) == {"zarr.json"}
    assert set(contents(tmp_path / "in_1.zarr")) == {"zarr.json", "c/0/0", "c/1/0", "c/2/0"}
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "in_1.zarr"))[:], store[8:])


@pytest.mark.parametrize("fill", [0.0, np.nan], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_only_the_bits_of_the_fill_value_count_as_fill(
    fill: float, dtype: str, tmp_path: Path
) -> None:
    """A chunk of negative zeros, or of other NaNs, is data."""
    values = np.full((12, 4), fill, dtype)
    values[4:8].view("u4")[...] = 0x80000000 if fill == 0 else 0x7FC00001
    make_store(
        tmp_path / "in.zarr",
        values,
        chunks=(4, 4),
        fill_value=fill,
        config={"write_empty_chunks": True},
    )
    split_store(tmp_path / "in.zarr", (1, 3), 1, tmp_path / "out")
    for index, right in enumerate(np.split(values, [1], 1)):
        folder = tmp_path / "out" / f"in_{index}.zarr"
        piece: Any = zarr.open_array(str(folder), mode="r")
        assert piece[:].tobytes() == np.ascontiguousarray(right).tobytes()


def test_chunks_that_are_not_stored_are_counted_aloud(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To zarr a lost chunk is the fill value; only the user knows whether it should be."""
    (store / "c/3/0/0").unlink()
    assert main(["run", str(store), "--axis", "0", "--count", "2", "-o", str(tmp_path)]) == 0
    err = capsys.readouterr().err
    assert err.startswith("dmlsplit: note: 1 of 15 chunks of ")
    assert err.endswith("are not stored; zarr reads them as the fill value, 0\n")


# --- interruptions


class StopError(Exception):
    pass


def stop_after(count: int) -> Callable[[int, int], None]:
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) > count:
            raise StopError

    return progress


def test_an_interrupted_run_is_taken_up_where_it_stopped(
    store: Path, tmp_path: Path, moved: list[int]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, out, progress=stop_after(6))
    assert [path.name for path in out.iterdir()] == [".in.unfinished"]
    journal = (out / ".in.unfinished" / "journal").read_text().splitlines()
    finished = set(map(int, journal[1:]))
    assert len(finished) >= 6
    moved.clear()
    split_store(store, (1, 6), 2, out)
    assert sorted(moved) == sorted(set(range(15)) - finished)
    assert_pieces(out, VALUES, 2, (1, 6))


def test_earlier_pieces_stay_until_the_new_ones_are_complete(store: Path, tmp_path: Path) -> None:
    split_store(store, (3, 4), 2, tmp_path)
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(5))
    assert_pieces(tmp_path, VALUES, 2, (3, 4))
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def test_an_unfinished_run_of_another_split_is_not_continued(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(3))
    with pytest.raises(
        dml.InvalidArgumentError, match=r"with sizes \[1, 6\]; this one has \[2, 5\]"
    ):
        split_store(store, (2, 5), 2, tmp_path)
    os.utime(store / "zarr.json", (1, 1))
    with pytest.raises(dml.InvalidArgumentError, match="with state"):
        split_store(store, (1, 6), 2, tmp_path)


def test_a_line_that_was_cut_short_does_not_count(
    store: Path, tmp_path: Path, moved: list[int]
) -> None:
    """A journal that ends in the first digit of 12 must not say that block 1 is done."""
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(4))
    journal = tmp_path / ".in.unfinished" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    missing = set(range(15)) - set(map(int, lines[1:-1]))
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:-1])
    moved.clear()
    split_store(store, (1, 6), 2, tmp_path)
    assert set(moved) == missing
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\nx\n", b"[1]\n", b"\xff\n"])
def test_a_damaged_journal_is_not_believed(content: bytes, store: Path, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(3))
    (tmp_path / ".in.unfinished" / "journal").write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError, match="is damaged"):
        split_store(store, (1, 6), 2, tmp_path)


def test_an_interrupted_renaming_is_finished(
    store: Path, tmp_path: Path, moved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    split_store(store, (3, 4), 2, tmp_path)
    rename = Path.rename

    def stop_at_last(path: Path, target: Path) -> Path:
        if target.name == "in_1.zarr":
            raise StopError
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", stop_at_last)
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path)
    monkeypatch.setattr(Path, "rename", rename)
    moved.clear()
    split_store(store, (1, 6), 2, tmp_path)
    assert moved == []
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


PROGRAM = """
import os, sys, time
from dmlsplit.storage import resumable
from dmlsplit.storage import zarr_arrays
from dmlsplit.storage.worker import move_block
from dmlsplit.cli import main
zarr_arrays.BLOCK_BYTES = 2048
def slow(*arguments):
    time.sleep(0.02)
    number = move_block(*arguments)
    os.write(2, b"%d\\n" % number)
    return number
resumable.move_block = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("kill", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
)
def test_a_killed_process_is_resumed(
    kill: signal.Signals, status: int, store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    line = [sys.executable, "-c", PROGRAM, "run", str(store), "--axis", "2", "--split", "1,6"]
    line += ["-o", str(out)]
    first = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert first.stderr is not None
    for _ in range(5):
        first.stderr.readline()
    first.send_signal(kill)
    first.stderr.read()
    first.stderr.close()
    assert first.wait() == status
    assert [path.name for path in out.iterdir()] == [".in.unfinished"]
    journal = (out / ".in.unfinished" / "journal").read_text().splitlines()
    assert len(journal) > 1

    second = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    redone = set(map(int, second.stderr.split()))
    assert redone == set(range(15)) - set(map(int, journal[1:]))
    assert_pieces(out, VALUES, 2, (1, 6))


def test_two_runs_do_not_write_the_same_pieces(store: Path, tmp_path: Path) -> None:
    def second(done: int, total: int) -> None:
        with pytest.raises(dml.InvalidArgumentError, match="another run writes the same pieces"):
            split_store(store, (1, 6), 2, tmp_path)

    split_store(store, (1, 6), 2, tmp_path, progress=second)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


# --- bad input


def cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "no metadata": lambda store: (store / "zarr.json").unlink(),
    "metadata cut": lambda store: cut(store / "zarr.json", 0.5),
    "metadata empty": lambda store: cut(store / "zarr.json", 0),
    "metadata a list": lambda store: (store / "zarr.json").write_text("[]"),
    "metadata without type": lambda store: (store / "zarr.json").write_text(
        '{"zarr_format": 3, "node_type": "array", "shape": [3]}'
    ),
    "chunk cut": lambda store: cut(store / "c/3/0/0", 0.5),
    "chunk empty": lambda store: cut(store / "c/3/0/0", 0),
}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("no metadata", "is not a zarr store"),
        ("metadata cut", "damaged zarr metadata"),
        ("metadata empty", "damaged zarr metadata"),
        ("metadata a list", "damaged zarr metadata"),
        ("metadata without type", "damaged zarr metadata"),
        ("chunk cut", "the chunks of [12:16, 0:33, 0:7] cannot be read"),
        ("chunk empty", "the chunks of [12:16, 0:33, 0:7] cannot be read"),
    ],
)
@pytest.mark.parametrize("compressed", [True, False], ids=["compressed", "raw"])
def test_a_damaged_store_is_one_line_and_touches_nothing(
    damage: str,
    message: str,
    compressed: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout = {} if compressed else {"compressors": None}
    store = make_store(tmp_path / "in.zarr", chunks=(4, 33, 7), **layout)
    out = tmp_path / "out"
    split_store(store, (3, 4), 2, out)
    before = contents(out)
    DAMAGES[damage](store)
    assert main(["run", str(store), "--axis", "2", "--split", "1,6", "-o", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dmlsplit: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert {name: data for name, data in contents(out).items() if name in before} == before


def test_after_a_damaged_chunk_is_repaired_the_run_goes_on(store: Path, tmp_path: Path) -> None:
    chunk = store / "c/3/0/0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-5])
    with pytest.raises(dml.InvalidArgumentError, match="start the same run again"):
        split_store(store, (1, 6), 2, tmp_path)
    chunk.write_bytes(whole)
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def group(path: Path) -> None:
    root = zarr.open_group(str(path), mode="w")
    root.create_array("air/temperature", shape=(4,), dtype="f4")
    root.create_array("time", shape=(4,), dtype="f4")


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (group, [], "is a zarr group; it must be one array. It holds air/temperature, time."),
        (lambda path: zarr.open_group(str(path), mode="w"), [], "it holds no array"),
        (lambda path: None, [], "No such file"),
        (lambda path: path.mkdir(), [], "is not a zarr store"),
        (lambda path: path.write_text("x"), [], "damaged zarr metadata"),
        (
            lambda path: zarr.create_array(str(path), shape=(4,), dtype=np.dtypes.StringDType()),
            [],
            "elements have no fixed size",
        ),
        (lambda path: zarr.create_array(str(path), shape=(), dtype="f4"), [], "scalar"),
        (make_store, ["--axis", "3"], "axis is 3"),
        (make_store, ["--split", "1,2"], "sizes are [1, 2], 3 in sum"),
        (make_store, ["--format", "npy"], "is split into zarr only"),
        (make_store, ["--device", "tpu"], "device is 'tpu'"),
        (make_store, ["--block-bytes", "0"], "block_bytes is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_run_writes_nothing(
    make: Callable[[Path], Any],
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path / "in.zarr")
    out = tmp_path / "out"
    line = ["run", str(tmp_path / "in.zarr"), "--axis", "0", "--split", "10,50", "-o", str(out)]
    assert main([*line, *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("option", [["--scheduler", "tcp://127.0.0.1:1"], ["--block-bytes", "9"]])
def test_some_options_are_for_zarr_only(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "in.npy", VALUES)
    line = ["run", str(tmp_path / "in.npy"), "--axis", "0", "--count", "2"]
    assert main([*line, *option, "-o", str(tmp_path)]) == 2
    assert "Fix: --format zarr" in capsys.readouterr().err


def test_a_scheduler_that_does_not_exist_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", str(store), "--axis", "0", "--count", "2", "-o", str(tmp_path / "out")]
    assert main([*line, "--scheduler", "nonsense://x"]) == 2
    assert "no Dask scheduler answers at nonsense://x" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_no_zarr_array_is_not_replaced(store: Path, tmp_path: Path) -> None:
    (tmp_path / "in_1.zarr").mkdir()
    (tmp_path / "in_1.zarr" / "thesis.txt").write_text("precious")
    with pytest.raises(dml.InvalidArgumentError, match="it is not replaced"):
        split_store(store, (1, 6), 2, tmp_path)
    assert (tmp_path / "in_1.zarr" / "thesis.txt").read_text() == "precious"
    assert not (tmp_path / "in_0.zarr").exists()


@pytest.mark.parametrize("module", ["zarr", "distributed"])
def test_without_the_extra_the_error_names_it(
    module: str,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = ["run", str(store), "--axis", "0", "--count", "2", "-o", str(tmp_path / "out")]
    assert main([*line, "--scheduler", "tcp://127.0.0.1:1"]) == 2
    assert f'{module}, which is missing. Fix: pip install "dmlsplit[dask]"' in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


# --- a cluster


def test_a_cluster_goes_on_when_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    values = np.random.default_rng(2).integers(0, 1 << 16, (400, 33, 7), dtype="u2")
    long = make_store(tmp_path / "long.zarr", values, chunks=(2, 33, 7))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
    ) as cluster:
        victim = cluster.workers[0].pid

        def kill_early(done: int, total: int) -> None:
            nonlocal victim
            if victim and 0 < done < total // 2:
                os.kill(victim, signal.SIGKILL)
                victim = 0

        split_store(
            long, (1, 6), 2, tmp_path, scheduler=cluster.scheduler_address, progress=kill_early
        )
        assert victim == 0
    assert_pieces(tmp_path, values, 2, (1, 6), "long")


def test_workers_without_dmlsplit_are_refused_before_they_get_a_block() -> None:
    """Such a worker would stop: it cannot load the task. It is asked in Python's own words."""

    class Client:
        def run(self, function: Callable[..., None], code: str) -> None:
            function(code.replace("dmlsplit", "dmlsplit_of_elsewhere"))

        def run_on_scheduler(self, function: Callable[..., None], code: str) -> None:
            function(code)

    with pytest.raises(dml.UnsupportedError, match="where the scheduler and every worker run"):
        resumable._check_cluster(Client())


@pytest.mark.slow
def test_memory_per_worker_is_that_of_its_blocks(tmp_path: Path) -> None:
    """The measurement of benchmarks/scale.py on a tenth of the data."""
    from benchmarks import scale

    source, out = tmp_path / "in.zarr", tmp_path / "out"
    scale.make_source(source, 200_000_000, "auto")
    for run in (scale.run_on_cluster(source, out, workers) for workers in (1, 2)):
        scale.check(source, out)
        for loaded, peak in zip(run["loaded_bytes"], run["peak_bytes"], strict=True):
            assert peak - loaded < 150e6
            # Zarr imports CuPy where it is installed, which is some 200 MB by itself.
            assert peak < 300e6 or run["cupy_is_loaded"]


@pytest.mark.gpu
def test_blocks_can_pass_through_a_gpu(store: Path, tmp_path: Path) -> None:
    cupy = pytest.importorskip("cupy")
    if not cupy.is_available():
        pytest.skip("no CUDA device")
    split_store(store, (1, 6), 2, tmp_path, device="cuda:0")
    assert_pieces(tmp_path, VALUES, 2, (1, 6))
