"""Splits an array as a front end's lowering says, on a device whose feature level accepts it."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import numpy as np

from dmlsplit.arrays import ArrayView
from dmlsplit.directml.legalization import equivalent
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution.device import Device
from dmlsplit.execution.in_memory import split_view
from dmlsplit.models.lowering import Lowering


def run_split(
    lower: Callable[..., Lowering],
    arguments: tuple[Hashable, ...],
    array: Any,
    source: ArrayView | None,
    name: str,
    device: Device | str | None,
) -> list[Any]:
    """The pieces of an array, as new arrays of its library.

    ``lower(*arguments)`` is cached; a descriptor without an equivalent at the level of the device
    is refused. `source` is the view of the array, which errors call `name`; None for strings,
    which are split on the host because a GPU cannot move them. If `device` is None, the array's
    own device is used.
    """
    own_device = "cpu" if source is None else source.device
    if not isinstance(device, Device):
        device = Device(own_device if device is None else device)
    lowering = _accepted_lowering(device.feature_level, lower, arguments)
    if source is None:
        parts = np.split(array, np.cumsum(lowering.sizes)[:-1], lowering.axis)  # at least one
        pieces = [part.copy() for part in parts[: len(lowering.sizes)]]
    elif own_device != device.name:
        raise InvalidArgumentError(
            f"{name} is on {own_device}; it must be on {device.name}. Fix: device={own_device!r}, "
            f"or move it to {device.name}"
        )
    else:
        pieces = split_view(source, array, lowering.sizes, lowering.axis, None)
    return [piece.squeeze(lowering.axis) for piece in pieces] if lowering.squeeze else pieces


def has_strings(array: Any) -> bool:
    """Whether an array's elements are strings or Python objects, which NumPy itself moves.

    Masked arrays, and arrays of other libraries, are left to their views, which refuse them.
    """
    is_numpy = isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray)
    return is_numpy and array.dtype.kind in "OSUT"


@lru_cache(maxsize=128)
def _accepted_lowering(
    level: FeatureLevel, lower: Callable[..., Lowering], arguments: tuple[Hashable, ...]
) -> Lowering:
    """The lowering; an error if its descriptor has no equivalent at the level."""
    lowering = lower(*arguments)
    if lowering.descriptor is not None:
        equivalent(lowering.descriptor, level)
    return lowering
