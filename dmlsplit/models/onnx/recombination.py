"""Pieces of splits that nodes combine again, as in GLU: a known defect of DirectML.

ONNX Runtime's optimizers replace element-wise nodes by operators of their own, and can save such a
model. Source of those: microsoft/onnxruntime, docs/ContribOperators.md and docs/OperatorKernels.md.
"""

from collections.abc import Sequence, Set
from itertools import chain

from dmlsplit.models.onnx.protobuf import Node
from dmlsplit.models.onnx.shapes import ELEMENT_WISE
from dmlsplit.models.onnx.values import Pieces

# Values that derive from more pieces are not followed any further.
_MAX_PIECES = 64
# Operators that pass on the elements of the first input in the same order (Dropout in inference),
# with another shape or type.
_PASSED_ON = {"BitCast", "CastLike", "Dropout", "Flatten", "Reshape", "Squeeze", "Unsqueeze"}
# Made of Add, Div, Erf, Mul, Pow, Sigmoid and Tanh.
_FUSED = {
    "com.microsoft": {"BiasAdd", "BiasGelu", "FastGelu", "Gelu", "QuickGelu"},
    "com.microsoft.dml": {"DmlFusedAdd", "DmlFusedSum"},  # and an activation
}
# These add their inputs, then normalize: their outputs do not derive from pieces.
_ADDING = {"BiasSoftmax", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}


def followed(node: Node, inputs: Sequence[Pieces]) -> tuple[Pieces, Set[int]]:
    """The pieces that a node's outputs derive from, and the splits of which it combines pieces.

    `inputs` has the pieces from which each input derives.
    """
    if not node.domain and node.op_type in _PASSED_ON:
        return (inputs[0] if inputs else frozenset()), frozenset()
    is_fused = node.op_type in _FUSED.get(node.domain, ())
    is_adding = node.domain == "com.microsoft" and node.op_type in _ADDING
    if not (is_fused or is_adding or (not node.domain and node.op_type in ELEMENT_WISE)):
        return frozenset(), frozenset()
    splits = recombinations(inputs)
    derived = frozenset[tuple[int, int]]().union(*inputs)
    is_lost = is_adding or splits or len(derived) > _MAX_PIECES
    return (frozenset() if is_lost else derived), splits


def recombinations(inputs: Sequence[Pieces]) -> set[int]:
    """The splits of which a node combines two pieces, which are at different inputs, as in GLU.

    DirectML miscomputes some fused graphs of this form; see the rule SPLIT-DEFECT-RECOMBINED.
    """
    # Two pieces of one split at the same input were combined before, by another node.
    first: dict[int, int] = {}
    pieces = chain.from_iterable(inputs)
    return {split for split, output in pieces if first.setdefault(split, output) != output}
