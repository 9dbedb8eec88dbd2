""".npy files, read and written without a memory map."""

from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.storage.npy_file import open_npy, write

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
def test_boxes_are_read_as_numpy_does(
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


class Slow(FileIO):
    """A file whose calls move a part of the bytes."""

    def readinto(self, buffer: Any) -> int:
        return super().readinto(buffer[:7])

    def write(self, data: Any) -> int:
        return super().write(data[:7])


def test_a_call_that_moves_a_part_of_the_bytes_is_continued(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100, dtype="u2"))
    values = np.empty(200, np.uint8)
    file = open_npy(tmp_path / "a.npy")
    with Slow(tmp_path / "a.npy") as source, Slow(tmp_path / "b", "w") as target:
        source.seek(file.offset)
        file.read_into(values, source)
        write(target, tmp_path / "b", values.reshape(10, 20))
    np.testing.assert_array_equal(values.view("u2"), np.arange(100))
    assert (tmp_path / "b").read_bytes() == values.tobytes()
