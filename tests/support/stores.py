"""Zarr stores to split, and checks of the results."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

VALUES = np.random.default_rng(5).integers(0, 1 << 16, (60, 33, 7), dtype="u2")


def make_store(path: Path, values: np.ndarray = VALUES, **layout: Any) -> Path:
    settings = {"shape": values.shape, "dtype": values.dtype, **layout}
    store = zarr.create_array(str(path), **settings)
    store[:] = values
    store.attrs["unit"] = "K"
    for each in path.rglob("*"):  # a run waits for the clock if its input was written just now
        os.utime(each, (time.time() - 1,) * 2)
    return path


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


class StopError(Exception):
    pass


def stop_after(count: int) -> Callable[[int, int], None]:
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) > count:
            raise StopError

    return progress
