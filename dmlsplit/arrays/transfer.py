"""Host memory on a CUDA device and back, for callers whose data lies on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlsplit.arrays.array_view import view
from dmlsplit.backends.cuda import driver


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


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)
