"""Gated linear units: two pieces of one split, one of them activated, that Mul combines again.

DirectML miscomputes them in some graphs that ONNX Runtime fuses: onnxruntime issues 21007, 24311
and 32146. No report is about other forms, such as the gates of an LSTM, RoPE or QKV.

ONNX Runtime's optimizers replace element-wise nodes by operators of their own, and can save such a
model. Source of those: microsoft/onnxruntime, docs/ContribOperators.md and docs/OperatorKernels.md.
"""

from collections.abc import Sequence, Set

from dmlsplit.models.limits import MAX_FOLLOWED_PIECES
from dmlsplit.models.onnx.protobuf import Node
from dmlsplit.models.onnx.shapes import ELEMENT_WISE
from dmlsplit.models.onnx.values import Piece, Pieces

# Operators that pass on the elements of the first input in the same order (Dropout in inference),
# with another shape or type.
_PASSED_ON = {"BitCast", "CastLike", "Dropout", "Flatten", "Reshape", "Squeeze", "Unsqueeze"}
# Activations, and the nodes by which exporters write them: Erf of Gelu, Exp of Sigmoid.
_ACTIVATIONS = set(
    "Celu Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Sigmoid Softplus "
    "Softsign Swish Tanh ThresholdedRelu".split()
)
_FUSED_ACTIVATIONS = {"BiasGelu", "FastGelu", "Gelu", "QuickGelu"}


def derived_pieces(node: Node, inputs: Sequence[Pieces]) -> tuple[Pieces, Set[int]]:
    """The pieces that a node's outputs derive from, and the splits whose gated pieces it combines.

    `inputs` has the pieces from which each input derives.
    """
    no_pieces = frozenset[Piece]()
    no_splits = frozenset[int]()
    standard_operator = "" if node.domain else node.op_type
    is_fused = node.domain == "com.microsoft" and node.op_type in _FUSED_ACTIVATIONS
    if standard_operator in _PASSED_ON:
        return (inputs[0] if inputs else no_pieces), no_splits
    if not is_fused and standard_operator not in ELEMENT_WISE:
        return no_pieces, no_splits
    if standard_operator == "Mul" and (splits := gated_splits(inputs)):
        return no_pieces, splits
    derived = frozenset[Piece]().union(*inputs)
    if len(derived) > MAX_FOLLOWED_PIECES:
        return no_pieces, no_splits
    if is_fused or standard_operator in _ACTIVATIONS:
        derived = frozenset(piece._replace(is_activated=True) for piece in derived)
    return derived, no_splits


def gated_splits(inputs: Sequence[Pieces]) -> Set[int]:
    """The splits of which one input has an activated piece, and the other another piece."""
    if len(inputs) != 2:
        return frozenset()
    left, right = inputs
    return _gates(left, right) | _gates(right, left)


def _gates(gated: Pieces, others: Pieces) -> Set[int]:
    """The splits of which `gated` has an activated piece, and `others` has another piece."""
    return {
        piece.split
        for piece in gated
        if piece.is_activated
        and any(other.split == piece.split and other.output != piece.output for other in others)
    }
