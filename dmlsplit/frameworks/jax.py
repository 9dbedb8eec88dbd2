"""`dml.split` inside JAX's transforms: jit, grad, jvp, vmap and shard_map.

Under `jax.jit` a split is a `buffer_callback` of JAX. XLA allocates the pieces and passes its own
buffers, and on a GPU the stream to launch on, so the split makes the only copy. `pure_callback`
would copy the pieces, and on a GPU also the input, through the host; a `jax.ffi` handler would have
to be compiled.
"""

from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_void_p, py_object, pythonapi
from functools import cache, lru_cache, partial
from itertools import count
from typing import Any, SupportsIndex

import numpy as np

from dmlsplit.arrays.array_view import EXTENSION, device_name
from dmlsplit.arrays.dlpack import CPU
from dmlsplit.checks import piece_sizes
from dmlsplit.eager import Sizes, plan_for
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides, piece_shapes

# A split is compiled after this many equal calls. That takes 60 ms, too long for a shape that does
# not return, but spares later calls DLPack's time to return pieces: 80 us for 3, 3 ms for 64.
OFTEN = 16

Shape = tuple[int, ...]


def is_for_jax(array: Any, along: tuple[Any, Any] | None) -> bool:
    """Whether this is a JAX array that JAX must split, or splits faster.

    JAX must split an array that is traced; that is on several devices or a CPU device other than
    the first; or whose elements NumPy lacks (bfloat16, on the CPU) or JAX would narrow (64 bits).
    It is faster if such arrays have often been split `along` this axis and sizes, if known.
    """
    import jax

    if isinstance(array, jax.core.Tracer):
        return True
    if not isinstance(array, jax.Array):
        return False
    device, *others = array.devices()
    dtype = array.dtype
    is_numpys = isinstance(dtype, np.dtype) and dtype.isbuiltin != EXTENSION
    if others or (is_numpys and jax.dtypes.canonicalize_dtype(dtype) != dtype):
        return True
    if device.platform != "cpu":
        return False
    if not is_numpys or device.local_hardware_id:
        return True
    return along is not None and next(_calls(array.shape, dtype, along)) > OFTEN


@lru_cache(maxsize=1024)
def _calls(shape: Shape, dtype: Any, along: tuple[Any, Any]) -> Iterator[int]:
    """A counter of the calls with equal arguments."""
    return count(1)


def split(
    array: Any, sizes_or_count: Sizes, axis: SupportsIndex, out: Sequence[Any] | None
) -> list[Any]:
    """Split a JAX array, which may be traced, into static sizes. `dmlsplit.split` calls this.

    Forward and reverse derivatives of any order equal those of `jax.numpy.split`. Under `jax.vmap`
    the whole batch is one split. Under `jax.jit` errors are raised during tracing.
    """
    if out is not None:
        raise InvalidArgumentError(
            "out is given, but JAX arrays are immutable; out must be None. "
            "Fix: use the pieces that are returned"
        )
    _check_elements(array.dtype)
    at, sizes = piece_sizes(array.shape, sizes_or_count, axis)
    # Counted from the end: `jax.vmap` adds dimensions in front.
    return list(_differentiable()(array, at - array.ndim, sizes))


def _check_elements(dtype: Any) -> None:
    """Refuse elements that are not whole bytes (such as int4), and random keys."""
    import jax

    of_kind = partial(jax.dtypes.issubdtype, dtype)
    if of_kind(jax.dtypes.extended):
        raise InvalidArgumentError(
            f"array has data type {dtype}, whose elements JAX hides. "
            "Fix: split jax.random.key_data(array)"
        )
    if of_kind(np.number):
        about = jax.numpy.iinfo if of_kind(np.integer) else jax.numpy.finfo
        bits = about(dtype).bits
        if bits < 8:
            raise InvalidArgumentError(
                f"array has data type {dtype}, with elements of {bits} bits; they must be whole "
                "bytes. Fix: array.astype(...) to a wider type"
            )


@cache
def _differentiable() -> Any:
    """`dml_split` with its derivatives. Outside `jax.jit` JAX compiles it once per shape."""
    import jax

    found = jax.custom_jvp(dml_split, nondiff_argnums=(1, 2))
    found.defjvp(_derivative)
    return jax.jit(found, static_argnums=(1, 2), inline=True)


def _derivative(axis: int, sizes: Shape, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Split an array and its tangent, the latter with JAX's own split, which JAX can transpose."""
    import jax

    (array,), (tangent,) = primals, tangents
    pieces = _differentiable()(array, axis, sizes)
    typed = jax.typeof(array).sharding
    if any(typed.spec):  # on an explicit mesh; the callback gathers the array
        tangent = jax.sharding.reshard(tangent, jax.NamedSharding(typed.mesh, jax.P()))
    return pieces, jax.lax.split(tangent, sizes, axis + tangent.ndim)


def dml_split(array: Any, axis: int, sizes: Shape) -> list[Any]:
    """Split with a callback on buffers. JAX's profiles show the name of this function."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    at = axis + array.ndim
    shapes = piece_shapes(array.shape, at, sizes)
    wanted = [jax.ShapeDtypeStruct(shape, array.dtype) for shape in shapes]
    # Not part of a command buffer (a CUDA graph): the callback may have to load a kernel, which
    # would break the capture, and no call before the capture could load it.
    call = buffer_callback(_callback(axis, sizes), wanted, vmap_method="expand_dims")
    pieces: list[Any] = call(array)
    # Inside `jax.shard_map` the pieces vary over the same mesh axes as the array.
    varying = tuple(sorted(jax.typeof(array).manual_axis_type.varying, key=str))
    return [jax.lax.pcast(piece, varying, to="varying") for piece in pieces]


@lru_cache(maxsize=1024)
def _callback(axis: int, sizes: Shape) -> Any:
    # Cached, because JAX compiles equal splits once only if they share one callback.
    return partial(_copy, axis, sizes)


def _copy(axis: int, sizes: Shape, context: Any, pieces: Sequence[Any], array: Any) -> None:
    """Copy an XLA buffer into those of its pieces."""
    kind, number = array.__dlpack_device__()
    device = "cpu" if kind == CPU else device_name(number)
    shape, item_bytes = array.shape, array.dtype.itemsize
    strides = packed_byte_strides(shape, item_bytes)
    plan = plan_for(sizes)(device, shape, strides, item_bytes, axis + len(shape), sizes)
    stream = None if device == "cpu" else context.stream
    # XLA has done the rest of a `Plan`: it allocated the pieces, and keeps its buffers.
    plan.program.copy(_address(array), [_address(piece) for piece in pieces], stream)


_pointer = pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (py_object, c_char_p), c_void_p


def _address(buffer: Any) -> int:
    """The address of an XLA buffer.

    DLPack supports all types; JAX's CUDA array interface has no names for float8 types. DLPack's
    structure begins with the address, and lives as long as the capsule.
    """
    capsule = buffer.__dlpack__()
    address = c_void_p.from_address(_pointer(capsule, b"dltensor")).value
    return address or 0
