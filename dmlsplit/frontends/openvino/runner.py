"""OpenVINO's VariadicSplit-1 and Split-1 on arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dmlsplit.arrays import allocation, array_view
from dmlsplit.arrays.array_view import ArrayView
from dmlsplit.device import Device
from dmlsplit.directml.legalization import legalize
from dmlsplit.directml.tensor import NUMPY_TYPES, TensorDataType
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.openvino.lowering import (
    SPLIT,
    VARIADIC_SPLIT,
    Lowering,
    lower_split,
    lower_variadic_split,
)

Lower = Callable[[tuple[int, ...], TensorDataType, int], Lowering]


def variadic_split(
    data: Any, axis: Any, split_lengths: Any, *, device: Device | str | None = None
) -> list[Any]:
    """Split data into pieces of given lengths (VariadicSplit-1).

    Parameters
    ----------
    data
        An array of any library and data type, contiguous or not.
    axis
        An integer, or an integer array of shape ``()`` or ``(1,)``; negative counts from
        the end.
    split_lengths
        Integers, one-dimensional; one may be -1 and takes what the others leave. Lengths of
        0 give empty pieces.
    device
        A `Device` or its name; None takes the device that holds `data`.

    Returns
    -------
    list
        New arrays of the library and type of `data`.

    Raises
    ------
    InvalidArgumentError
        If an argument is none, or the lengths do not fit.

    Examples
    --------
    >>> variadic_split(np.arange(6), 0, [1, -1, 2])
    [array([0]), array([1, 2, 3]), array([4, 5])]
    """
    at = _axis(VARIADIC_SPLIT, axis, ((), (1,)))
    lengths = _integers(VARIADIC_SPLIT, "split_lengths", split_lengths)
    if lengths.ndim != 1:
        raise InvalidArgumentError(
            f"{VARIADIC_SPLIT}: split_lengths has shape {list(lengths.shape)}; it must be 1-D"
        )
    sizes = lengths.tolist()
    return _run(
        data,
        lambda shape, kind, lanes: lower_variadic_split(shape, at, sizes, kind, lanes),
        device,
    )


def split(
    data: Any, axis: Any, num_splits: Any, *, device: Device | str | None = None
) -> list[Any]:
    """Split data into equal pieces (Split-1).

    Parameters
    ----------
    data, device
        As in `variadic_split`.
    axis
        An integer, or an integer array of shape ``()``; negative counts from the end.
    num_splits
        The number of pieces; it must divide the size of the axis.

    Returns
    -------
    list
        New arrays of the library and type of `data`.

    Raises
    ------
    InvalidArgumentError
        If an argument is none, or the pieces cannot be equal.
    """
    at = _axis(SPLIT, axis, ((),))
    count = _integers(SPLIT, "num_splits", num_splits)
    if count.ndim:
        raise InvalidArgumentError(
            f"{SPLIT}: num_splits has shape {list(count.shape)}; it must be one integer"
        )
    number = int(count)
    return _run(
        data, lambda shape, kind, lanes: lower_split(shape, at, number, kind, lanes), device
    )


def _axis(operator: str, axis: Any, shapes: tuple[tuple[int, ...], ...]) -> int:
    found = _integers(operator, "axis", axis)
    if found.shape not in shapes:
        allowed = " or ".join(
            "a scalar" if not shape else f"of shape {list(shape)}" for shape in shapes
        )
        raise InvalidArgumentError(
            f"{operator}: axis has shape {list(found.shape)}; it must be {allowed}"
        )
    return int(found.reshape(()))


def _integers(operator: str, name: str, value: Any) -> np.ndarray:
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise InvalidArgumentError(
            f"{operator}: {name} is {value!r}; it must be integers"
        ) from None
    if found.size == 0 and isinstance(value, (list, tuple)):
        return found.astype(np.int64)
    if found.dtype.kind not in "iu":
        what = f"of type {found.dtype}" if isinstance(value, np.ndarray) else f"{value!r}"
        raise InvalidArgumentError(
            f"{operator}: {name} is {what[:80]}; it must be of a 64-bit integer type or smaller"
        )
    return found


def _run(data: Any, lower: Lower, device: Device | str | None) -> list[Any]:
    if isinstance(data, np.ndarray) and data.dtype.kind in "OSUT":
        return _on_the_host(data, lower)
    source = array_view.view(data, "data")
    kind, lanes = _travels_as(source)
    lowering = lower(source.shape, kind, lanes)
    filled = iter(_dispatch(lowering, source, device or source.device))
    pieces = [
        allocation.packed(source, [shape])[0] if 0 in shape else next(filled).reshape(shape)
        for shape in lowering.output_shapes
    ]
    return allocation.same_kind(pieces, data)


def _dispatch(lowering: Lowering, source: ArrayView, device: Device | str) -> list[Any]:
    """Return the outputs that have elements, flat."""
    desc = lowering.descriptor
    if desc is None:
        return []
    target = device if isinstance(device, Device) else Device(device)
    legal = legalize(desc, target.feature_level)
    tensor = legal.input_tensor
    library, array = _packed(source)
    # NumPy, CuPy and torch name their types alike.
    own = getattr(library, tensor.data_type.name.lower())
    carrier = array.reshape(-1).view(own).reshape(tensor.sizes)
    return [out.reshape(-1).view(array.dtype) for out in target.compile(legal)(carrier)]


def _packed(source: ArrayView) -> tuple[Any, Any]:
    """Return the library of an array, and the array, copied where it is not contiguous."""
    owner: Any = source.owner
    if isinstance(owner, np.ndarray):
        owner = np.asarray(owner)
    name = type(owner).__module__.partition(".")[0]
    if name not in ("numpy", "cupy", "torch"):
        raise InvalidArgumentError(
            f"data is a {type(owner).__qualname__} on {source.device}; there it must be an array "
            "of CuPy or PyTorch. Fix: cupy.from_dlpack(data)"
        )
    if name == "torch":
        return sys.modules[name], owner.detach().contiguous()
    return sys.modules[name], owner if source.is_contiguous else owner.copy()


def _travels_as(source: ArrayView) -> tuple[TensorDataType, int]:
    """Return the DirectML type of an array's elements, and how many of it make one."""
    for kind, name in NUMPY_TYPES.items():
        if source.type[1:] == name:
            return kind, 1
    width = source.item_bytes
    if width in (1, 2, 4, 8):
        return TensorDataType.parse(f"UINT{8 * width}"), 1
    if width and width % 8 == 0:
        return TensorDataType.UINT64, width // 8
    raise InvalidArgumentError(
        f"data has type {source.type} of {width} bytes; "
        "it must be of 1, 2, 4 or a multiple of 8 bytes"
    )


def _on_the_host(data: np.ndarray, lower: Lower) -> list[Any]:
    # Strings are no bytes that a GPU could move.
    lowering = lower(data.shape, TensorDataType.UNKNOWN, 1)
    starts = np.cumsum(lowering.sizes)[:-1]
    if not lowering.sizes:
        return []
    return [piece.copy() for piece in np.split(data, starts, lowering.axis)]
