"""`dml.split`: one call for any array, without a descriptor.

It takes no descriptor, so DirectML's limits (2^32-1 elements, 8 dimensions, no empty pieces, eleven
data types) do not apply.
"""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from operator import add
from typing import Any, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np

from dmlsplit.arrays import ArrayView, adapter_of, view
from dmlsplit.arrays.array_view import are_apart, columns, overlaps
from dmlsplit.arrays.packing import packing, small_cut
from dmlsplit.arrays.plan import Plan
from dmlsplit.arrays.torch import DISTRIBUTED, HOMES, TrackedError, is_quantized, quickly
from dmlsplit.arrays.types import Array, DaskArray
from dmlsplit.backends.find import find_backend
from dmlsplit.checks import Integers, are_ints, piece_sizes
from dmlsplit.directml.overlap import may_overlap_itself
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import piece_shapes, split_geometry

Sizes: TypeAlias = SupportsIndex | Integers
T = TypeVar("T", bound=Array | DaskArray)
_FEW_PIECES = 64
_AT_ONCE = frozenset(("numpy", "cupy"))  # modules of arrays that always have memory


class _First(int):
    """The default axis: 0, but distinct from a 0 that the caller passes."""


_FIRST = _First()


@overload
def split(
    array: T, sizes_or_count: Sizes, axis: SupportsIndex = 0, out: Sequence[T] | None = None
) -> list[T]: ...
@overload
def split(
    array: T, sizes_or_count: Sizes, *, dim: SupportsIndex, out: Sequence[T] | None = None
) -> list[T]: ...
def split(
    array: T,
    sizes_or_count: Sizes,
    axis: SupportsIndex = _FIRST,
    out: Sequence[T] | None = None,
    dim: SupportsIndex | None = None,  # not keyword-only, which would slow down every call
) -> list[T]:
    """Split an array along an axis into new arrays. Unlike `numpy.split`, it copies.

    Parameters
    ----------
    array
        A NumPy, CuPy, PyTorch or JAX array, or one of any library with DLPack, with any strides;
        or a dask.array, which is split lazily, block by block.
    sizes_or_count
        The size of each piece along the axis; sizes may be 0, and must add up to the axis. Or
        the number of equal pieces.
    axis
        The dimension to split; a negative axis counts from the end.
    out
        Arrays to write to, one per piece, with the shape and type of the piece and any strides;
        None allocates new ones.
    dim
        PyTorch's name for `axis`; give only one of the two.

    Returns
    -------
    list
        The arrays of `out`, or new ones from the library of `array` (and of its class, if that is a
        subclass of numpy.ndarray). New CuPy arrays of less than 1 MiB in total share one block of
        memory, which each of them keeps alive.

    Raises
    ------
    InvalidArgumentError
        If the sizes or an array of `out` do not fit `array`. Nothing has been written.

    Examples
    --------
    >>> import numpy as np
    >>> split(np.arange(6), (1, 2, 3))
    [array([0]), array([1, 2]), array([3, 4, 5])]
    """
    if axis is _FIRST:
        axis = 0 if dim is None else dim
    elif dim is not None:
        raise InvalidArgumentError(
            f"axis is {axis!r} and dim is {dim!r}, two names for one argument; give only one"
        )
    home = array.__class__.__module__  # torch.compile cannot give type() of a Parameter
    if home not in _AT_ONCE:
        if home in HOMES and (done := quickly(array, axis, sizes_or_count, out, _known)):
            return done
        if own := _with_own_split(array, home, sizes_or_count, axis, out):
            return own(array, sizes_or_count, axis, out)
    try:
        source = view(array, "array")
    except TrackedError:
        source = None
    # Outside the `except`, so that errors do not print "During handling of the above exception".
    if source is None:
        return _split_tracked(array, sizes_or_count, axis, out)
    at: Any = axis
    along: Any = sizes_or_count
    if not are_ints(axis, sizes_or_count):
        at, along = piece_sizes(source.shape, sizes_or_count, axis)
    made = plan_for(along)
    if out is None:
        plan = made(source.device, source.shape, source.strides, source.item_bytes, at, along)
        return plan.split(source, array)
    shapes, sizes = _shapes(source.shape, source.item_bytes, at, along)
    owners, steps = out, None
    addresses = _packed_apart(out, source, shapes, sizes)
    if addresses is None:
        outputs = checked_outputs(out, source, shapes)
        owners, addresses = [one.owner for one in outputs], [one.address for one in outputs]
        steps = tuple([output.strides for output in outputs])
    plan = made(source.device, source.shape, source.strides, source.item_bytes, at, along, steps)
    plan.split_into(source, owners, addresses)
    return list(out)


