"""New arrays of the kind of another, and the stream on which they are ready."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import numpy as np

from dmlsplit.arrays.array_view import ArrayView, is_torch, library, numpy_address
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.errors import DmlError, OutOfMemoryError


def packed(
    like: ArrayView, shapes: Sequence[tuple[int, ...]], dtype: str | None = None
) -> list[Any]:
    """Allocate arrays on the device of another, of its library if that is NumPy, CuPy or torch.

    Parameters
    ----------
    like
        The other array.
    shapes
        Elements per dimension of each.
    dtype
        NumPy's name of a type; None for the type of `like`.

    Raises
    ------
    OutOfMemoryError
        If there is not that much memory; for CUDA it says how much is free.
    """
    made: list[Any] = []
    try:
        if is_torch(like.owner):
            torch, kind, device = sys.modules["torch"], _torch_dtype(like, dtype), like.owner.device
            for shape in shapes:
                made.append(torch.empty(shape, dtype=kind, device=device))
        elif like.device == "cpu":
            kind = _dtype(like, dtype)
            for shape in shapes:
                made.append(np.empty(shape, kind))
        else:
            kind, number, empty = _dtype(like, dtype), like.device_number, driver.load().empty
            for shape in shapes:
                made.append(empty(number, shape, kind, None, 0))
    except (MemoryError, RuntimeError) as error:
        wanted = prod(shapes[len(made)]) * int(kind.itemsize)
        raise _out_of_memory(like, wanted, error) from None
    return made


def strided(
    like: ArrayView,
    shape: tuple[int, ...],
    strides: Sequence[int],
    dtype: str,
    size_in_bytes: int,
) -> Any:
    """Allocate an array as `packed` does, of another type and layout.

    Parameters
    ----------
    like
        The other array.
    shape
        Elements per dimension.
    strides
        Bytes per dimension.
    dtype
        NumPy's name of a type.
    size_in_bytes
        Bytes to reserve.
    """
    try:
        if is_torch(like.owner):
            kind = _torch_dtype(like, dtype)
            store = sys.modules["torch"].empty(
                size_in_bytes // kind.itemsize, dtype=kind, device=like.owner.device
            )
            return store.as_strided(shape, [step // kind.itemsize for step in strides])
        if like.device == "cpu":
            return np.ndarray(shape, dtype, np.empty(size_in_bytes, np.uint8), 0, strides)
        number = like.device_number
        return driver.load().empty(number, shape, np.dtype(dtype), strides, size_in_bytes)
    except (MemoryError, RuntimeError) as error:
        raise _out_of_memory(like, size_in_bytes, error) from None


def _out_of_memory(like: ArrayView, wanted: int, error: Exception) -> DmlError:
    if like.device == "cpu":
        return OutOfMemoryError(f"an output of {wanted} bytes does not fit in memory")
    what = "an output cannot be allocated"
    return driver.load().translated(error, like.device_number, what, wanted)


def _dtype(like: ArrayView, name: str | None) -> np.dtype:
    """Return a type of NumPy; the owner of an array alone knows extensions, such as bfloat16."""
    if name is not None:
        return np.dtype(name)
    own = getattr(like.owner, "dtype", None)
    return own if isinstance(own, np.dtype) else np.dtype(like.type)


def _torch_dtype(like: ArrayView, name: str | None) -> Any:
    return like.owner.dtype if name is None else getattr(sys.modules["torch"], np.dtype(name).name)


def on_stream(device: str, stream: Any) -> AbstractContextManager[object]:
    """Return a context in which views and new arrays serve work on a stream of a device.

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
    own = stream if library(stream) == "cupy" else None
    return driver.load().on_stream(number, stream_handle(stream, number), own)


def on_torch_stream(like: ArrayView, stream: Any) -> AbstractContextManager[object]:
    """Return the same for new arrays of torch, which has a memory pool of its own."""
    if stream is None or like.device == "cpu" or not is_torch(like.owner):
        return nullcontext()
    cuda = sys.modules["torch"].cuda
    handle = stream_handle(stream, like.device_number)
    context: AbstractContextManager[object] = cuda.stream(
        cuda.ExternalStream(handle, device=like.device)
    )
    return context


def same_kind(made: list[Any], model: Any) -> list[Any]:
    """Hand over what was made here as arrays of the library of `model`, without a copy."""
    name = "torch" if is_torch(model) else library(model)
    if not made or isinstance(model, type(made[0])) or name not in sys.modules:
        return made
    namespace = getattr(model, "__array_namespace__", None)
    from_dlpack = getattr(namespace() if namespace else sys.modules[name], "from_dlpack", None)
    return [from_dlpack(array) for array in made] if from_dlpack else made


def current_stream(array: Any) -> Callable[[], int] | None:
    """Return what tells the stream that an array's library would use now.

    torch keeps a current stream of its own. None stands for CuPy's, or for no stream at all.
    """
    if not is_torch(array) or not array.is_cuda:
        return None
    current, device = sys.modules["torch"].cuda.current_stream, array.device
    return lambda: int(current(device).cuda_stream)


def addresses(made: list[Any]) -> list[int]:
    """Return the addresses of the first elements of arrays that `packed` made."""
    if made and isinstance(made[0], np.ndarray):
        return [numpy_address(array) for array in made]
    if made and is_torch(made[0]):
        return [int(array.data_ptr()) for array in made]
    return [int(array.__cuda_array_interface__["data"][0]) for array in made]
