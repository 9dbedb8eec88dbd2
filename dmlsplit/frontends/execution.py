"""Runs a lowered split on an array whose elements are carried in a type that DirectML has."""

import warnings
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import numpy as np

from dmlsplit.arrays import ArrayView, adapter_of
from dmlsplit.arrays.adapter import NewArrays
from dmlsplit.device import CompiledOperator, Device
from dmlsplit.directml.legalization import equivalent
from dmlsplit.frontends.lowering import Lowering


def run_split(
    lower: Callable[..., Lowering],
    arguments: tuple[Hashable, ...],
    array: Any,
    source: ArrayView | None,
    name: str,
    device: Device | str | None,
) -> list[Any]:
    """The pieces of an array, as new arrays of its owner's library and type.

    ``lower(*arguments)`` is compiled and cached, and each of its assumptions becomes a
    `UserWarning`. `source` is a view of the array with any strides. Errors call it `name`. It is
    None for strings, which are split on the host because a GPU cannot move them. If `device` is
    None, the array's own device is used.
    """
    if not isinstance(device, Device):
        home = "cpu" if source is None else source.device
        device = Device(home if device is None else device)
    lowering, operator = _compiled(device, lower, arguments)
    for message in lowering.assumed:
        warnings.warn(message, stacklevel=4)
    if source is None:
        parts = np.split(array, np.cumsum(lowering.sizes)[:-1], lowering.axis)  # at least one
        pairs = zip(lowering.output_shapes, parts, strict=False)
        return [part.copy().reshape(shape) for shape, part in pairs]
    library, shapes = adapter_of(source.owner), lowering.output_shapes
    outputs = iter(())
    if operator is not None:
        packed, tensor = library.packed(source.owner, name), operator.desc.input_tensor
        carrier = library.reinterpret(packed, tensor.data_type.numpy_name, tensor.sizes)
        outputs = iter(operator(carrier))
    empty_shapes = tuple(shape for shape in shapes if 0 in shape)
    empty = iter(library.empty(source, NewArrays(empty_shapes))[0] if empty_shapes else ())
    dtype = source.owner.dtype
    return [
        next(empty) if 0 in shape else library.reinterpret(next(outputs), dtype, shape)
        for shape in shapes
    ]


@lru_cache(maxsize=128)
def _compiled(
    device: Device, lower: Callable[..., Lowering], arguments: tuple[Hashable, ...]
) -> tuple[Lowering, CompiledOperator | None]:
    """The lowering and its operator, which is None if there is nothing to dispatch."""
    lowering = lower(*arguments)
    if lowering.descriptor is None:
        return lowering, None
    return lowering, device.compile(equivalent(lowering.descriptor, device.feature_level))
