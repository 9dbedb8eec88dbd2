""".npy files, read and written without a memory map."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.storage.npy_file import create_npy, open_npy

DTYPES = ["u1", "<f4", ">i8", "c16", "M8[s]", "V3", "S5", [("a", "<i2"), ("b", "?")]]


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[slice, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    ends = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    return shape, tuple(slice(start, stop) for start, stop in ends)


def random_array(shape: tuple[int, ...], dtype: Any, order: Any) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = np.random.default_rng(size).integers(0, 2, size, np.uint8).tobytes()
    return np.frombuffer(data, dtype).reshape(shape, order=order)


@given(boxes(), st.sampled_from(DTYPES), st.sampled_from("CF"))
def test_boxes_are_read_and_parts_are_written_as_numpy_does(
    tmp_path_factory: pytest.TempPathFactory,
    box: tuple[tuple[int, ...], tuple[slice, ...]],
    dtype: Any,
    order: str,
) -> None:
    (shape, region), folder = box, tmp_path_factory.mktemp("box")
    array = random_array(shape, dtype, order)
    np.save(folder / "a.npy", array)
    file = open_npy(folder / "a.npy")
    assert (file.shape, file.dtype, file.size_in_bytes) == (shape, array.dtype, array.nbytes)
    assert file[region].tobytes() == array[region].tobytes()
    copy = create_npy(folder / "b.npy", folder / "b.npy", file, shape)
    values, middle = array.ravel(order="K"), array.size // 2
    copy.write(values[middle:], middle)
    copy.write(values[:middle], 0)
    assert (folder / "b.npy").read_bytes() == (folder / "a.npy").read_bytes()


def test_a_call_that_moves_a_part_of_the_bytes_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(100, dtype="u2").reshape(10, 10)
    np.save(tmp_path / "a.npy", array)
    read, write = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda h, parts, at: read(h, [parts[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda h, data, at: write(h, data[:7], at))
    file = open_npy(tmp_path / "a.npy")
    values = file[slice(0, 10), slice(0, 10)]
    np.testing.assert_array_equal(values, array)
    create_npy(tmp_path / "b.npy", tmp_path / "b.npy", file, (10, 10)).write(values, 0)
    assert (tmp_path / "b.npy").read_bytes() == (tmp_path / "a.npy").read_bytes()


def test_files_are_closed_with_their_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(10))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(10):
        open_npy(tmp_path / "a.npy")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
