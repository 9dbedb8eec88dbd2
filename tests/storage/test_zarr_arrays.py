"""Zarr stores of every layout: which are read, what the pieces keep, which are refused."""

import asyncio
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync

from dmlsplit.storage.stores import split_store
from dmlsplit.storage.zarr_arrays import box, wait_for_chunks
from tests.support.command import refused
from tests.support.fixtures import Capsys, Patch
from tests.support.stores import VALUES, assert_pieces, contents, make_store

pytestmark = pytest.mark.usefixtures("small_blocks")
LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {"chunks": (24, 14, 4)},
    "v2": {"chunks": (24, 14, 4), "zarr_format": 2},
    "v2-fortran": {"chunks": (24, 14, 4), "zarr_format": 2, "order": "F"},
    "sharded": {"chunks": (12, 7, 2), "shards": (24, 14, 4)},
    "big-endian, raw": {"chunks": (24, 14, 4), "dtype": ">u2", "compressors": None},
    "one chunk": {"chunks": (60, 33, 7)},
}


CUTS = [(0, (20, 0, 40)), (1, (1, 30, 2)), (2, (1, 1, 5)), (0, (60,))]


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        pytest.param(name, cut, marks=() if at < 2 or name == "v3" else pytest.mark.slow)
        for name in LAYOUTS
        for at, cut in enumerate(CUTS)
    ],
)
def test_pieces_have_the_format_compressors_and_attributes_of_the_input(
    name: str, cut: tuple[int, tuple[int, ...]], tmp_path: Path
) -> None:
    (axis, sizes), layout = cut, LAYOUTS[name]
    source = zarr.open_array(str(make_store(tmp_path / "in.zarr", **layout)), mode="r")
    two_chunks = 6000
    split_store(tmp_path / "in.zarr", sizes, axis, tmp_path / "out", block_bytes=two_chunks)
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
def test_a_npy_file_is_split_into_zarr_arrays(
    axis: int, sizes: tuple[int, ...], order: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", np.asarray(VALUES, order=order))
    split_store(tmp_path / "in.npy", sizes, axis, tmp_path)
    assert_pieces(tmp_path, VALUES, axis, sizes)


def test_a_zip_store_can_be_read(tmp_path: Path) -> None:
    archive = zarr.storage.ZipStore(tmp_path / "in.zarr.zip", mode="w")
    zarr.create_array(archive, data=VALUES, chunks=(16, 8, 3))
    archive.close()
    split_store(tmp_path / "in.zarr.zip", (20, 40), 0, tmp_path)
    assert_pieces(tmp_path, VALUES, 0, (20, 40))


def cut(path: Path, keep: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


RAW = {"compressors": None}
METADATA, CHUNK = "damaged zarr metadata", "the chunks of [12:16, 0:33, 0:7] cannot be read"
NO_TYPE = '{"zarr_format": 3, "node_type": "array", "shape": [3]}'
DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no metadata": (lambda store: (store / "zarr.json").unlink(), "is not a zarr store"),
    "metadata cut": (lambda store: cut(store / "zarr.json", 0.5), METADATA),
    "metadata empty": (lambda store: cut(store / "zarr.json", 0), METADATA),
    "metadata a list": (lambda store: (store / "zarr.json").write_text("[]"), METADATA),
    "metadata without type": (lambda store: (store / "zarr.json").write_text(NO_TYPE), METADATA),
    "chunk cut": (lambda store: cut(store / "c/3/0/0", 0.5), CHUNK),
    "chunk empty": (lambda store: cut(store / "c/3/0/0", 0), CHUNK),
}


@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, {}) for name in DAMAGES), *((name, RAW) for name in DAMAGES if "chunk" in name)],
)
def test_a_damaged_store_is_reported_in_one_line_and_nothing_is_written(
    name: str, layout: dict[str, Any], tmp_path: Path, capsys: Capsys
) -> None:
    damage, message = DAMAGES[name]
    store = make_store(tmp_path / "in.zarr", chunks=(4, 33, 7), **layout)
    out = tmp_path / "out"
    split_store(store, (3, 4), 2, out)
    before = contents(out)
    damage(store)
    line = f"run {store} --axis 2 --split 1,6 -o {out} --overwrite"
    assert message in refused(capsys, line)
    assert {name: data for name, data in contents(out).items() if name in before} == before


def group(path: Path) -> None:
    root = zarr.open_group(str(path), mode="w")
    root.create_array("air/temperature", shape=(4,), dtype="f4")
    root.create_array("time", shape=(4,), dtype="f4")


def without_chunks(path: Path) -> None:
    zarr.create_array(str(path), shape=(4,), chunks=(2,), dtype="f4")
    metadata = path / "zarr.json"
    metadata.write_text(re.sub(r'("chunk_shape": \[\s*)2', r"\g<1>0", metadata.read_text()))


def objects(path: Path) -> None:
    path.mkdir()
    (path / ".zarray").write_text(
        '{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|O", "compressor": null,'
        ' "fill_value": null, "order": "C", "filters": [{"id": "vlen-utf8"}]}'
    )


