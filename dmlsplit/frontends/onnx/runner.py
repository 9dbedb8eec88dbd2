"""ONNX's Split and SplitToSequence, of every version, on arrays."""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from dmlsplit.arrays import array_view
from dmlsplit.checks import integer
from dmlsplit.device import CompiledOperator, Device
from dmlsplit.directml.legalization import legalize
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.onnx.arguments import (
    Arguments,
    read_arguments,
    refuse,
)
from dmlsplit.frontends.onnx.lowering import Lowering, lower
from dmlsplit.frontends.onnx.operators import ElementType, operator_version


def split(
    x: Any,
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int | None = None,
    opset: int = 18,
    device: Device | str | None = None,
) -> list[Any]:
    """Run ONNX's Split on an array.

    Parameters
    ----------
    x
        An array of NumPy, CuPy or PyTorch, of a type that the operator version takes:
        booleans, bfloat16, complex and strings included.
    split
        Size of each piece along the axis. A NumPy array must have the type that the
        operator version wants: int64, or a floating type for Split-1.
    axis
        The dimension to split; a negative one counts from the end.
    num_outputs
        Since opset 18: so many pieces of ``ceil(d / num_outputs)``, the last one smaller.
    output_count
        How many outputs the node has; needed where neither `split` nor `num_outputs` is given.
    opset
        The opset of the model: 18 means Split-18, 17 means Split-13, and so on.
    device
        A `Device` or its name; None means where the array is.

    Returns
    -------
    list
        The pieces, of the same library as `x`.

    Raises
    ------
    InvalidArgumentError
        If an argument breaks a rule of the operator version.

    Examples
    --------
    >>> import numpy as np
    >>> split(np.arange(7), num_outputs=4)
    [array([0, 1]), array([2, 3]), array([4, 5]), array([6])]
    """
    arguments = read_arguments(
        operator_version("Split", _opset("Split", opset)),
        axis=axis,
        split=split,
        num_outputs=num_outputs,
        output_count=output_count,
    )
    return run(arguments, x, device)


def split_to_sequence(
    x: Any,
    split: Any = None,
    *,
    axis: int = 0,
    keepdims: int = 1,
    opset: int = 11,
    device: Device | str | None = None,
) -> list[Any]:
    """Run ONNX's SplitToSequence on an array.

    Parameters
    ----------
    x
        As for `split`.
    split
        An integer is the size of every piece, with a smaller last one; a list is the size of
        each piece; None means pieces of size 1.
    axis
        The dimension to split; a negative one counts from the end.
    keepdims
        0 drops the axis from the pieces. ONNX ignores it where `split` is given.
    opset
        11 to 23 means SplitToSequence-11; from 24, bfloat16 is allowed.
    device
        A `Device` or its name; None means where the array is.

    Returns
    -------
    list
        The sequence; may be empty.

    Raises
    ------
    InvalidArgumentError
        If an argument breaks a rule of the operator version.
    """
    arguments = read_arguments(
        operator_version("SplitToSequence", _opset("SplitToSequence", opset)),
        axis=axis,
        split=split,
        keepdims=keepdims,
    )
    return run(arguments, x, device)


def run(arguments: Arguments, x: Any, device: Device | str | None = None) -> list[Any]:
    """Lower checked arguments for an array, dispatch, and hand the pieces back.

    A choice that the operator's text leaves open is announced as a `UserWarning`.
    """
    if isinstance(x, np.ndarray):
        x = np.asarray(x)  # Subclasses, such as memmap, are arrays as well.
    if type(x).__module__.partition(".")[0] not in ("numpy", "cupy", "torch"):
        allowed = "it must be an array of NumPy, CuPy or PyTorch"
        refuse(arguments.operator, f"the input is a {type(x).__name__}", allowed)
    kind = ElementType.of_dtype(x.dtype)
    if kind is ElementType.UNDEFINED:
        fix = "bytes in native order" if str(x.dtype)[:1] in "<>" else ""
        found = f"the input has data type {x.dtype}"
        refuse(arguments.operator, found, "ONNX has no such type", fix)
    bits = x if kind is ElementType.STRING else _packed(x)
    where = device if isinstance(device, Device) else _device(device, bits, kind)
    lowering, compiled = _compiled(where, arguments, kind, tuple(x.shape))
    for message in lowering.assumed:
        warnings.warn(message, stacklevel=3)
    if compiled is None:
        return _on_host(lowering, x)
    tensor = compiled.desc.input_tensor
    filled = iter(compiled(_reinterpreted(bits, tensor.data_type, tensor.sizes)))
    return [
        _empty(lowering, x, shape) if 0 in shape else _reinterpreted(next(filled), x.dtype, shape)
        for shape in lowering.output_shapes
    ]


def _device(device: str | None, bits: Any, kind: ElementType) -> Device:
    if device is None and kind is ElementType.STRING:
        device = "cpu"
    elif device is None:
        raw = _reinterpreted(bits, TensorDataType.UINT8, (-1,))
        device = array_view.view(raw, "the input").device
    return Device(device)


@lru_cache(maxsize=128)
def _compiled(
    device: Device, arguments: Arguments, kind: ElementType, shape: tuple[int, ...]
) -> tuple[Lowering, CompiledOperator | None]:
    """Lower and compile once for all arrays of a shape; None if there is nothing to dispatch."""
    lowering = lower(arguments, kind, shape)
    if lowering.descriptor is None:
        return lowering, None
    return lowering, device.compile(legalize(lowering.descriptor, device.feature_level))


def _packed(x: Any) -> Any:
    if hasattr(x, "contiguous"):  # PyTorch, which conjugates and negates lazily.
        return x.resolve_conj().resolve_neg().contiguous()
    return x if x.flags.c_contiguous else x.copy()


def _reinterpreted(x: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return the bytes of a packed array as another type and shape, without a copy."""
    if isinstance(dtype, TensorDataType):
        library = sys.modules[type(x).__module__.partition(".")[0]]
        dtype = getattr(library, dtype.name.lower())  # numpy.uint8, cupy.uint8, torch.uint8
    return x.reshape(-1).view(dtype).reshape(shape)


def _on_host(lowering: Lowering, x: Any) -> list[Any]:
    """Split without a dispatch: strings, or nothing but empty pieces."""
    ends = list(accumulate(lowering.sizes))
    before = (slice(None),) * lowering.axis
    rows = zip(ends, lowering.sizes, lowering.output_shapes, strict=True)
    return [_own(x[(*before, slice(end - size, end))]).reshape(shape) for end, size, shape in rows]


def _empty(lowering: Lowering, x: Any, shape: tuple[int, ...]) -> Any:
    return _own(x[(*(slice(None),) * lowering.axis, slice(0, 0))]).reshape(shape)


def _own(x: Any) -> Any:
    return x.clone() if hasattr(x, "clone") else x.copy()  # PyTorch's name, and NumPy's


def _opset(operator: str, opset: Any) -> int:
    try:
        return integer("opset", opset)
    except TypeError as error:
        raise InvalidArgumentError(f"{operator}: {error}") from None
