"""What arrays of any kind say of their memory."""

from __future__ import annotations

import sys
from ctypes import addressof, c_char
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.backends.cuda import driver
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides

# DLDeviceType of the DLPack standard.
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_MANAGED = 1, 2, 13

# numpy.dtype.isbuiltin of a type that another library has registered.
_EXTENSION = 2

# Their arrays never change, whatever their interface says.
_IMMUTABLE = ("jax", "jaxlib")


class ArrayView(NamedTuple):
    """The memory of one array. A tuple: it is made at every call.

    Attributes
    ----------
    owner : object
        Keeps the memory alive.
    address : int
        Of the first element.
    shape : tuple of int
        Elements per dimension.
    strides : tuple of int
        Bytes per dimension.
    type : str
        NumPy type string, such as ``<f4``; the name of a type that NumPy does not know.
    item_bytes : int
        Bytes of one element.
    read_only : bool
        Whether writing is forbidden.
    device : str
        ``cpu`` or ``cuda:N``.
    """

    owner: Any
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: str
    item_bytes: int
    read_only: bool
    device: str

    @property
    def span(self) -> tuple[int, int]:
        """First byte reached, and the one behind the last."""
        low, high = _reach(self.shape, self.strides, self.item_bytes)
        return self.address + low, self.address + high

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie behind each other, row-major."""
        packed = packed_byte_strides(self.shape, self.item_bytes)
        rows = zip(self.shape, self.strides, packed, strict=True)
        return 0 in self.shape or all(n == 1 or s == p for n, s, p in rows)

    @property
    def window(self) -> np.ndarray:
        """The same places as an array of bytes runs, for address arithmetic only."""
        interface = {"shape": self.shape, "strides": self.strides, "version": 3}
        interface |= {"data": (self.address, True), "typestr": f"|V{self.item_bytes}"}
        return np.asarray(_Interface(interface))

    @property
    def device_number(self) -> int:
        """N of ``cuda:N``."""
        return int(self.device.removeprefix("cuda:"))


@lru_cache(maxsize=1024)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> tuple[int, int]:
    """Bytes from the first element to the first byte reached, and to the one behind the last."""
    if 0 in shape:
        return 0, 0
    reaches = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0) + item_bytes


class _Interface:
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def view(array: Any, name: str) -> ArrayView:
    """Describe an array of NumPy, or of anything with DLPack or an array interface.

    Raises
    ------
    InvalidArgumentError
        If `array` is no array, holds Python objects, or cannot be reached without a copy.
    """
    if isinstance(array, np.ndarray):
        return _numpy_view(array, name)
    if is_torch(array):
        _check_torch(array, name)
        if array.device.type != "cpu" or not _is_numpy_like(array):
            return _torch_view(array)
    if hasattr(array, "__dlpack_device__"):
        kind, number = _dlpack_device(array, name)
        if kind in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
            return _cuda_view(array, name, int(number))
        if kind == _DLPACK_CPU:
            return _numpy_view(_numpy_alias(array, name), name)
        raise InvalidArgumentError(
            f"{name} is a {_type_name(array)} on DLPack device type {int(kind)}; it must be on the "
            "CPU or a CUDA device"
        )
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_view(array, name, None)
    if hasattr(array, "__array_interface__"):
        return _numpy_view(np.asarray(array), name)
    raise InvalidArgumentError(
        f"{name} is a {_type_name(array)}; it must be an array of NumPy, CuPy or any library "
        "with DLPack. Fix: numpy.asarray(...)"
    )


def _dlpack_device(array: Any, name: str) -> tuple[int, int]:
    try:
        kind, number = array.__dlpack_device__()
    except RuntimeError as error:
        if not hasattr(error, "status"):
            raise _not_shared(array, name, error) from None
        # CuPy asks CUDA, which may have lost the device.
        raise driver.load().translated(error, None, f"{name} cannot be looked up") from None
    return kind, number


def is_torch(array: Any) -> bool:
    """Whether an array is a tensor of torch, which need not be imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _check_torch(tensor: Any, name: str) -> None:
    """Refuse tensors whose memory, if any, does not hold their elements."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is not sys.modules["torch"].Tensor.__torch_dispatch__:
        raise InvalidArgumentError(
            f"{name} is a {_type_name(tensor)}, which has no memory of its own; it must be a plain "
            "tensor"
        )
    if tensor.device.type not in ("cpu", "cuda") or str(tensor.layout) != "torch.strided":
        raise InvalidArgumentError(
            f"{name} is a {tensor.layout} tensor on {tensor.device}; it must be a torch.strided "
            "one on the CPU or a CUDA device"
        )
    if tensor.is_quantized:
        raise InvalidArgumentError(
            f"{name} is quantized; its pieces would lose scale and zero point. Fix: int_repr()"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(
            f"{name} is a view that torch conjugates or negates when it is read; its bytes are "
            "those of another tensor. Fix: resolve_conj().resolve_neg()"
        )


def _is_numpy_like(tensor: Any) -> bool:
    """Whether NumPy can stand for a tensor: it knows the type, and there are no gradients."""
    return _torch_type(tensor)[0] in "<>|" and not tensor.requires_grad


def _torch_view(tensor: Any) -> ArrayView:
    """Describe a tensor of torch, which needs no synchronisation and has types of its own."""
    width = tensor.element_size()
    return ArrayView(
        tensor,
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(step * width for step in tensor.stride()),
        _torch_type(tensor),
        width,
        # torch itself refuses to write where it would have to track gradients.
        bool(tensor.requires_grad),
        f"cuda:{tensor.device.index}" if tensor.is_cuda else "cpu",
    )


def _torch_type(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return _type_string(np.dtype(name))
    except TypeError:
        return name


def _type_string(dtype: np.dtype) -> str:
    """Return NumPy's string of a type; extensions, such as bfloat16, have only their name."""
    return str(dtype) if dtype.isbuiltin == _EXTENSION else dtype.str