def strings(path: Path) -> None:
    zarr.create_array(str(path), shape=(4,), dtype=np.dtypes.StringDType())


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (group, "", "is a zarr group; it must be one array. It holds air/temperature, time."),
        (lambda path: zarr.open_group(str(path), mode="w"), "", "it holds no array"),
        (lambda path: None, "", "No such file"),
        (lambda path: path.mkdir(), "", "is not a zarr store"),
        (lambda path: path.write_text("x"), "", "damaged zarr metadata"),
        # The rest is our message or, since zarr 3.4, zarr's warning, which is an error in tests.
        (without_chunks, "", "in.zarr: has damaged zarr metadata: "),
        (objects, "", "its elements have no fixed size, so they cannot be split as bytes"),
        (strings, "", "elements have no fixed size"),
        (lambda path: zarr.create_array(str(path), shape=(), dtype="f4"), "", "scalar"),
        (make_store, "--axis 3", "axis is 3"),
        (make_store, "--block-bytes 0", "block_bytes is 0; it must be at least 1"),
        (make_store, "-o s3://bucket/out", "s3://bucket/out is a URL; run reads and writes local"),
    ],
)
def test_an_unusable_input_or_option_is_refused_at_once_and_nothing_is_written(
    make: Callable[[Path], Any], arguments: str, message: str, here: Path, capsys: Capsys
) -> None:
    make(Path("in.zarr"))
    begun = time.monotonic()
    line = "run in.zarr --axis 0 --split 10,50 -o out"
    assert message in refused(capsys, f"{line} {arguments}")
    assert time.monotonic() - begun < 10
    assert not Path("out").exists()
    assert not Path("s3:").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"PK"), "has damaged zarr metadata: BadZipFile"),
        (lambda path: path.mkdir(), "is not a zarr store"),
    ],
)
def test_a_damaged_zip_store_is_reported_in_one_line(
    make: Callable[[Path], Any], message: str, tmp_path: Path, capsys: Capsys
) -> None:
    make(tmp_path / "in.zarr.zip")
    said = refused(capsys, f"run {tmp_path / 'in.zarr.zip'} --axis 0 --count 2")
    assert f"in.zarr.zip: {message}" in said


@pytest.mark.parametrize("module", ["zarr", "distributed"])
def test_the_error_for_a_missing_package_names_the_extra(
    module: str, store: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = f"run {store} --axis 0 --count 2 -o {tmp_path / 'out'} --scheduler tcp://127.0.0.1:1"
    said = refused(capsys, line)
    assert f'{module}, which is missing. Fix: pip install "dmlsplit[dask]"' in said
    assert not (tmp_path / "out").exists()


def test_chunks_that_zarr_still_handles_are_waited_for() -> None:
    """When one chunk of a block fails, zarr lets the others go on, and they start more work."""
    done: list[str] = []

    async def chunk() -> None:
        await asyncio.sleep(0.02)
        begun.append(asyncio.create_task(decode()))
        done.append("read")

    async def decode() -> None:
        await asyncio.sleep(0.02)
        done.append("decoded")
        raise ValueError

    async def block() -> None:
        begun.append(asyncio.create_task(chunk()))

    begun: list[Any] = []
    sync(block())
    assert not done
    wait_for_chunks()
    assert done == ["read", "decoded"]


def test_missing_chunks_stay_missing(tmp_path: Path) -> None:
    """Zarr does not store chunks that hold only the fill value. Nor do we for the pieces."""
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
def test_chunks_of_negative_zeros_or_other_nans_are_not_taken_for_the_fill_value(
    fill: float, dtype: str, tmp_path: Path
) -> None:
    """A chunk of negative zeros, or of other NaNs, is data."""
    values = np.full((12, 4), fill, dtype)
    values[4:8].view("u4")[...] = 0x80000000 if fill == 0 else 0x7FC00001
    layout = {"chunks": (4, 4), "fill_value": fill, "config": {"write_empty_chunks": True}}
    make_store(tmp_path / "in.zarr", values, **layout)
    split_store(tmp_path / "in.zarr", (1, 3), 1, tmp_path / "out")
    for index, right in enumerate(np.split(values, [1], 1)):
        folder = tmp_path / "out" / f"in_{index}.zarr"
        piece: Any = zarr.open_array(str(folder), mode="r")
        assert piece[:].tobytes() == np.ascontiguousarray(right).tobytes()


@pytest.mark.parametrize(
    ("shape", "item_bytes", "most_bytes", "expected"),
    [
        ((10, 10), 4, 4000, (10, 10)),
        ((4, 5000), 4, 4000, (1, 1000)),
        ((0, 3), 4, 4000, (1, 3)),
        ((7, 30, 40), 4, 4000, (1, 25, 40)),
        ((), 4, 4000, ()),
        ((5, 50), 3, 100, (1, 33)),
        ((5, 5), 8, 1, (1, 1)),  # at least one element
    ],
)
def test_a_box_fills_the_innermost_dimensions_first(
    shape: tuple[int, ...], item_bytes: int, most_bytes: int, expected: tuple[int, ...]
) -> None:
    assert box(shape, item_bytes, most_bytes) == expected
