"""The fast paths of PyTorch tensors: small ones, and outputs that need no view."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from operator import add, attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, UntypedStorage

from dmlsplit.arrays.adapter import Shape
from dmlsplit.arrays.array_view import byte_bounds
from dmlsplit.arrays.overlap import are_disjoint
from dmlsplit.arrays.torch_adapter import type_string_of
from dmlsplit.arrays.torch_private import (
    PLAIN_TYPES,
    dispatch_modes,
    increment_version,
    is_forward_mode,
    is_jit_tracing,
    is_pre_dispatch,
)
from dmlsplit.backends import BoundCopy
from dmlsplit.checks import are_plain_ints, piece_sizes
from dmlsplit.execution.in_memory import prepared_split
from dmlsplit.execution.prepared_split import FEW_PIECES, MANY_PIECES_CACHED
from dmlsplit.geometry import piece_shapes

# Up to this size, torch's own operator is faster than the engine, because it allocates outputs
# without Python. Splits that cost more than MAX_TORCH_COST are an exception.
SMALL_BYTES = 8 << 20
# Torch copies runs of this many bytes or more at once, and shorter ones element by element. A run
# is the bytes of a piece that are contiguous in the input.
LONG_RUN = 32
# A run of one element costs 1, the unit here; a short run of several elements costs this many.
SHORT_RUN_COST = 6
# The most that all short runs of a split may cost, in runs of one element, before the engine is
# faster.
MAX_TORCH_COST = 48 << 10
# Tensors of up to this many elements never cost more, even if each element were a short run.
FEW_ELEMENTS = MAX_TORCH_COST // SHORT_RUN_COST
# Copies of up to this many bytes are kept: whatever the setting, they take one thread.
ONE_THREAD_BYTES = 32 << 10
# Looked up once, because a small split takes a few microseconds.
is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_FORMS = frozenset((tuple, list, int))  # of sizes or a number; iterators can be read only once


def split_small(
    array: Tensor, sizes_or_count: Any, axis: Any, out: Sequence[Tensor] | None
) -> list[Tensor] | None:
    """Fast path: the pieces of a small tensor on the CPU, or `out` with them, by torch's operator.

    None for any other tensor, where a compiler or a mode must see the split, and if an output is
    not exactly as required. Three pieces of 1 KB take 4 us instead of 12, outputs 5 instead of 14.
    """
    # First, because torch.compile must not trace what follows.
    if is_dynamo_compiling() or type(array) not in PLAIN_TYPES or not array.is_cpu:
        return None
    form = type(sizes_or_count)
    if form not in _FORMS or dispatch_modes() or is_jit_tracing():
        return None
    try:
        if out is not None:
            return _fill(out, array, axis, sizes_or_count)
        # Torch refuses what the engine refuses, which then says why: sparse and nested tensors,
        # wrong sizes, and values that only equal integers, such as 1.0 (but it takes True after the
        # first size). The cache takes those, so torch gets what the caller gave. Its operator
        # supports gradients.
        if form is not int and bool in map(type, sizes_or_count):
            return None
        if form is int or array.numel() > FEW_ELEMENTS or array.is_quantized:
            key = tuple(sizes_or_count) if form is list else sizes_or_count
            sizes = _sizes_if_small(array.shape, array.dtype, axis, key)
            if not sizes:
                return None
            sizes_or_count = sizes if form is int else sizes_or_count
        return [*torch.split_with_sizes_copy(array, sizes_or_count, axis)]
    except (IndexError, RuntimeError, TypeError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _sizes_if_small(
    shape: tuple[int, ...], dtype: Any, axis: int, sizes_or_count: int | tuple[int, ...]
) -> tuple[int, ...]:
    """The piece sizes, if torch may copy the pieces and is faster than the engine; otherwise ()."""
    if torch.empty(0, dtype=dtype, device="cpu").is_quantized:
        return ()
    type_string_of(dtype)  # Refuses elements that are not whole bytes.
    shape = tuple(shape)
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    rows = prod(shape[:axis])
    inner = prod(shape[axis + 1 :])
    width = dtype.itemsize
    cost = rows * len(sizes) * SHORT_RUN_COST
    if cost > MAX_TORCH_COST:
        short = [size for size in sizes if size * inner * width < LONG_RUN]
        cost = rows * sum(1 if size * inner == 1 else SHORT_RUN_COST for size in short)
    is_small = cost <= MAX_TORCH_COST and rows * shape[axis] * inner * width < SMALL_BYTES
    return sizes if is_small else ()


def _fill(out: Any, array: Tensor, axis: int, sizes_or_count: Any) -> list[Tensor] | None:
    """Outputs with the pieces, if each is packed and the whole of a memory of its own; else None.

    Each question is asked of all outputs at once, which takes a third of the time of `view`.
    """
    if type(out) not in (list, tuple) or not PLAIN_TYPES.issuperset(map(type, out)):
        return None
    if type(sizes_or_count) is list:
        sizes_or_count = tuple(sizes_or_count)
    if not are_plain_ints(axis, sizes_or_count):
        return None
    if array.is_quantized or array.requires_grad or is_forward_mode():
        return None
    if array.is_neg() or True in map(Tensor.is_neg, out):
        return None
    required_by = _required_by_few if len(out) <= FEW_PIECES else _required_by_many
    required = required_by(array.shape, array.stride(), array.dtype, axis, sizes_or_count)
    if list(map(_fields_of, out)) != required.fields or False in map(Tensor.is_contiguous, out):
        return None
    if is_pre_dispatch() or any(map(Tensor.storage_offset, out)):
        return None
    storages = [array.untyped_storage(), *map(Tensor.untyped_storage, out)]
    input_bytes, *sizes = map(UntypedStorage.nbytes, storages)
    if input_bytes < array.storage_offset() * array.element_size() + required.end:
        return None  # storage was resized
    if sizes != required.sizes:
        return None
    starts = tuple(map(UntypedStorage.data_ptr, storages))
    copy = required.copy_of(array.data_ptr(), starts, input_bytes)
    if not copy:
        return None
    copy()
    increment_version(out)
    return list(out)


class _Required(NamedTuple):
    """What `_fill` compares outputs with, and the program that fills them."""

    fields: list[tuple[Any, ...]]  # what `_fields_of` are of outputs
    sizes: list[int]  # in bytes
    end: int  # of the input's last element, in bytes from its first one
    # The copy from an address to storages, the first of which is the input's; None if they overlap.
    copy_of: Callable[[int, tuple[int, ...], int], BoundCopy | None]


_fields_of = attrgetter("dtype", "shape", "is_cpu", "requires_grad")


def _required(
    shape: Shape, element_strides: Shape, dtype: Any, axis: int, sizes_or_count: Any
) -> _Required:
    """What a split requires of outputs."""
    type_string_of(dtype)  # Refuses elements that are not whole bytes.
    axis, sizes = piece_sizes(tuple(shape), sizes_or_count, axis)
    pieces = list(map(torch.Size, piece_shapes(tuple(shape), axis, sizes)))
    width = dtype.itemsize
    # Elements of complex tensors may be conjugated lazily, and then no field is equal.
    fields = [(dtype, piece, not dtype.is_complex, False) for piece in pieces]
    shape = tuple(shape)
    strides = tuple([stride * width for stride in element_strides])
    program = prepared_split(("cpu", shape, strides, width), axis, sizes).program
    _, end = byte_bounds(shape, strides, width)
    output_bytes = [piece.numel() * width for piece in pieces]

    def copy_of(source: int, starts: tuple[int, ...], input_bytes: int) -> BoundCopy | None:
        is_apart = are_disjoint(starts, map(add, starts, (input_bytes, *output_bytes)))
        return program.bind(source, starts[1:]) if is_apart else None

    if sum(output_bytes) <= ONE_THREAD_BYTES:
        copy_of = lru_cache(maxsize=8)(copy_of)  # the same outputs are often filled again
    return _Required(fields, output_bytes, end, copy_of)


_required_by_few = lru_cache(maxsize=64)(_required)
_required_by_many = lru_cache(maxsize=MANY_PIECES_CACHED)(_required)
