"""`dml.split` of JAX arrays: a primitive of JAX, inside and outside of its transforms.

XLA splits small arrays itself. The split of a large one is a `buffer_callback` of JAX. XLA
allocates the pieces and passes its own buffers, and on a GPU the stream to launch on, so the split
makes the only copy. `pure_callback` would copy the pieces, and on a GPU also the input, through the
host; a `jax.ffi` handler would have to be compiled.
"""

from collections.abc import Sequence
from ctypes import c_char_p, c_void_p, py_object, pythonapi
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

from dmlsplit.arrays.adapter import Shape
from dmlsplit.arrays.array_view import device_name
from dmlsplit.arrays.dlpack import CPU
from dmlsplit.checks import axis_from_front, piece_sizes
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution import in_memory
from dmlsplit.execution.in_memory import prepared_split
from dmlsplit.geometry import packed_byte_strides, piece_shapes

# XLA compiles each piece of its own split separately: 16 pieces take 10 times as long to compile as
# a callback, and 512 pieces 100 times as long.
FEW_PIECES = 16
# Below this size, XLA's split runs in less time than a callback.
MAX_BYTES = 1 << 20


def _is_for_jax(array: Any, out: object) -> bool:
    """Whether this is a JAX array that JAX must split: not into arrays of another library."""
    import jax

    if not isinstance(array, jax.Array):
        return False
    is_foreign = isinstance(out, (list, tuple)) and not any(
        isinstance(output, jax.Array) for output in out
    )
    return not is_foreign or isinstance(array, jax.core.Tracer)


@cache
def _is_array_type(array_type: Any) -> bool:
    """Whether this is the type of JAX's arrays that have memory: `isinstance` takes 2 us."""
    import jax

    return issubclass(array_type, jax.Array) and not issubclass(array_type, jax.core.Tracer)


def split(array: Any, sizes_or_count: Any, axis: Any, out: Sequence[Any] | None) -> list[Any]:
    """`dml.split` of a JAX array, which may be traced, into static sizes.

    Derivatives of any order and batches are those of `jax.lax.split`. Outside `jax.jit`, JAX
    compiles the split once per shape; inside, errors are raised during tracing.

    Raises
    ------
    InvalidArgumentError
        If the sizes do not fit, the size of the axis is symbolic, `out` is given, elements are not
        whole bytes, or the array has been deleted.
    """
    is_concrete = _is_array_type(array.__class__)
    if is_concrete and out is not None:
        _check_alive(array)
    if not (is_concrete and out is None) and not _is_for_jax(array, out):
        return in_memory.split(array, sizes_or_count, axis, out)
    if out is not None:
        raise InvalidArgumentError(
            "out is given, but JAX arrays are immutable; out must be None. "
            "Fix: use the pieces that are returned"
        )
    _check_elements(array.dtype)
    if not is_concrete:
        size = array.shape[axis_from_front(axis, len(array.shape))]
        if not isinstance(size, int):
            problem = f"axis {axis} has the symbolic size {size}; it must be constant"
            raise InvalidArgumentError(f"{problem}. Fix: jax.numpy.split")
    try:
        return list(_jitted_split(*piece_sizes(array.shape, sizes_or_count, axis))(array))
    except RuntimeError:
        if is_concrete:
            _check_alive(array)
        raise


def _check_alive(array: Any) -> None:
    """Refuse an array whose memory JAX has freed or given away."""
    if array.is_deleted():
        raise InvalidArgumentError("array has been deleted or donated. Fix: split it before that")


@cache
def _check_elements(dtype: Any) -> None:
    """Refuse elements that are not whole bytes (such as int4), and random keys."""
    import jax

    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        raise InvalidArgumentError(
            f"array has data type {dtype}, whose elements JAX hides. "
            "Fix: split jax.random.key_data(array)"
        )
    if (bits := jax.dtypes.itemsize_bits(dtype)) < 8:
        raise InvalidArgumentError(
            f"array has data type {dtype}, with elements of {bits} bits; they must be whole bytes. "
            "Fix: array.astype(...) to a wider type"
        )


@lru_cache(maxsize=1024)
def _jitted_split(axis: int, sizes: Shape) -> Any:
    """The split in a `jax.jit` of its own, whose static arguments would double a call's time."""
    import jax

    primitive = _primitive()

    def dml_split(array: Any) -> Any:
        sharding = jax.typeof(array).sharding
        # On an explicit mesh, JAX cuts an axis only into pieces that its devices share evenly.
        if any(size % _devices_of(sharding, axis) for size in sizes):
            spec = jax.P(*sharding.spec[:axis], None, *sharding.spec[axis + 1 :])
            array = jax.sharding.reshard(array, jax.NamedSharding(sharding.mesh, spec))
        return primitive.bind(array, axis=axis, sizes=sizes)

    return jax.jit(dml_split, inline=True)


