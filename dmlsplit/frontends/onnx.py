"""ONNX's Split and SplitToSequence, of every version, on arrays and in model files."""

from typing import TYPE_CHECKING

from dmlsplit.frontends.public import lazy_getattr
from dmlsplit.models.lowering import Lowering
from dmlsplit.models.onnx.arguments import (
    Arguments,
    Lengths,
    node_arguments,
    read_arguments,
)
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.lowering import lower
from dmlsplit.models.onnx.operators import ElementType, OperatorVersion, operator_version
from dmlsplit.models.onnx.scanner import scan

if TYPE_CHECKING:
    from dmlsplit.execution.onnx import run, split, split_to_sequence

__all__ = [
    "Arguments",
    "ElementType",
    "FixedSizes",
    "Lengths",
    "Lowering",
    "OperatorVersion",
    "lower",
    "node_arguments",
    "operator_version",
    "read_arguments",
    "run",
    "scan",
    "split",
    "split_to_sequence",
]
__getattr__ = lazy_getattr(__name__, {"execution.onnx": "run split split_to_sequence"})
