"""Compares two small ONNX models, each with one input, on the same random inputs.

`sandbox` runs this in a process with limits. If both models give the same bits in all outputs,
the nodes of one can replace those of the other.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from dmlsplit.errors import one_line
from dmlsplit.lint.fix.evaluators import RUNTIMES, Run, Runtime

Shape = Sequence[int]


class Pair(NamedTuple):
    """Two models to be compared."""

    original: bytes
    replacement: bytes
    data_type: int  # TensorProto.DataType of the input
    # The shapes of the inputs to compare on. In each, the dynamic dimensions have other sizes.
    shapes: Sequence[Shape]
    # The names of the runtimes in which the models may be compared, the best first.
    runtimes: Sequence[str] = tuple(RUNTIMES)


class Comparison(NamedTuple):
    """How two models compare: each shape of the pair is in one of the four lists.

    Attributes
    ----------
    runtime : str
        The name and version of the runtime.
    equal, different : sequence of Shape
        The shapes at which both models run, and give the same outputs or other ones.
    failed : sequence of Shape
        The shapes at which only the original runs.
    unsupported : sequence of Shape
        The shapes at which the original does not run.
    error : str
        The last error of the runtime; empty without one.
    """

    runtime: str = ""
    equal: Sequence[Shape] = ()
    different: Sequence[Shape] = ()
    failed: Sequence[Shape] = ()
    unsupported: Sequence[Shape] = ()
    error: str = ""


def compare(pair: Pair) -> Comparison:
    """The comparison in the first runtime that runs the original at any of the shapes."""
    result = Comparison(unsupported=pair.shapes, error="ONNX Runtime is not installed")
    for name in pair.runtimes:
        runtime = RUNTIMES[name]()
        if runtime is not None:
            result = _comparison_in(runtime, pair)
            if len(result.unsupported) < len(pair.shapes):
                break
    return result


def _comparison_in(runtime: Runtime, pair: Pair) -> Comparison:
    """The comparison of two models in one runtime."""
    shapes: dict[str, list[Shape]] = {
        result: [] for result in ("equal", "different", "failed", "unsupported")
    }
    original, error = _loaded_model(runtime, pair.original)
    replacement, replacement_error = _loaded_model(runtime, pair.replacement)
    for number, shape in enumerate(pair.shapes):
        x = random_input(pair.data_type, shape, number)
        expected, error = _model_outputs(original, x, error)
        outputs, replacement_error = _model_outputs(replacement, x, replacement_error)
        if expected is None:
            result = "unsupported"
        elif outputs is None:
            result = "failed"
            error = replacement_error
        else:
            result = "equal" if _bits(expected) == _bits(outputs) else "different"
        shapes[result].append(shape)
    return Comparison(runtime.name, **shapes, error=error)


def _loaded_model(runtime: Runtime, model: bytes) -> tuple[Run | None, str]:
    """A loaded model, or why it does not load."""
    try:
        return runtime.load(model), ""
    except Exception as error:  # runtimes raise errors of many types
        return None, one_line(error)[:300]


def _model_outputs(run: Run | None, x: np.ndarray, error: str) -> tuple[list[Any] | None, str]:
    """The outputs, or None; and the last error, which is `error` unless there is another."""
    if run is None:
        return None, error
    try:
        return run(x), error
    except Exception as failure:  # runtimes raise errors of many types
        return None, one_line(failure)[:300]


def random_input(data_type: int, shape: Shape, seed: int) -> np.ndarray:
    """Random bytes, so that integers span their range; no operator rounds a float."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(data_type))
    high = 2 if dtype == np.bool_ else 256
    data = np.random.default_rng(seed).integers(0, high, prod(shape) * dtype.itemsize, np.uint8)
    return data.view(dtype).reshape(shape)


def _bits(value: Any) -> Any:
    """Type, shape and bytes of an array, or of each array of a sequence."""
    if isinstance(value, (list, tuple)):
        return list(map(_bits, value))
    array = np.asarray(value)
    return array.dtype, array.shape, array.tobytes()
