"""What arrays of any kind say of their memory, and how to make more of the same kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from dmlsplit.backends import driver
from dmlsplit.backends.streams import stream_handle
from dmlsplit.errors import InvalidArgumentError, OutOfMemoryError
from dmlsplit.geometry import packed_byte_strides

# DLDeviceType of the DLPack standard.
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_MANAGED = 1, 2, 13

# numpy.dtype.isbuiltin of a type that another library has registered.
_EXTENSION = 2

# Their arrays never change, whatever their interface says.
_IMMUTABLE = ("jax", "jaxlib")


@dataclass(frozen=True, slots=True)
class ArrayView:
    """The memory of one array.

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
        if 0 in self.shape:
            return self.address, self.address
        reaches = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.address + sum(reach for reach in reaches if reach < 0)
        high = self.address + sum(reach for reach in reaches if reach > 0)
        return low, high + self.item_bytes

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
    if _is_torch(array) and (array.device.type != "cpu" or not _is_numpy_like(array)):
        return _torch_view(array, name)
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
        # CuPy asks CUDA, which may have lost the device.
        if not hasattr(error, "status"):
            raise
        raise driver.load().translated(error, None, f"{name} cannot be looked up") from None
    return kind, number


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _is_numpy_like(tensor: Any) -> bool:
    """Whether NumPy can stand for a tensor: it knows the type, no gradients, no lazy bits."""
    known = _torch_type(tensor)[0] in "<>|"
    lazy = tensor.requires_grad or tensor.is_conj() or tensor.is_neg()
    return known and not lazy and str(tensor.layout) == "torch.strided"


def _torch_view(tensor: Any, name: str) -> ArrayView:
    """Describe a tensor of torch, which needs no synchronisation and has types of its own."""
    kind = tensor.device.type
    if kind not in ("cpu", "cuda") or str(tensor.layout) != "torch.strided":
        raise InvalidArgumentError(
            f"{name} is a {tensor.layout} tensor on {tensor.device}; it must be a torch.strided "
            "one on the CPU or a CUDA device"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgumentError(
            f"{name} is a view that torch conjugates or negates when it is read; its bytes are "
            "those of another tensor. Fix: resolve_conj().resolve_neg()"
        )
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
        "cpu" if kind == "cpu" else f"cuda:{tensor.device.index}",
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
    is_immutable = _library(array) in _IMMUTABLE
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
    if interface.get("stream") and _library(array) != "cupy":
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


def address(array: Any) -> int:
    """Return the address of the first element of an array that `empty` made."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    if _is_torch(array):
        return int(array.data_ptr())
    return int(array.__cuda_array_interface__["data"][0])


def _numpy_alias(array: Any, name: str) -> np.ndarray:
    try:
        return np.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise _not_shared(array, name, error) from None


def _numpy_view(array: np.ndarray, name: str) -> ArrayView:
    if array.dtype.hasobject:
        raise InvalidArgumentError(
            f"{name} has data type {array.dtype}; Python objects cannot be split as bytes"
        )
    return ArrayView(
        array,
        array.__array_interface__["data"][0],
        array.shape,
        array.strides,
        array.dtype.str,
        array.dtype.itemsize,
        not array.flags.writeable,
        "cpu",
    )


def empty(
    like: ArrayView,
    shape: Sequence[int],
    strides: Sequence[int] | None = None,
    dtype: str | None = None,
    size_in_bytes: int = 0,
) -> Any:
    """Allocate an array on the device of another, of its library if that is NumPy, CuPy or torch.

    Parameters
    ----------
    like
        The other array.
    shape
        Elements per dimension.
    strides
        Bytes per dimension; None for a packed array.
    dtype
        NumPy's name of a type; None for the type of `like`.
    size_in_bytes
        Bytes to reserve where there are strides.

    Raises
    ------
    OutOfMemoryError
        If there is not that much memory; for CUDA it says how much is free.
    """
    try:
        if _is_torch(like.owner):
            return _torch_empty(like.owner, shape, strides, dtype, size_in_bytes)
        kind = _dtype(like) if dtype is None else np.dtype(dtype)
        if like.device != "cpu":
            number = like.device_number
            return driver.load().empty(number, shape, kind, strides, size_in_bytes)
        if strides is None:
            return np.empty(shape, kind)
        return np.ndarray(shape, kind, np.empty(size_in_bytes, np.uint8), 0, strides)
    except (MemoryError, RuntimeError) as error:
        width = like.item_bytes if dtype is None else np.dtype(dtype).itemsize
        wanted = size_in_bytes if strides is not None else prod(shape) * width
        if like.device == "cpu":
            raise OutOfMemoryError(f"an output of {wanted} bytes does not fit in memory") from None
        raise driver.load().translated(
            error, like.device_number, "an output cannot be allocated", wanted
        ) from None


def _dtype(like: ArrayView) -> np.dtype:
    """Return NumPy's type of an array; its owner alone knows extensions, such as bfloat16."""
    own = getattr(like.owner, "dtype", None)
    return own if isinstance(own, np.dtype) else np.dtype(like.type)


def _torch_empty(
    like: Any,
    shape: Sequence[int],
    strides: Sequence[int] | None,
    dtype: str | None,
    size_in_bytes: int,
) -> Any:
    torch = sys.modules["torch"]
    kind = like.dtype if dtype is None else getattr(torch, np.dtype(dtype).name)
    if strides is None:
        return torch.empty(tuple(shape), dtype=kind, device=like.device)
    width = kind.itemsize
    store = torch.empty(size_in_bytes // width, dtype=kind, device=like.device)
    return store.as_strided(tuple(shape), [step // width for step in strides])


def on_stream(device: str, stream: Any) -> AbstractContextManager[object]:
    """Return a context in which `view` and `empty` serve work on a stream of a device.

    Work that a foreign array announces is waited for on that stream. Memory pools hand memory on
    as soon as its last use is queued, so that it is ready on the stream that was current, and on
    no other.

    Raises
    ------
    InvalidArgumentError
        If `stream` is no stream of the device.
    """
    if stream is None or device == "cpu":
        return nullcontext()
    number = int(device.removeprefix("cuda:"))
    return driver.load().on_stream(number, stream_handle(stream, number))


def on_torch_stream(like: ArrayView, stream: Any) -> AbstractContextManager[object]:
    """Return the same for `empty` where the array is one of torch, which has a pool of its own."""
    if stream is None or like.device == "cpu" or not _is_torch(like.owner):
        return nullcontext()
    cuda = sys.modules["torch"].cuda
    handle = stream_handle(stream, like.device_number)
    context: AbstractContextManager[object] = cuda.stream(
        cuda.ExternalStream(handle, device=like.device)
    )
    return context


def same_kind(result: Any, model: Any) -> Any:
    """Hand `result` over as an array of the library that `model` belongs to, without a copy."""
    library = _library(model)
    if isinstance(model, type(result)) or library not in sys.modules:
        return result
    if hasattr(model, "__array_namespace__"):
        return model.__array_namespace__().from_dlpack(result)
    module = sys.modules[library]
    return module.from_dlpack(result) if hasattr(module, "from_dlpack") else result


def current_stream(array: Any) -> Callable[[], int] | None:
    """Return what tells the stream that an array's library would use now.

    torch keeps a current stream of its own. None stands for CuPy's, or for no stream at all.
    """
    if not _is_torch(array) or not array.is_cuda:
        return None
    current, device = sys.modules["torch"].cuda.current_stream, array.device
    return lambda: int(current(device).cuda_stream)


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _type_name(value: Any) -> str:
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}."
    return f"{module}{kind.__qualname__}"
