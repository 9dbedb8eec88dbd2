"""`dml.split`: one call for any array, without a descriptor.

It goes straight to the geometry. DirectML's limits (2^32-1 elements, 8 dimensions, no
empty pieces, the eleven data types) bind descriptors, not this function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, SupportsIndex

import numpy as np

from dmlsplit.arrays import allocation, array_view
from dmlsplit.arrays.array_view import ArrayView
from dmlsplit.backends import Program
from dmlsplit.backends.find import compiled, find_backend
from dmlsplit.checks import piece_sizes
from dmlsplit.directml.overlap import may_overlap_itself
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import split_geometry


def split(
    array: Any,
    sizes_or_count: SupportsIndex | Iterable[SupportsIndex],
    axis: SupportsIndex = 0,
    out: Sequence[Any] | None = None,
) -> list[Any]:
    """Split an array along an axis into new arrays. Unlike `numpy.split`, it copies.

    Parameters
    ----------
    array
        An array of NumPy, CuPy, PyTorch, JAX or any library with DLPack, with any strides; or
        a dask.array, which is split lazily, block by block.
    sizes_or_count
        The size of each piece along the axis, which must add up; or the number of equal
        pieces. Sizes may be 0.
    axis
        The dimension to split; a negative one counts from the end.
    out
        Arrays to write, one per piece, of the pieces' shape and type and with any strides;
        None allocates.

    Returns
    -------
    list
        The pieces, of the same library as `array`; or `out`.

    Raises
    ------
    InvalidArgumentError
        If the sizes do not fit, or an array of `out` does not. Nothing has been written.

    Examples
    --------
    >>> import numpy as np
    >>> split(np.arange(6), (1, 2, 3))
    [array([0]), array([1, 2]), array([3, 4, 5])]
    """
    if type(array).__module__.startswith("dask.array"):
        return _split_lazily(array, sizes_or_count, axis, out)
    source = array_view.view(array, "array")
    at, sizes = piece_sizes(source.shape, sizes_or_count, axis)
    if out is None:
        strides = None
        before, behind = source.shape[:at], source.shape[at + 1 :]
        shapes = {size: (*before, size, *behind) for size in set(sizes)}
        result = allocation.packed(source, [shapes[size] for size in sizes])
        addresses = allocation.addresses(result)
    else:
        targets = _checked(out, source, at, sizes)
        strides = tuple(target.strides for target in targets)
        result = list(out)
        addresses = [target.address for target in targets]
    program = _program(
        source.device, source.shape, source.strides, source.item_bytes, at, sizes, strides
    )
    stream = allocation.current_stream(array)
    program.bind(source.address, addresses)(stream and stream())
    return result if out is not None else allocation.same_kind(result, array)


def _split_lazily(
    array: Any,
    sizes_or_count: SupportsIndex | Iterable[SupportsIndex],
    axis: SupportsIndex,
    out: Sequence[Any] | None,
) -> list[Any]:
    # Imported here: distributed.py stands behind this module, and calls it for each block.
    from dmlsplit.storage.dask_arrays import split_dask

    if out is not None:
        raise InvalidArgumentError(
            "out is given for a dask.array, which is split lazily; it must be None. "
            "Fix: dask.array.store(pieces, out)"
        )
    return split_dask(array, sizes_or_count, axis)


@lru_cache(maxsize=1024)
def _program(
    device: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    item_bytes: int,
    axis: int,
    sizes: tuple[int, ...],
    output_strides: tuple[tuple[int, ...], ...] | None,
) -> Program:
    targets = [None] * len(sizes) if output_strides is None else output_strides
    geometry = split_geometry(shape, axis, sizes, item_bytes, strides, targets)
    return compiled(find_backend(device), geometry)


def _checked(
    out: Sequence[Any], source: ArrayView, axis: int, sizes: tuple[int, ...]
) -> list[ArrayView]:
    if not isinstance(out, (list, tuple)) or len(out) != len(sizes):
        count = f" of {len(out)}" if isinstance(out, (list, tuple)) else ""
        raise InvalidArgumentError(
            f"out is a {type(out).__name__}{count}; it must be a list of {len(sizes)} arrays"
        )
    targets = [array_view.view(target, f"out[{index}]") for index, target in enumerate(out)]
    before, behind = source.shape[:axis], source.shape[axis + 1 :]
    for index, (target, size) in enumerate(zip(targets, sizes, strict=True)):
        found = (target.shape, target.type, target.device, target.read_only)
        allowed = ((*before, size, *behind), source.type, source.device, False)
        if found != allowed:
            raise _mismatch(f"out[{index}]", found, allowed)
        if not _lies_apart(target.shape, target.strides):
            raise InvalidArgumentError(
                f"out[{index}]: strides are {target.strides}; its elements must lie apart"
            )
    _refuse_overlap(source, targets)
    return targets


def _mismatch(
    name: str, found: tuple[object, ...], allowed: tuple[object, ...]
) -> InvalidArgumentError:
    differing = zip(("shape", "type", "device", "read_only"), found, allowed, strict=True)
    what, is_, must = next(row for row in differing if row[1] != row[2])
    return InvalidArgumentError(f"{name}: {what} is {is_}; it must be {must}")


@lru_cache(maxsize=1024)
def _lies_apart(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return not may_overlap_itself(shape, tuple(map(abs, strides)))


def _refuse_overlap(source: ArrayView, targets: list[ArrayView]) -> None:
    views = [source, *targets]
    spans = sorted((view.span, index) for index, view in enumerate(views))
    for position, ((_, high), index) in enumerate(spans):
        for (low, _), other in spans[position + 1 :]:
            if low >= high:
                break
            if _share_memory(views[index], views[other]):
                one, two = (f"out[{i - 1}]" if i else "array" for i in (other, index))
                raise InvalidArgumentError(f"{one} and {two} share memory; they must lie apart")


def _share_memory(one: ArrayView, two: ArrayView) -> bool:
    """Whether two arrays with overlapping spans really meet; columns of one array do not."""
    try:
        return np.shares_memory(one.window, two.window, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
