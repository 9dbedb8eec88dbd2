"""ONNX's Split and SplitToSequence, of every version, on arrays and in model files."""

from typing import TYPE_CHECKING

from dmlsplit.frontends.lowering import Lowering
from dmlsplit.frontends.onnx.arguments import Arguments, Lengths, node_arguments, read_arguments
from dmlsplit.frontends.onnx.dimensions import FixedSizes
from dmlsplit.frontends.onnx.lowering import lower
from dmlsplit.frontends.onnx.operators import ElementType, OperatorVersion, operator_version
from dmlsplit.frontends.onnx.scanner import scan
from dmlsplit.frontends.public import lazy_getattr

if TYPE_CHECKING:
    from dmlsplit.frontends.onnx.runner import run, split, split_to_sequence

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
__getattr__ = lazy_getattr(__name__, {"runner": "run split split_to_sequence"})
