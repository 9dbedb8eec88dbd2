"""Arrays of all other libraries, through DLPack and the array interfaces."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import not_shared, package_of, type_name
from dmlsplit.arrays.array_view import ArrayView, device_name, type_string
from dmlsplit.arrays.cupy import dtype_of
from dmlsplit.arrays.numpy import NUMPY
from dmlsplit.backends.cuda import driver
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides

# DLDeviceType of the DLPack standard.
CPU, CUDA, CUDA_MANAGED = 1, 2, 13

# Packages whose arrays are immutable, even if their interface calls them writable.
_IMMUTABLE = ("jax", "jaxlib")


def view(array: Any, name: str) -> ArrayView:
    """Describe an array of another library, or refuse what is not an array."""
    if isinstance(array, ArrayView):
        return array
    if hasattr(array, "__dlpack_device__"):
        kind, number = _asked(lambda one: one.__dlpack_device__(), array, name)
        if kind in (CUDA, CUDA_MANAGED):
            return cuda_view(array, name, int(number))
        if kind == CPU:
            return NUMPY.view(_asked(np.from_dlpack, array, name), name)
        raise InvalidArgumentError(
            f"{name} is a {type_name(array)} on DLPack device type {int(kind)}; it must be on the "
            "CPU or a CUDA device"
        )
    if hasattr(array, "__cuda_array_interface__"):
        return cuda_view(array, name, None)
    if hasattr(array, "__array_interface__"):
        return NUMPY.view(np.asarray(array), name)
    fix = "numpy.asarray(...)"
    if package_of(array) in _IMMUTABLE:
        is_traced = type(array).__name__.endswith("Tracer")
        fix = "dmlsplit.split, or call this outside jit" if is_traced else "array[...]"
    elif isinstance(array, bytes):  # asarray would make a scalar of them
        fix = "numpy.frombuffer(..., 'u1')"
    raise InvalidArgumentError(
        f"{name} is a {type_name(array)}; it must be an array of NumPy, CuPy or any library "
        f"with DLPack. Fix: {fix}"
    )


def give_back(made: list[Any], model: Any) -> list[Any]:
    """New arrays converted to the library of `model`, without a copy."""
    if not made or type(model) is type(made[0]):
        return made
    if isinstance(model, np.ndarray):
        # As in indexing, a subclass takes over from `model` what it needs, such as a unit.
        return [np.ndarray.__array_wrap__(model, array) for array in made]
    if isinstance(model, type(made[0])):
        return made
    namespace = getattr(model, "__array_namespace__", None)
    library = namespace() if namespace else sys.modules.get(package_of(model))
    from_dlpack = getattr(library, "from_dlpack", None)
    if from_dlpack is None:
        return made
    given = [from_dlpack(array) for array in made]
    wanted, found = made[0].dtype, getattr(given[0], "dtype", None)
    if getattr(found, "itemsize", wanted.itemsize) != wanted.itemsize:
        raise InvalidArgumentError(
            f"array has data type {wanted}, but {package_of(model)} would make pieces of {found}. "
            "Fix: with JAX, jax.config.update('jax_enable_x64', True)"
        )
    # Several devices of an array API library may be one device of DLPack.
    is_there = not hasattr(model, "to_device") or given[0].device == model.device
    return given if is_there else [array.to_device(model.device) for array in given]


def cuda_view(array: Any, name: str, number: int | None) -> ArrayView:
    """Describe an array on a CUDA device by its array interface, else through DLPack."""
    is_immutable = package_of(array) in _IMMUTABLE
    try:
        # JAX's interface names no stream, although its values may still be pending.
        interface = None if is_immutable else array.__cuda_array_interface__
    except (AttributeError, BufferError, TypeError, RuntimeError, ValueError):
        interface = None
    if interface is None:
        array = _asked(driver.load().from_dlpack, array, name)
        interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{name} is masked; only whole arrays can be split")
    address, read_only = interface["data"]
    if number is None:
        number = driver.load().device_of(address)
        if number is None:
            raise InvalidArgumentError(
                f"{name} claims to be on a CUDA device, but no device owns its address {address:#x}"
            )
    # CuPy names the current stream, which is ours; other libraries may have pending work.
    if interface.get("stream") and package_of(array) != "cupy":
        driver.load().wait_for(number, interface["stream"])
    dtype, shape = dtype_of(array, interface["typestr"]), tuple(interface["shape"])
    kind, width, device = type_string(dtype), dtype.itemsize, device_name(number)
    strides = tuple(interface.get("strides") or packed_byte_strides(shape, width))
    is_kept = bool(read_only) or is_immutable
    return ArrayView(array, address, shape, strides, kind, width, device, is_kept)


def _asked(question: Callable[[Any], Any], array: Any, name: str) -> Any:
    """The answer of an array's library, which may refuse or whose device may have failed."""
    try:
        return question(array)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        if hasattr(error, "status"):  # CUDA's
            raise driver.load().translated(error, None, f"{name} cannot be shared") from None
        raise not_shared(array, name, error) from None
