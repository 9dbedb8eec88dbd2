"""Arrays of all other libraries, through DLPack and the array interfaces."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Shape, package_of, sharing_error, type_name
from dmlsplit.arrays.array_view import EXTENSION, ArrayView, device_name, dtype_of, type_string
from dmlsplit.arrays.numpy_adapter import NUMPY
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.checks import instance, integer, integers
from dmlsplit.errors import InvalidArgumentError, one_line
from dmlsplit.geometry import packed_byte_strides
from dmlsplit.messages import Note, digits

# DLDeviceType of the DLPack standard.
CPU = 1
CUDA = 2
CUDA_MANAGED = 13

# Fixes for arrays that may be lazy, by type name. They load no more than the pieces need.
_FIXES = {
    "zarr.Array": "dmlsplit.split(dask.array.from_zarr(...), ...)",
    "xarray.DataArray": "the array in its .data",
    "xarray.Variable": "the array in its .data",
}
# Packages whose arrays are immutable, even if their interface calls them writable.
_IMMUTABLE = ("jax", "jaxlib")


def view(array: Any, name: str, is_output: bool = False) -> ArrayView:
    """Describe an array of another library, or refuse what is not an array."""
    if isinstance(array, ArrayView):
        return array
    if hasattr(array, "__dlpack_device__"):
        device_type, device_number = _query(_dlpack_device, array, name)
        if device_type in (CUDA, CUDA_MANAGED):
            return cuda_view(array, name, device_number)
        if device_type == CPU:
            return NUMPY.view(_query(np.from_dlpack, array, name), name)
        fault = (
            f"{name} has the type {type_name(array)} on DLPack device type {device_type}; it "
            "must be on the CPU or a CUDA device"
        )
        raise InvalidArgumentError(Note(fault, "copy it to the CPU"))
    if hasattr(array, "__cuda_array_interface__"):
        return cuda_view(array, name, None)
    if hasattr(array, "__array_interface__"):
        return NUMPY.view(_query(np.asarray, array, name), name)
    fault = (
        f"{name} has the type {type_name(array)}; it must be an array of NumPy, CuPy or any "
        "library with DLPack"
    )
    raise InvalidArgumentError(Note(fault, _conversion(array, is_output)))


def _conversion(value: object, is_output: bool) -> str:
    """What to pass instead of a value that is not an array; empty for None as an input."""
    if is_output:  # its values do not matter, and a converted copy would be filled in its place
        return "pass an array that can be written"
    if value is None:
        return ""
    if package_of(value) in _IMMUTABLE:
        is_traced = type(value).__name__.endswith("Tracer")
        return "dmlsplit.split, or call this outside jit" if is_traced else "array[...]"
    if isinstance(value, bytes):  # asarray would make a scalar of them
        return "numpy.frombuffer(..., 'u1')"
    return _FIXES.get(type_name(value), "numpy.asarray(...)")


def converted_like(like: Any, arrays: list[Any]) -> list[Any]:
    """New arrays, converted to the library of `like` without a copy."""
    if not arrays or type(like) is type(arrays[0]):
        return arrays
    if isinstance(like, np.ndarray):
        # A subclass takes over from `like` what it needs, such as a unit; indexing does the same.
        return [np.ndarray.__array_wrap__(like, array) for array in arrays]
    if isinstance(like, type(arrays[0])):
        return arrays
    namespace = getattr(like, "__array_namespace__", None)
    library = namespace() if namespace else sys.modules.get(package_of(like))
    from_dlpack = getattr(library, "from_dlpack", None)
    return arrays if from_dlpack is None else _imported(like, arrays, from_dlpack)


def _imported(like: Any, arrays: list[Any], from_dlpack: Callable[[Any], Any]) -> list[Any]:
    """Arrays imported by a library, on the device of `like`."""
    pieces = [from_dlpack(array) for array in arrays]
    dtype = arrays[0].dtype
    piece_dtype = getattr(pieces[0], "dtype", None)
    if getattr(piece_dtype, "itemsize", dtype.itemsize) != dtype.itemsize:
        raise InvalidArgumentError(
            f"array has data type {dtype}, but {package_of(like)} would make pieces of "
            f"{piece_dtype}. Fix: with JAX, jax.config.update('jax_enable_x64', True)"
        )
    # Several devices of an array API library may be one device of DLPack.
    is_on_device = not hasattr(like, "to_device") or pieces[0].device == like.device
    return pieces if is_on_device else [array.to_device(like.device) for array in pieces]


def cuda_view(array: Any, name: str, device_number: int | None) -> ArrayView:
    """Describe an array on a CUDA device, by its CUDA array interface or else through DLPack."""
    is_immutable = package_of(array) in _IMMUTABLE
    # JAX's interface names no stream, although its values may still be pending.
    interface = None if is_immutable else _cuda_array_interface(array)
    if interface is None:
        array = _query(driver.load().from_dlpack, array, name)
        interface = array.__cuda_array_interface__
    try:
        address, read_only, shape, strides, dtype, stream = _described(array, interface)
    except Exception as error:  # the library wrote it
        reason = f"its __cuda_array_interface__ is malformed: {one_line(error)}"
        raise sharing_error(array, name, reason) from None
    if interface.get("mask") is not None:
        fault = f"{name} is masked; it must be a whole array"
        raise InvalidArgumentError(Note(fault, "split its data and its mask"))
    if device_number is None:
        device_number = driver.load().device_of(address)
        if device_number is None:
            fault = (
                f"{name} claims to be on a CUDA device, but no device owns its address {address:#x}"
            )
            raise InvalidArgumentError(Note(fault, "an array whose memory CUDA has allocated"))
    # CuPy names its current stream, on which splits run too; other libraries may have pending work.
    if stream and package_of(array) != "cupy":
        driver.load().wait_for(device_number, stream)
    typestr = type_string(dtype)
    width = dtype.itemsize
    device = device_name(device_number)
    is_read_only = read_only or is_immutable
    return ArrayView(array, address, shape, strides, typestr, width, device, is_read_only)


def _described(array: Any, interface: Any) -> tuple[int, bool, Shape, Shape, np.dtype, int]:
    """The fields of a CUDA array interface, with strides, and 0 for no stream.

    Raises any error if a field is missing, or has no such value.
    """
    address, read_only = interface["data"]
    shape = integers("shape", interface["shape"])
    dtype = dtype_of(array, instance("typestr", interface["typestr"], str))
    if dtype.hasobject:
        raise ValueError(f"typestr is {dtype}, for Python objects")
    strides = interface.get("strides") or packed_byte_strides(shape, dtype.itemsize)
    strides = integers("strides", strides)
    if len(shape) != len(strides) or min(shape, default=0) < 0:
        raise ValueError(f"shape is {shape} and strides are {strides}")
    address = integer("data", address)
    stream = integer("stream", interface.get("stream") or 0)
    if not 0 <= min(address, stream) <= max(address, stream) < 1 << 64:
        raise ValueError(f"data is {digits(address)} and stream is {digits(stream)}")
    if not address and 0 not in shape:
        raise ValueError(f"data is 0 and shape is {shape}")
    return address, bool(read_only), shape, strides, dtype, stream


def _cuda_array_interface(array: Any) -> Any:
    """The CUDA array interface of an array; None if its library has none for it."""
    try:
        return array.__cuda_array_interface__
    except Exception:  # of any type, as in `_query`
        return None


def _dlpack_device(array: Any) -> tuple[int, int]:
    """The type and the number of an array's device."""
    device_type, device_number = array.__dlpack_device__()
    return int(device_type), int(device_number)


def _fix_of_type(array: Any) -> str:
    """What to do if an array is not shared because of its type; empty if its type is common."""
    dtype = getattr(array, "dtype", None)
    is_extension = isinstance(dtype, np.dtype) and dtype.isbuiltin == EXTENSION
    return "pass it as a type that NumPy has, such as a view of integers" if is_extension else ""


def _query(query: Callable[[Any], Any], array: Any, name: str) -> Any:
    """The answer of an array's library; an error says if it refuses or the device has failed."""
    try:
        return query(array)
    except Exception as error:  # of any type: the libraries are not known
        if hasattr(error, "status"):  # it is an error of CUDA
            raise driver.load().dml_error(error, None, f"{name} cannot be shared") from None
        fix = "" if query is _dlpack_device else _fix_of_type(array)
        raise sharing_error(array, name, error, fix) from None
