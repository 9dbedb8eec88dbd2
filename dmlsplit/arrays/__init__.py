"""Arrays of any library. The type of an array selects the adapter of its library.

numpy_adapter.py, cupy_adapter.py and torch_adapter.py describe and make arrays of their libraries.
dlpack.py describes those of every other library as NumPy or CuPy arrays, and hands the pieces back
to it.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dmlsplit.arrays import dlpack
from dmlsplit.arrays.adapter import Adapter
from dmlsplit.arrays.array_view import ArrayView, device_number_of
from dmlsplit.arrays.cupy_adapter import CUPY
from dmlsplit.arrays.numpy_adapter import NUMPY
from dmlsplit.arrays.torch_adapter import TORCH
from dmlsplit.backends.cuda import cupy_driver as driver

__all__ = ["ArrayView", "adapter_of", "is_native", "to_device", "to_host", "view"]


def view(array: Any, name: str, is_output: bool = False) -> ArrayView:
    """The memory of an array, which errors call `name`; an `ArrayView` is returned unchanged.

    An InvalidArgumentError says that it is not an array, holds Python objects or cannot be shared;
    its fix for what is not an array is another one for an output.
    """
    adapter = _adapter(type(array))
    if adapter is None:
        return dlpack.view(array, name, is_output)
    return adapter.view(array, name)


def adapter_of(owner: Any) -> Adapter:
    """The adapter that makes arrays like the owner of a view."""
    return _adapter(type(owner)) or CUPY


def is_native(array: Any) -> bool:
    """Whether this is a NumPy, CuPy or PyTorch array."""
    return _adapter(type(array)) is not None


def to_device(array: np.ndarray, device: str) -> Any:
    """Copy an array to a device: a CuPy array on ``cuda:N``, the array itself on ``cpu``."""
    return array if device == "cpu" else driver.load().upload(device_number_of(device), array)


def to_host(array: Any) -> np.ndarray:
    """Copy a CuPy array to the host; a NumPy array is returned unchanged."""
    if isinstance(array, np.ndarray):
        return array
    return driver.load().download(array.data.device_id, array)


def _find_adapter(array_type: type) -> Adapter | None:
    """The adapter of a type; None for libraries that have none of their own."""
    if issubclass(array_type, np.ndarray):
        return NUMPY
    torch = sys.modules.get("torch")  # imported if `array_type` is a tensor type
    if torch is not None and issubclass(array_type, torch.Tensor):
        return TORCH
    is_cupy = array_type.__module__.partition(".")[0] == "cupy"
    return CUPY if is_cupy and hasattr(array_type, "__cuda_array_interface__") else None


_adapter: Callable[[type], Adapter | None] = lru_cache(maxsize=256)(_find_adapter)
