"""Runs small ONNX models in ONNX Runtime, or in ONNX's reference evaluator.

A process of its own, `sandbox`, imports this module: ONNX Runtime's loader may end its process.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Run = Callable[[np.ndarray], list[Any]]


class Runtime(NamedTuple):
    """What runs models: its name and version, and how it loads a model with one input."""

    name: str
    load: Callable[[bytes], Run]


@cache
def _onnxruntime() -> Runtime | None:
    """ONNX Runtime, if it is installed."""
    try:
        import onnxruntime as ort
    except ImportError:
        return None

    def load(model: bytes) -> Run:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        # Each thread reserves address space, which is limited.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        (entry,) = session.get_inputs()
        return lambda x: list(session.run(None, {entry.name: x}))

    return Runtime(f"ONNX Runtime {ort.__version__}, CPU", load)


def _reference() -> Runtime:
    """ONNX's reference evaluator, which comes with the package onnx."""

    def load(model: bytes) -> Run:
        content = onnx.load_model_from_string(model)
        (entry,) = content.graph.input
        evaluator = ReferenceEvaluator(content)
        return lambda x: list(evaluator.run(None, {entry.name: x}))

    return Runtime(f"ONNX's reference evaluator {onnx.__version__}", load)


RUNTIMES: dict[str, Callable[[], Runtime | None]] = {
    "onnxruntime": _onnxruntime,
    "reference": _reference,
}
