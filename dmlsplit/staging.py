"""Host memory on a CUDA device and back, for callers whose data lies on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlsplit.arrays import view
from dmlsplit.backends.cuda import driver
from dmlsplit.eager import split


def to_device(array: np.ndarray, device: str) -> Any:
    """Copy an array to a device: a CuPy array on ``cuda:N``, the array itself on ``cpu``."""
    if device == "cpu":
        return array
    return driver.load().upload(_number(device), array)


def to_host(array: Any) -> np.ndarray:
    """Copy a CuPy array to the host; return an array of NumPy as it is."""
    if isinstance(array, np.ndarray):
        return array
    return driver.load().download(_number(view(array, "array").device), array)


def split_on(device: str, array: np.ndarray, sizes: Sequence[int], axis: int) -> list[np.ndarray]:
    """Split an array of the host on a device into new arrays of the host."""
    if device == "cpu":
        return split(array, sizes, axis)
    # As bytes, since CuPy lacks some of NumPy's data types.
    flat = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize)
    parts = [to_host(part) for part in split(to_device(flat, device), sizes, axis)]
    return [part.reshape(-1).view(array.dtype).reshape(part.shape[:-1]) for part in parts]


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)
