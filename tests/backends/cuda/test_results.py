"""What the CUDA engine leaves in memory, through the calls that people make; on a GPU.

test_gpu.py has every layout and the bytes around; the simulated card runs both.
"""

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

import dmlsplit as dml
from tests.support.gpu_arrays import cuts, noise

pytestmark = pytest.mark.gpu

SIZES = (64, 24, 8)
DESC = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("FLOAT16", (4, 96)), axis=1, sizes=SIZES)


def pieces(array: np.ndarray, sizes: tuple[int, ...], axis: int) -> list[bytes]:
    return [piece.tobytes() for piece in np.split(array, cuts(sizes), axis)]


@pytest.mark.parametrize(
    ("shape", "dtype", "axis", "sizes"),
    [
        ((4, 96), "f2", 1, (64, 24, 8)),
        ((64, 3), "u1", 1, (1, 1, 1)),
        ((9, 4099), "u1", 1, (1500, 2599)),
        ((12, 33), "f4", 0, (5, 0, 7)),
    ],
    ids=["aligned", "rgb", "misaligned", "axis 0"],
)
def test_split_gives_the_pieces_of_numpy(
    shape: tuple[int, ...], dtype: str, axis: int, sizes: tuple[int, ...]
) -> None:
    import cupy

    array = noise(shape, dtype)
    found = dml.split(cupy.asarray(array), sizes, axis)
    assert [one.get().tobytes() for one in found] == pieces(array, sizes, axis)


def test_every_one_of_4097_outputs_is_written() -> None:
    import cupy

    array = noise((4097, 3), "u2")
    found = dml.split(cupy.asarray(array), 4097)
    assert b"".join(one.get().tobytes() for one in found) == array.tobytes()


def test_an_operator_returns_arrays_laid_out_as_described() -> None:
    import cupy

    array = noise((2, 3, 4), "f4")
    x = dml.TensorDesc("FLOAT32", (2, 3, 4))
    outputs = [
        dml.TensorDesc("FLOAT32", (2, 1, 4), strides=(4, 4, 1)),
        dml.TensorDesc("FLOAT32", (2, 2, 4), strides=(1, 2, 4)),
    ]
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc(x, outputs, 1))
    one, two = (out.get(order="A") for out in op(cupy.asarray(array)))
    assert two.strides == (4, 8, 16)
    assert one.tobytes() == array[:, :1].tobytes()
    assert np.ascontiguousarray(two).tobytes() == array[:, 1:].tobytes()


def test_a_bound_operator_follows_its_input() -> None:
    import cupy

    array = noise((4, 96), "f2")
    source = cupy.asarray(array)
    outs = [cupy.asarray(np.zeros((4, size), "f2")) for size in SIZES]
    dml.Device("cuda:0").compile(DESC).bind(source, outs).dispatch()
    assert [out.get().tobytes() for out in outs] == pieces(array, SIZES, 1)


def test_files_go_through_the_device(tmp_path: Path) -> None:
    from dmlsplit.storage.npy import split_file

    array = noise((6, 7), "f4")
    np.save(tmp_path / "a.npy", array)
    done = split_file(tmp_path / "a.npy", (3, 4), 1, tmp_path / "out", device="cuda:0")
    assert [np.load(path).tobytes() for path in done.paths] == pieces(array, (3, 4), 1)


def test_out_may_be_columns_of_one_array() -> None:
    import cupy

    array = noise((6, 5), "u2")
    store = cupy.asarray(np.zeros((6, 12), "u2"))
    widths, gap = (3, 2), 1
    starts = accumulate((width + gap for width in widths[:-1]), initial=0)
    views = [store[:, at : at + width] for at, width in zip(starts, widths, strict=True)]
    dml.split(cupy.asarray(array), widths, 1, out=views)
    found = store.get()
    np.testing.assert_array_equal(found[:, :3], array[:, :3])
    np.testing.assert_array_equal(found[:, 4:6], array[:, 3:])
    assert not found[:, [3, *range(6, 12)]].any()
