"""ONNX's Split and SplitToSequence, of every version, on arrays."""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from dmlsplit.arrays import view
from dmlsplit.arrays.types import ArrayT
from dmlsplit.checks import instance
from dmlsplit.errors import prefix_errors
from dmlsplit.execution.device import Device
from dmlsplit.execution.lowered_split import has_strings, run_split
from dmlsplit.models.onnx.arguments import Arguments, read_arguments, refuse
from dmlsplit.models.onnx.lowering import lower
from dmlsplit.models.onnx.operators import ElementType, operator_version

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_NAME = "the input"  # in errors


def split(
    x: ArrayT,
    split: ArrayLike | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    output_count: int | None = None,
    opset: int = 18,
    device: Device | str | None = None,
) -> list[ArrayT]:
    """Run ONNX's Split on an array, by the specification of its version ("Split" on onnx.ai).

    Parameters
    ----------
    x : array
        An array of any library, of a type that the operator version accepts; this can be
        boolean or complex, in NumPy and PyTorch also bfloat16, and in NumPy strings.
    split : sequence of int or array, optional
        Size of each piece along the axis. An array must be int64, for Split-1 of the type of `x`.
    axis : int
        The dimension to split; a negative one counts from the end.
    num_outputs : int, optional
        Since opset 18: the number of pieces, each of ``ceil(d / num_outputs)`` but the last, which
        is what is left, down to nothing.
    output_count : int, optional
        Number of outputs of the node; required without `split` and `num_outputs`.
    opset : int
        The opset of the model: 18 means Split-18, 17 means Split-13, and so on.
    device : Device or str, optional
        A `dmlsplit.Device` or its name; None means the array's own device.

    Returns
    -------
    list of arrays
        The pieces, of the library, type and rank of `x`.

    Raises
    ------
    InvalidArgumentError
        If an argument breaks a rule of the operator version.

    See Also
    --------
    split_to_sequence : SplitToSequence.
    dmlsplit.split : Without the rules of ONNX.

    Examples
    --------
    >>> import numpy as np
    >>> split(np.arange(7), num_outputs=4)
    [array([0, 1]), array([2, 3]), array([4, 5]), array([6])]
    """
    arguments = read_arguments(
        operator_version("Split", opset),
        axis=axis,
        split=split,
        num_outputs=num_outputs,
        output_count=output_count,
    )
    return run(arguments, x, device)


def split_to_sequence(
    x: ArrayT,
    split: ArrayLike | None = None,
    *,
    axis: int = 0,
    keepdims: int = 1,
    opset: int = 11,
    device: Device | str | None = None,
) -> list[ArrayT]:
    """Run ONNX's SplitToSequence on an array.

    Parameters
    ----------
    x : array
        An array of any library, of a type that the operator version accepts.
    split : int, sequence of int or array, optional
        An integer is the size of every piece, except that the last may be smaller; a list has the
        size of each piece; None means pieces of size 1. An array must be int32 or int64.
    axis : int
        The dimension to split; a negative one counts from the end.
    keepdims : int
        0 drops the axis from the pieces. ONNX ignores it if `split` is given.
    opset : int
        11 to 23 means SplitToSequence-11; from 24, bfloat16 is allowed.
    device : Device or str, optional
        A `dmlsplit.Device` or its name; None means the array's own device.

    Returns
    -------
    list of arrays
        The sequence, of the library and type of `x`; may be empty.

    Raises
    ------
    InvalidArgumentError
        If an argument breaks a rule of the operator version.

    See Also
    --------
    split : Split.

    Examples
    --------
    >>> import numpy as np
    >>> split_to_sequence(np.arange(5), 2)
    [array([0, 1]), array([2, 3]), array([4])]
    """
    arguments = read_arguments(
        operator_version("SplitToSequence", opset), axis=axis, split=split, keepdims=keepdims
    )
    return run(arguments, x, device)


def run(arguments: Arguments, x: ArrayT, device: Device | str | None = None) -> list[ArrayT]:
    """Run a split with checked arguments on an array.

    A `UserWarning` announces each choice that the operator's specification leaves open.

    Parameters
    ----------
    arguments : Arguments
        What `read_arguments` has returned.
    x : array
        An array of any library, of a type that the operator version accepts.
    device : Device or str, optional
        A `dmlsplit.Device` or its name; None means the array's own device.

    Returns
    -------
    list of arrays
        The pieces, of the library and type of `x`.

    Raises
    ------
    InvalidArgumentError
        If the arguments do not fit `x`.

    See Also
    --------
    split : With arguments that are not checked yet.

    Examples
    --------
    >>> import numpy as np
    >>> from dmlsplit.frontends import onnx
    >>> arguments = onnx.read_arguments(onnx.operator_version("Split", 18), num_outputs=2)
    >>> onnx.run(arguments, np.arange(3))
    [array([0, 1]), array([2])]
    """
    array: Any = x
    operator = instance("arguments", arguments, Arguments).operator
    dtype = getattr(array, "dtype", None)
    element_type = ElementType.of_dtype(dtype)
    with prefix_errors(str(operator)):
        source = None if has_strings(array) else view(array, _NAME)
    if element_type is ElementType.UNDEFINED:
        swapped = str(dtype)[:1] in "<>"
        allowed = "that type in native byte order only" if swapped else "no such type"
        fix = "convert it to native byte order" if swapped else ""
        refuse(operator, f"{_NAME} has data type {dtype}", f"ONNX has {allowed}", fix)
    for message in arguments.assumed:
        warnings.warn(message, stacklevel=3)
    shape = array.shape if source is None else source.shape
    return run_split(lower, (arguments, element_type, shape), array, source, _NAME, device)
