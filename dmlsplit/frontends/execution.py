"""Runs a lowered split on an array whose elements travel as a type that DirectML has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from dmlsplit.arrays import ArrayView, adapter_of
from dmlsplit.arrays.packing import packing
from dmlsplit.device import CompiledOperator, Device

Shape = tuple[int, ...]


def device_for(given: Device | str | None, home: str) -> Device:
    """Return the device that a caller names; for None, the one that holds the array."""
    return given if isinstance(given, Device) else Device(home if given is None else given)


def run_on_bytes(
    operator: CompiledOperator | None, source: ArrayView, name: str, shapes: Sequence[Shape]
) -> list[Any]:
    """Split the bytes of an array into new arrays of its owner's library and type.

    `operator` splits the packed array into those outputs that have elements, and is None if
    none has; `shapes` has them all. The array may have any strides; errors call it `name`.
    """
    array, library = source.owner, adapter_of(source.owner)
    filled: list[Any] = []
    if operator is not None:
        packed, tensor = library.packed(array, name), operator.desc.input_tensor
        carrier = library.reinterpreted(packed, tensor.data_type.numpy_name, tensor.sizes)
        filled = operator(carrier)
    outputs = iter(filled)
    without = tuple(shape for shape in shapes if 0 in shape)
    empty = iter(library.empty(source, packing(without, source.item_bytes))[0] if without else ())
    return [
        next(empty) if 0 in shape else library.reinterpreted(next(outputs), array.dtype, shape)
        for shape in shapes
    ]


def split_strings(
    array: Any, axis: int, sizes: Sequence[int], shapes: Sequence[Shape]
) -> list[Any]:
    """Split an array of strings on the host: they are not bytes that a GPU could move."""
    before = (slice(None),) * axis
    rows = zip(accumulate(sizes), sizes, shapes, strict=True)
    return [
        array[(*before, slice(end - size, end))].copy().reshape(shape) for end, size, shape in rows
    ]