def _with_own_split(
    array: Any, home: str, sizes_or_count: Sizes, axis: SupportsIndex, out: object
) -> Callable[..., list[Any]] | None:
    """The split for an array without memory (dask, traced), or whose library splits faster."""
    if home in HOMES:
        return _split_tracked if sys.modules["torch"].compiler.is_dynamo_compiling() else None
    if home == DISTRIBUTED:
        return _split_tracked
    if home.startswith("dask.array"):
        # Imported here because it imports this module, to split each block.
        from dmlsplit.storage.dask_arrays import split_dask

        return split_dask
    if home.partition(".")[0] in ("jax", "jaxlib"):
        # Imported here because JAX is optional.
        from dmlsplit.frameworks import jax

        along = (axis, sizes_or_count) if out is None and are_ints(axis, sizes_or_count) else None
        return jax.split if jax.is_for_jax(array, along) else None
    return None


@lru_cache(maxsize=1024)
def _known(shape: Any, steps: Any, dtype: Any, axis: int, sizes_or_count: Any) -> tuple[Any, Any]:
    """The shapes of the pieces of a tensor on the CPU, and the copies that calls have kept."""
    made, width = plan_for(sizes_or_count), dtype.itemsize
    strides = tuple(step * width for step in steps)
    plan = made("cpu", tuple(shape), strides, width, axis, sizes_or_count, None)
    # Other types of the same width share a plan, but a quantized tensor must be refused.
    is_kept = made is _plan and not is_quantized(dtype)
    return plan.outputs.shapes, plan.cut.copies if plan.cut and is_kept else {}


def _split_tracked(
    array: Any, sizes_or_count: Sizes, axis: SupportsIndex, out: Sequence[Any] | None
) -> list[Any]:
    # Imported here because it imports PyTorch, and this module.
    from dmlsplit.frameworks.torch import split as split_tracked

    return split_tracked(array, sizes_or_count, axis, out)


def _made(
    device: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    item_bytes: int,
    axis: int,
    sizes_or_count: int | tuple[int, ...],
    output_strides: tuple[tuple[int, ...], ...] | None = None,
) -> Plan:
    # Checked here, inside the cache, so that equal arguments are checked once.
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    layouts = [None] * len(sizes) if output_strides is None else output_strides
    geometry = split_geometry(shape, axis, sizes, item_bytes, strides, layouts)
    # Without `prepare`: a call must not wait for the compiler because its sizes are new.
    program = _backend(device).compile(geometry)
    step = prod(shape[:axis] + shape[axis + 1 :]) * item_bytes
    outputs = packing(piece_shapes(shape, axis, sizes), step, sizes=sizes)
    return Plan(program, outputs, small_cut(geometry, axis, sizes) if device == "cpu" else None)


_backend = lru_cache(maxsize=64)(find_backend)
# A plan takes more than a kilobyte per piece, so few plans with many pieces are cached.
_plan = lru_cache(maxsize=1024)(_made)
_plan_of_many = lru_cache(maxsize=8)(_made)


def plan_for(sizes_or_count: int | tuple[int, ...]) -> Callable[..., Plan]:
    """The cached function that makes plans for splits into this many pieces."""
    count = len(sizes_or_count) if isinstance(sizes_or_count, tuple) else sizes_or_count
    return _plan if count <= _FEW_PIECES else _plan_of_many


