"""One block: which chunks are written, and which are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dmlsplit.storage.resumable import split_store
from tests.support.stores import VALUES, assert_pieces, contents, make_store

pytestmark = pytest.mark.usefixtures("small_blocks")


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
def test_only_the_bits_of_the_fill_value_count_as_fill(
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
            # Zarr imports CuPy if it is installed, which takes some 200 MB.
            assert peak < 300e6 or run["cupy_is_loaded"]


@pytest.mark.gpu
def test_blocks_can_pass_through_a_gpu(store: Path, tmp_path: Path) -> None:
    split_store(store, (1, 6), 2, tmp_path, device="cuda:0")
    assert_pieces(tmp_path, VALUES, 2, (1, 6))
