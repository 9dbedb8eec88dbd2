"""CUDA arrays of any library: their memory as a CuPy array, and new ones of the same kind.

PyTorch's tensors are read through their own attributes, which costs little and makes no
stream wait; all others come through DLPack or ``__cuda_array_interface__``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from dmlsplit import nvml
from dmlsplit.backends import driver
from dmlsplit.errors import InvalidArgumentError, OutOfMemoryError, UnsupportedError

# DLDeviceType of the DLPack standard: CUDA, and CUDA managed memory.
DLPACK_CUDA = (2, 13)

# NumPy numbers the types that others register from here.
# Source: NumPy C-API, "NPY_USERDEF".
_USER_TYPES = 256

# Their arrays are values: they may be read, never written.
_IMMUTABLE = ("jax", "jaxlib")


def carrier(array: Any, name: str) -> Any:
    """Return a CuPy array on the memory of a CUDA array.

    A PyTorch type that NumPy lacks (bfloat16, float8) is carried as the unsigned integer of
    its size.

    Raises
    ------
    InvalidArgumentError
        If the memory cannot be reached without a copy.
    """
    if driver.is_array(array):
        return array
    if is_torch(array):
        return _torch_carrier(array, name)
    try:
        return driver.adopt(array)
    except (BufferError, TypeError, RuntimeError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(
            f"{name}, a {type(array).__qualname__}, cannot be shared without a copy: {error}. "
            "Fix: view its bytes as an integer type of the same size, such as uint16"
        ) from None


def is_read_only(array: Any) -> bool:
    """Whether a CUDA array says that it must not be written."""
    if driver.is_array(array) or is_torch(array):
        return False
    if type(array).__module__.partition(".")[0] in _IMMUTABLE:
        return True
    try:
        return bool(array.__cuda_array_interface__["data"][1])
    except (AttributeError, KeyError, TypeError, RuntimeError):
        return False


def empty(
    model: Any,
    device: int,
    shape: Sequence[int],
    strides: Sequence[int] | None,
    dtype: np.dtype,
    size_in_bytes: int,
) -> Any:
    """Allocate a PyTorch tensor where `model` is one on a CUDA device, else a CuPy array.

    Parameters
    ----------
    model
        The caller's array.
    device
        Number of the device.
    shape, strides, dtype, size_in_bytes
        As in `arrays.empty`.

    Raises
    ------
    OutOfMemoryError
        If it does not fit; with the bytes needed and free.
    """
    try:
        if is_torch(model) and model.is_cuda:
            return _torch_empty(model, device, shape, strides, dtype)
        return driver.empty(device, shape, strides, dtype, size_in_bytes)
    except OutOfMemoryError:
        wanted = prod(shape) * dtype.itemsize if strides is None else size_in_bytes
        raise OutOfMemoryError(
            f"an output of {wanted} bytes does not fit in the memory of cuda:{device}: "
            f"{free_bytes(device)} bytes are free"
        ) from None


def on_stream(model: Any, device: int, handle: int) -> AbstractContextManager[object]:
    """Return a context in which `empty` allocates for a stream."""
    if is_torch(model) and model.is_cuda:
        torch = sys.modules["torch"]
        place = f"cuda:{device}"
        context: AbstractContextManager[object] = torch.cuda.stream(
            torch.cuda.ExternalStream(handle, device=place)
        )
        return context
    return driver.on_stream(device, handle)


def free_bytes(device: int) -> int:
    """Return the free memory of a device: from NVML, or from CUDA where there is no NVML."""
    try:
        return nvml.memory_free(driver.pci_bus_id(device))
    except UnsupportedError:
        return driver.memory_info(device)[0]


def stream_of(array: Any) -> Callable[[], int] | None:
    """Return what tells the current stream of the library of an array; None for CuPy's."""
    if not (is_torch(array) and array.is_cuda):
        return None
    torch, index = sys.modules["torch"], array.device.index
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return partial(raw, index)
    return lambda: int(torch.cuda.current_stream(index).cuda_stream)


def is_torch(array: Any) -> bool:
    """Whether a value is a PyTorch tensor; PyTorch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


@cache
def torch_carrier_type(dtype: Any, item_bytes: int) -> np.dtype[Any]:
    """Return NumPy's type of a PyTorch type; the unsigned integer of its size if it has none."""
    carried = np.dtype(f"u{item_bytes}")
    try:
        own = np.dtype(str(dtype).removeprefix("torch."))
    except TypeError:
        return carried
    # Other libraries may have taught NumPy bfloat16 and its like; CuPy need not know them.
    return carried if is_user_type(own) else own


def is_user_type(dtype: np.dtype) -> bool:
    """Whether a type was registered with NumPy by another library."""
    return dtype.num >= _USER_TYPES


def _torch_carrier(tensor: Any, name: str) -> Any:
    for forbidden, fix in (
        (tensor.is_sparse or str(tensor.layout) != "torch.strided", "tensor.to_dense()"),
        (tensor.requires_grad, "tensor.detach()"),
        (tensor.is_conj(), "tensor.resolve_conj()"),
        (tensor.is_neg(), "tensor.resolve_neg()"),
    ):
        if forbidden:
            raise InvalidArgumentError(
                f"{name}, a torch.Tensor, cannot be shared without a copy. Fix: {fix}"
            )
    width = tensor.element_size()
    return driver.borrow(
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(step * width for step in tensor.stride()),
        torch_carrier_type(tensor.dtype, width),
        tensor,
        tensor.device.index,
    )


def _torch_empty(
    model: Any, device: int, shape: Sequence[int], strides: Sequence[int] | None, dtype: np.dtype
) -> Any:
    torch = sys.modules["torch"]
    own = torch_carrier_type(model.dtype, model.element_size())
    options = {
        "dtype": model.dtype if own == dtype else getattr(torch, dtype.name),
        "device": f"cuda:{device}",
    }
    try:
        if strides is None:
            return torch.empty(tuple(shape), **options)
        steps = tuple(step // dtype.itemsize for step in strides)
        return torch.empty_strided(tuple(shape), steps, **options)
    except torch.cuda.OutOfMemoryError as error:
        raise OutOfMemoryError(str(error)) from None
