"""`dml.split`: one call for any array, without a descriptor.

DirectML's limits (2^32-1 elements, 8 dimensions, no empty pieces, eleven data types) therefore do
not apply.
"""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, SupportsIndex, overload

from dmlsplit.arrays.torch_adapter import TENSOR_MODULES
from dmlsplit.arrays.types import AnyArrayT
from dmlsplit.checks import Integers
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution import in_memory
from dmlsplit.forks import late_import


class _DefaultAxis(int):
    """The default axis: 0, but distinct from a 0 that the caller passes."""


_DEFAULT_AXIS = _DefaultAxis()


@overload
def split(
    array: AnyArrayT,
    sizes_or_count: SupportsIndex | Integers,
    axis: SupportsIndex = 0,
    out: Sequence[AnyArrayT] | None = None,
) -> list[AnyArrayT]: ...
@overload
def split(
    array: AnyArrayT,
    sizes_or_count: SupportsIndex | Integers,
    *,
    dim: SupportsIndex,
    out: Sequence[AnyArrayT] | None = None,
) -> list[AnyArrayT]: ...
def split(
    array: AnyArrayT,
    sizes_or_count: SupportsIndex | Integers,
    axis: SupportsIndex = _DEFAULT_AXIS,
    out: Sequence[AnyArrayT] | None = None,
    dim: SupportsIndex | None = None,  # not keyword-only, which would slow down every call
) -> list[AnyArrayT]:
    """Split an array along an axis into new arrays. Unlike `numpy.split`, it copies.

    Parameters
    ----------
    array : array
        A NumPy, CuPy, PyTorch, JAX or dask array, or one of any library with DLPack. It has one or
        more dimensions, any strides, and any data type but Python objects.
    sizes_or_count : int or sequence of int
        The size of each piece along the axis, or the number of equal pieces. Sizes may be 0, and
        must add up to the size of the axis; a number must divide it.
    axis : int
        The dimension to split; a negative axis counts from the end.
    out : sequence of arrays, optional
        Arrays to write to, one per piece, with the shape and type of the piece and any strides.
        They must not share memory with each other or with `array`. None allocates new ones.
    dim : int, optional
        PyTorch's name for `axis`; give only one of the two.

    Returns
    -------
    list of arrays
        The arrays of `out`, or new ones from the library of `array` (and of its class, if that is a
        subclass of numpy.ndarray); from NumPy or CuPy if the library has no ``from_dlpack``. Piece
        `i` has the shape of `array`, except that it is ``sizes[i]`` long along the axis. New NumPy,
        CuPy and PyTorch arrays are C-contiguous.

    Raises
    ------
    InvalidArgumentError
        If an argument has the wrong type or does not fit `array`, or both `axis` and `dim` are
        given. Nothing has been written.
    UnsupportedError
        If the device of `array` cannot be used, for example because CuPy is missing, or if `array`
        belongs to dask's array query planning.
    OutOfMemoryError
        If the pieces do not fit in memory.
    DeviceRemovedError
        If the device fails.

    See Also
    --------
    Device.compile : Compiles a split once, for many arrays.
    numpy.split : Views; a sequence holds the positions of cuts.

    Notes
    -----
    A dask.array is split lazily, block by block, and `out` must be None. Its pieces have chunks of
    one size if it has one chunk along the axis; otherwise rechunk them before you store them. JAX's
    arrays are immutable, so they cannot be in `out`.

    Examples
    --------
    >>> import numpy as np
    >>> split(np.arange(6), (1, 2, 3))
    [array([0]), array([1, 2]), array([3, 4, 5])]
    >>> split(np.arange(6), 3)
    [array([0, 1]), array([2, 3]), array([4, 5])]
    >>> outs = [np.empty(2, int), np.empty(4, int)]
    >>> pieces = split(np.arange(6), (2, 4), out=outs)
    >>> pieces[1] is outs[1]
    True
    """
    if axis is _DEFAULT_AXIS:
        axis = 0 if dim is None else dim
    elif dim is not None:
        raise InvalidArgumentError(
            # torch.jit.script stops here and shows this line: call torch.ops.dmlsplit.split.
            f"axis is {axis!r} and dim is {dim!r}, two names for one argument. Fix: give only one"
        )
    # Not type(), because torch.compile cannot trace it for a Parameter.
    module = array.__class__.__module__
    if module in TENSOR_MODULES and sys.modules["torch"].compiler.is_dynamo_compiling():
        # It can trace neither a lock nor a cache, and compiles a graph again once a dictionary that
        # the graph reads has changed.
        from dmlsplit.execution import torch

        return torch.split(array, sizes_or_count, axis, out)
    return _split_of(module)(array, sizes_or_count, axis, out)


@lru_cache(maxsize=64)  # saves 1 us per call
def _split_of(module: str) -> Callable[..., list[Any]]:
    """The split for the arrays of a module, whose library is imported now if it was not yet."""
    with late_import():
        if module in TENSOR_MODULES:
            from dmlsplit.execution import torch

            return torch.split
        if module.startswith("dask.array"):
            from dmlsplit.execution import dask

            return dask.split_dask
        if module.partition(".")[0] in ("jax", "jaxlib"):
            from dmlsplit.execution import jax

            return jax.split
    return in_memory.split
