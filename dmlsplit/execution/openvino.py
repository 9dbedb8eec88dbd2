"""OpenVINO's VariadicSplit-1 and Split-1 on arrays."""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.types import ArrayT
from dmlsplit.checks import Integers, integer, integers, is_count
from dmlsplit.directml.tensor import NUMPY_TYPES, TensorDataType
from dmlsplit.errors import InvalidArgumentError, prefix_errors
from dmlsplit.execution.device import Device
from dmlsplit.execution.lowered_split import has_strings, run_split
from dmlsplit.models.lowering import Lowering
from dmlsplit.models.openvino.lowering import (
    SPLIT,
    VARIADIC_SPLIT,
    check_axis_shape,
    lower_split,
    lower_variadic_split,
)

_BY_NUMPY_NAME = {name: data_type for data_type, name in NUMPY_TYPES.items()}


def variadic_split(
    data: ArrayT,
    axis: SupportsIndex | Integers,
    split_lengths: Integers,
    *,
    device: Device | str | None = None,
) -> list[ArrayT]:
    """Split data into pieces of the given lengths (OpenVINO's VariadicSplit-1).

    Parameters
    ----------
    data : array
        An array of any library, contiguous or not. Its elements have 1, 2, 4 or a multiple of 8
        bytes; in NumPy, they may also be strings.
    axis : int or array
        An integer, or an integer array of shape ``()`` or ``(1,)``; if negative, it counts from the
        end.
    split_lengths : sequence of int or array
        A list or 1-D array of integers that are at least 0; one may be -1, which means the rest.
    device : Device or str, optional
        A `dmlsplit.Device` or its name; None means the array's own device.

    Returns
    -------
    list of arrays
        New arrays of the library, type and rank of `data`.

    Raises
    ------
    InvalidArgumentError
        If an argument has the wrong type or shape, the lengths do not add up to the size of the
        axis, `data` is on another device, or the device's level has no equivalent of the split.

    See Also
    --------
    split : Into equal pieces.

    Examples
    --------
    >>> import numpy as np
    >>> variadic_split(np.arange(6), 0, [1, -1, 2])
    [array([0]), array([1, 2, 3]), array([4, 5])]
    """
    with prefix_errors(VARIADIC_SPLIT):
        axis = _axis(VARIADIC_SPLIT, axis)
        lengths = integers("split_lengths", split_lengths)
    return _run(lower_variadic_split, data, axis, lengths, device)


def split(
    data: ArrayT,
    axis: SupportsIndex | Integers,
    num_splits: SupportsIndex,
    *,
    device: Device | str | None = None,
) -> list[ArrayT]:
    """Split data into equal pieces (OpenVINO's Split-1).

    Parameters
    ----------
    data : array
        An array of any library, contiguous or not. Its elements have 1, 2, 4 or a multiple of 8
        bytes; in NumPy, they may also be strings.
    axis : int or array
        An integer, or an integer array of shape ``()``; if negative, it counts from the end.
    num_splits : int
        The number of pieces; it must divide the size of the axis.
    device : Device or str, optional
        A `dmlsplit.Device` or its name; None means the array's own device.

    Returns
    -------
    list of arrays
        New arrays of the library, type and rank of `data`.

    Raises
    ------
    InvalidArgumentError
        If an argument has the wrong type or shape, `num_splits` does not divide the size of the
        axis, `data` is on another device, or the device's level has no equivalent of the split.

    See Also
    --------
    variadic_split : Into pieces of given lengths.

    Examples
    --------
    >>> import numpy as np
    >>> split(np.arange(6), 0, 2)
    [array([0, 1, 2]), array([3, 4, 5])]
    """
    with prefix_errors(SPLIT):
        axis = _axis(SPLIT, axis)
        count = integer("num_splits", num_splits)
    return _run(lower_split, data, axis, count, device)


def _axis(operator: str, axis: Any) -> int:
    """The axis as a number; it may be an array of one."""
    if is_count(axis):
        return integer("axis", axis)
    entries = integers("axis", axis)
    check_axis_shape(operator, (len(entries),))
    return entries[0]


def _run(
    lower: Callable[..., Lowering], data: Any, axis: int, pieces: Any, device: Device | str | None
) -> list[Any]:
    """Split data; `pieces` are lengths or a count, as `lower` expects."""
    if has_strings(data):
        unknown = data.shape, axis, pieces, TensorDataType.UNKNOWN
        return run_split(lower, unknown, data, None, "data", device)
    source = view(data, "data")
    arguments = source.shape, axis, pieces, *_carrier(source)
    return run_split(lower, arguments, data, source, "data", device)


def _carrier(source: ArrayView) -> tuple[TensorDataType, int]:
    """The DirectML type that carries an array's elements, and how many of it an element takes."""
    data_type = _BY_NUMPY_NAME.get(source.type[1:])
    width = source.item_bytes
    if data_type is not None:
        return data_type, 1
    if width in (1, 2, 4, 8):
        return TensorDataType.parse(f"UINT{8 * width}"), 1
    if width and width % 8 == 0:
        return TensorDataType.UINT64, width // 8
    allowed = "it must have 1, 2, 4 or a multiple of 8 bytes"
    raise InvalidArgumentError(f"data has type {source.type} of {width} bytes; {allowed}")