@cache
def _primitive() -> Any:
    """A primitive with the rules of `jax.lax.split`."""
    import jax
    from jax.experimental import jet
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive("dml_split")
    lax_split = jax.lax.split_p
    primitive.multiple_results = True
    primitive.impl = lax_split.impl
    primitive.abstract_eval = lax_split.abstract_eval
    ad.deflinear2(primitive, ad.get_primitive_transpose(lax_split))
    jet.deflinear(primitive)
    mlir.register_lowering(primitive, _lowered)

    def batched(arrays: Any, dimensions: Any, axis: int, sizes: Shape) -> Any:
        (array,) = arrays
        (batch,) = dimensions
        pieces = primitive.bind(array, axis=axis + (axis >= batch), sizes=sizes)
        return pieces, [batch] * len(sizes)

    batching.primitive_batchers[primitive] = batched
    return primitive


def _devices_of(sharding: Any, axis: int) -> int:
    """Among how many devices an explicit mesh divides an axis."""
    names = sharding.spec[axis] or ()
    names = names if isinstance(names, tuple) else (names,)
    return prod(sharding.mesh.shape[name] for name in names)


def _lowered(context: Any, array: Any, axis: int, sizes: Shape) -> Any:
    """Lower the primitive, inside `jax.vmap` for the whole batch."""
    import jax
    from jax.interpreters import mlir

    # `_is_local` comes first: an exported shape may have sizes that cannot be compared.
    is_by_callback = _is_local(context.module_context) and _is_large(context.avals_in[0], sizes)
    rule = mlir.lower_fun(_split_by_callback if is_by_callback else jax.lax.split)
    return rule(context, array, axis=axis, sizes=sizes)


def _is_local(module: Any) -> bool:
    """Whether a callback can split: not for export, and on one device or in `jax.shard_map`."""
    # Elsewhere XLA's own split is used: it can also be partitioned over devices, and exported.
    axes = module.axis_context
    is_supported = tuple(module.platforms) in (("cpu",), ("cuda",))
    if module.lowering_parameters.for_export or not is_supported:
        return False
    if hasattr(axes, "mesh"):
        return bool(axes.manual_axes == {*axes.mesh.axis_names})  # inside `jax.shard_map`
    return bool(axes.num_devices == 1)


def _is_large(array: Any, sizes: Shape) -> bool:
    """Whether a callback compiles or runs faster than XLA's own split."""
    return len(sizes) > FEW_PIECES or array.size * array.dtype.itemsize >= MAX_BYTES


def _split_by_callback(array: Any, axis: int, sizes: Shape) -> Any:
    """The split in a graph, of which XLA allocates the pieces and calls `_copy` to fill them."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    shapes = piece_shapes(array.shape, axis, sizes)
    types = [jax.ShapeDtypeStruct(shape, array.dtype) for shape in shapes]
    # The callback is not allowed in a command buffer (a CUDA graph), because it may have to load a
    # kernel. That would break the capture, and no earlier call could load the kernel.
    return buffer_callback(partial(_copy, axis, sizes), types)(array)


def _copy(axis: int, sizes: Shape, context: Any, pieces: Sequence[Any], array: Any) -> None:
    """Copy an XLA buffer into those of its pieces."""
    device_type, number = array.__dlpack_device__()
    device = "cpu" if device_type == CPU else device_name(number)
    shape = array.shape
    item_bytes = array.dtype.itemsize
    strides = packed_byte_strides(shape, item_bytes)
    prepared = prepared_split((device, shape, strides, item_bytes), axis, sizes)
    stream = None if device == "cpu" else context.stream
    # XLA has done the rest of a `PreparedSplit`: it allocated the pieces, and keeps its buffers.
    prepared.program.copy(_address(array), [_address(piece) for piece in pieces], stream)


_pointer = pythonapi.PyCapsule_GetPointer
_pointer.argtypes = (py_object, c_char_p)
_pointer.restype = c_void_p


def _address(buffer: Any) -> int:
    """The address of an XLA buffer."""
    # It is read through DLPack, because JAX's CUDA array interface has no names for float8 types.
    # DLPack's structure begins with the address, and lives as long as the capsule.
    capsule = buffer.__dlpack__()
    address = c_void_p.from_address(_pointer(capsule, b"dltensor")).value
    return address or 0
