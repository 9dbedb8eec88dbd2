"""`dml.split` inside JAX's transforms: jit, grad, jvp, vmap and shard_map.

Under `jax.jit` a split is a `buffer_callback` of JAX: XLA allocates the pieces and calls back with
its own buffers, on a GPU also with the stream to launch on. Nothing is copied but by the split.
`pure_callback` copies what comes back, and on a GPU what goes in, through the host; a handler of
`jax.ffi` would have to be compiled.
"""

from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_void_p, py_object, pythonapi
from functools import cache, lru_cache, partial
from itertools import count
from typing import Any, SupportsIndex

import numpy as np

from dmlsplit.arrays.array_view import device_name
from dmlsplit.arrays.dlpack import CPU
from dmlsplit.checks import Integers, piece_sizes
from dmlsplit.eager import plan_for
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides, piece_shapes

# numpy.dtype.isbuiltin of NumPy's own types.
_BUILT_IN = 1

# Compiling takes 60 ms, and saves 80 us of each later call with three pieces, 3 ms with 64, which
# DLPack takes to pass pieces back. Shapes that do not come again must not wait for it.
OFTEN = 16

Shape = tuple[int, ...]


def is_for_jax(array: Any, along: tuple[Any, Any] | None) -> bool:
    """Whether JAX has to split an array of its own, or does it in less time.

    It is traced, and has no memory; or it has memory that DLPack cannot pass on: on several
    devices, or for NumPy, of a type such as bfloat16; or from which it would not pass pieces back:
    on another than the first of several CPUs, or of 64 bits while JAX makes 32 of them. Or arrays
    like this have often been split along this axis at these sizes, if they are known.
    """
    import jax

    if isinstance(array, jax.core.Tracer):
        return True
    if not isinstance(array, jax.Array):
        return False
    device, *others = array.devices()
    dtype = array.dtype
    is_numpys = isinstance(dtype, np.dtype) and dtype.isbuiltin == _BUILT_IN
    if others or (is_numpys and jax.dtypes.canonicalize_dtype(dtype) != dtype):
        return True
    if device.platform != "cpu":
        return False
    if not is_numpys or device.local_hardware_id:
        return True
    return along is not None and next(_calls(array.shape, dtype, along)) > OFTEN


@lru_cache(maxsize=1024)
def _calls(shape: Shape, dtype: Any, along: tuple[Any, Any]) -> Iterator[int]:
    """Counts the calls with equal arguments."""
    return count(1)


def split(
    array: Any,
    sizes_or_count: SupportsIndex | Integers,
    axis: SupportsIndex = 0,
    out: Sequence[Any] | None = None,
) -> list[Any]:
    """Split an array of JAX, which may be traced, at static sizes. `dmlsplit.split` calls this.

    Derivatives, of any order, forwards and backwards, are those of `jax.numpy.split`. Under
    `jax.vmap` the whole batch is one split, and under `jax.jit` errors come while it traces.
    """
    if out is not None:
        raise InvalidArgumentError(
            "out is given for an array of JAX, whose arrays never change; it must be None. "
            "Fix: use the pieces that are returned"
        )
    _check_elements(array.dtype)
    at, sizes = piece_sizes(array.shape, sizes_or_count, axis)
    # Counted from the end: `jax.vmap` adds dimensions in front.
    return list(_differentiable()(array, at - array.ndim, sizes))


def _check_elements(dtype: Any) -> None:
    """Refuse elements without bytes of their own: int4 and the like, keys of random numbers."""
    import jax

    of_kind = partial(jax.dtypes.issubdtype, dtype)
    if of_kind(jax.dtypes.extended):
        raise InvalidArgumentError(
            f"array has data type {dtype}, whose elements are hidden by JAX. "
            "Fix: split jax.random.key_data(array)"
        )
    if of_kind(np.number):
        about = jax.numpy.iinfo if of_kind(np.integer) else jax.numpy.finfo
        bits = about(dtype).bits
        if bits < 8:
            raise InvalidArgumentError(
                f"array has data type {dtype}, with elements of {bits} bits; they must be whole "
                "bytes. Fix: array.astype(...) of a wider type"
            )


@cache
def _differentiable() -> Any:
    """`dml_split` with its derivative. Outside `jax.jit` it is compiled once for a shape."""
    import jax

    found = jax.custom_jvp(dml_split, nondiff_argnums=(1, 2))
    found.defjvp(_derivative)
    return jax.jit(found, static_argnums=(1, 2), inline=True)


def _derivative(axis: int, sizes: Shape, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Split array and tangent. The second is JAX's own: it knows that a concatenation undoes it."""
    import jax

    (array,), (tangent,) = primals, tangents
    pieces = _differentiable()(array, axis, sizes)
    typed = jax.typeof(array).sharding
    if any(typed.spec):  # on an explicit mesh; the callback gathers the array
        tangent = jax.sharding.reshard(tangent, jax.NamedSharding(typed.mesh, jax.P()))
    return pieces, jax.lax.split(tangent, sizes, axis + tangent.ndim)


def dml_split(array: Any, axis: int, sizes: Shape) -> list[Any]:
    """Call back with the buffers of an array and its pieces. Profiles of JAX show this name."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    at = axis + array.ndim
    shapes = piece_shapes(array.shape, at, sizes)
    wanted = [jax.ShapeDtypeStruct(shape, array.dtype) for shape in shapes]
    # Not part of a command buffer (a CUDA graph): the callback may have to load a kernel, which
    # would break the capture, and it is not called at any time before.
    call = buffer_callback(_callback(axis, sizes), wanted, vmap_method="expand_dims")
    pieces: list[Any] = call(array)
    # Inside `jax.shard_map` the pieces differ from device to device as the array does.
    varying = tuple(sorted(jax.typeof(array).manual_axis_type.varying, key=str))
    return [jax.lax.pcast(piece, varying, to="varying") for piece in pieces]


@lru_cache(maxsize=1024)
def _callback(axis: int, sizes: Shape) -> Any:
    # The same object for equal splits, of which JAX compiles one.
    return partial(_copy, axis, sizes)


def _copy(axis: int, sizes: Shape, context: Any, pieces: Sequence[Any], array: Any) -> None:
    """Copy a buffer of XLA into others."""
    kind, number = array.__dlpack_device__()
    device = "cpu" if kind == CPU else device_name(number)
    shape, item_bytes = array.shape, array.dtype.itemsize
    strides = packed_byte_strides(shape, item_bytes)
    plan = plan_for(sizes)(device, shape, strides, item_bytes, axis + len(shape), sizes)
    stream = None if device == "cpu" else context.stream
    plan.program.copy(_address(array), [_address(piece) for piece in pieces], stream)


_pointer = pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (py_object, c_char_p), c_void_p


def _address(buffer: Any) -> int:
    """Where a buffer of XLA begins.

    DLPack knows all types; JAX's array interface for CUDA has no name for those of float8. Its
    structure, which lives as long as the capsule, begins with the address.
    """
    capsule = buffer.__dlpack__()
    address = c_void_p.from_address(_pointer(capsule, b"dltensor")).value
    return address or 0
