"""Copies between host memory and CUDA devices, for callers whose data is on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlsplit.arrays import view
from dmlsplit.arrays.array_view import device_number
from dmlsplit.backends.cuda import driver


def to_device(array: np.ndarray, device: str) -> Any:
    """Copy an array to a device: a CuPy array on ``cuda:N``, the array itself on ``cpu``."""
    return array if device == "cpu" else driver.load().upload(device_number(device), array)


def to_host(array: Any) -> np.ndarray:
    """Copy a CuPy array to the host; return an array of NumPy as it is."""
    if isinstance(array, np.ndarray):
        return array
    return driver.load().download(device_number(view(array, "array").device), array)
