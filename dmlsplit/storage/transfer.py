"""Splitting host memory on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.eager import split


def split_on(device: str, array: np.ndarray, sizes: Sequence[int], axis: int) -> list[np.ndarray]:
    """Split an array of the host on a device into new arrays of the host."""
    if device == "cpu":
        return split(array, sizes, axis)
    # As bytes, since CuPy lacks some of NumPy's data types.
    flat = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize)
    parts = [to_host(part) for part in split(to_device(flat, device), sizes, axis)]
    return [part.reshape(-1).view(array.dtype).reshape(part.shape[:-1]) for part in parts]