def _cuda_view(array: Any, name: str, number: int | None) -> ArrayView:
    """Describe an array on a CUDA device by its array interface, else through DLPack."""
    is_immutable = library(array) in _IMMUTABLE
    try:
        # JAX's interface names no stream, although its values may still be on their way.
        interface = None if is_immutable else array.__cuda_array_interface__
    except (AttributeError, BufferError, TypeError, RuntimeError, ValueError):
        interface = None
    if interface is None:
        array = _cupy_alias(array, name)
        interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{name} is masked; only whole arrays can be split")
    address, read_only = interface["data"]
    if number is None:
        number = driver.load().device_of(address)
    if number is None:
        raise InvalidArgumentError(
            f"{name} says that it is on a CUDA device, but its address {address:#x} is in no "
            "memory of one"
        )
    # CuPy names the current stream, which is ours; others may have work under way.
    if interface.get("stream") and library(array) != "cupy":
        driver.load().wait_for(number, interface["stream"])
    own = getattr(array, "dtype", None)
    dtype = own if isinstance(own, np.dtype) else np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or packed_byte_strides(shape, dtype.itemsize)
    return ArrayView(
        array,
        address,
        shape,
        tuple(strides),
        _type_string(dtype),
        dtype.itemsize,
        bool(read_only) or is_immutable,
        f"cuda:{number}",
    )


def _cupy_alias(array: Any, name: str) -> Any:
    try:
        return driver.load().from_dlpack(array)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        if hasattr(error, "status"):  # CUDA's
            raise driver.load().translated(error, None, f"{name} cannot be shared") from None
        raise _not_shared(array, name, error) from None


def _not_shared(array: Any, name: str, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name}, a {_type_name(array)}, cannot be shared without a copy: {error}. "
        "Fix: view its bytes as an integer type of the same size"
    )


def numpy_address(array: np.ndarray) -> int:
    """Return the address of the first element of an array of NumPy."""
    try:
        # Three times as fast as the interface, whose dictionary is made anew each time.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty, or of no C type
        return int(array.__array_interface__["data"][0])


def _numpy_alias(array: Any, name: str) -> np.ndarray:
    try:
        return np.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise _not_shared(array, name, error) from None


def _numpy_view(array: np.ndarray, name: str) -> ArrayView:
    dtype = array.dtype
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"{name} has data type {dtype}; Python objects cannot be split as bytes"
        )
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise InvalidArgumentError(
            f"{name} is masked; its pieces would lose the mask. Fix: split .data and .mask"
        )
    return ArrayView(
        array,
        numpy_address(array),
        array.shape,
        array.strides,
        dtype.str,
        dtype.itemsize,
        not array.flags.writeable,
        "cpu",
    )


def library(array: Any) -> str:
    """Return the name of the package that an array comes from."""
    return type(array).__module__.partition(".")[0]


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}."
    return f"{module}{kind.__qualname__}"