@lru_cache(maxsize=64)
def _shapes(
    shape: tuple[int, ...], item_bytes: int, axis: int, sizes_or_count: int | tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """The shapes of the pieces, and their sizes in bytes.

    Not taken from a plan: which plan it is depends on the outputs, once they have these shapes.
    """
    shapes = piece_shapes(shape, *piece_sizes(shape, sizes_or_count, axis))
    return shapes, [item_bytes * prod(shape) for shape in shapes]


def _packed_apart(
    out: Any, source: ArrayView, shapes: Sequence[tuple[int, ...]], sizes: list[int]
) -> list[int] | None:
    """Fast path: the addresses of outputs that fit, are packed and share no memory.

    None for any others, which `checked_outputs` checks one by one.
    """
    if type(out) not in (list, tuple) or len(out) != len(shapes):
        return None
    addresses = adapter_of(source.owner).packed_addresses(source.owner, out, shapes)
    if addresses is None:
        return None
    start, end = source.span
    return addresses if are_apart([start, *addresses], [end, *map(add, addresses, sizes)]) else None


def check_list(out: Any, count: int) -> None:
    """Refuse anything but a list or a tuple of `count` arrays."""
    is_list = isinstance(out, (list, tuple))
    if not is_list or len(out) != count:
        found = f" of {len(out)}" if is_list else ""
        raise InvalidArgumentError(
            f"out is a {type(out).__name__}{found}; it must be a list of {count} arrays"
        )


def checked_outputs(
    out: Sequence[Any], source: ArrayView, shapes: Sequence[tuple[int, ...]]
) -> list[ArrayView]:
    """Views of the arrays to write to, which must fit the source and share no memory."""
    check_list(out, len(shapes))
    outputs = [view(output, f"out[{index}]") for index, output in enumerate(out)]
    rest = source.type, source.device, False
    for index, (output, shape) in enumerate(zip(outputs, shapes, strict=True)):
        found = (output.shape, output.type, output.device, output.read_only)
        if found != (shape, *rest):
            rows = zip(("shape", "type", "device", "read_only"), found, (shape, *rest), strict=True)
            what, is_, must = next(row for row in rows if row[1] != row[2])
            raise InvalidArgumentError(f"out[{index}]: {what} is {is_}; it must be {must}")
        if not _is_apart(shape, output.strides):
            raise InvalidArgumentError(
                f"out[{index}]: strides are {output.strides}; its elements must not overlap"
            )
    _refuse_overlap([source, *outputs])
    return outputs


@lru_cache(maxsize=1024)
def _is_apart(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return not may_overlap_itself(shape, tuple(map(abs, strides)))


def _refuse_overlap(views: list[ArrayView]) -> None:
    """Refuse outputs (all views but the first) that share memory with another array."""
    listed = [view.span for view in views]
    if are_apart(*zip(*listed, strict=True)):
        return
    meeting = _meeting(listed)
    spans = dict(enumerate(listed))
    found = columns([views[index] for index in meeting])
    if found:
        spans |= zip(meeting, found, strict=True)
        meeting = [meeting[at] for at in _meeting(found)]
    for position, index in enumerate(meeting):
        for after in range(position + 1, len(meeting)):
            other = meeting[after]
            if spans[other][0] >= spans[index][1]:
                break
            if _share_memory(views[index], views[other]):
                one, two = (f"out[{i - 1}]" if i else "array" for i in (other, index))
                raise InvalidArgumentError(f"{one} and {two} share memory; they must not overlap")


def _meeting(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The indices of spans that overlap another one, in the order in which they begin."""
    return sorted({at for pair in overlaps(spans) for at in pair}, key=lambda at: (spans[at], at))


def _share_memory(one: ArrayView, two: ArrayView) -> bool:
    """Whether arrays with overlapping spans share a byte; two columns of an array do not."""
    try:
        return np.shares_memory(one.window, two.window, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
