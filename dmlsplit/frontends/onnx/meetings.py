"""Finds pieces of one split that meet again in an element-wise node, as in GLU.

DirectML is known to compute such graphs wrongly where they are fused; see the rule
SPLIT-DEFECT-MEET.
"""

from collections.abc import Sequence

# A split, by any number, and one of its outputs.
Piece = tuple[int, int]
Pieces = frozenset[Piece]

ELEMENT_WISE = frozenset(
    "Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos Div Elu Equal "
    "Erf Exp Floor Gelu Greater HardSigmoid HardSwish Identity LeakyRelu Less Log Max Mean Min "
    "Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softplus "
    "Softsign Sqrt Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu Where Xor".split()
)
# Values that derive from more pieces than this are not followed any further.
_MOST_PIECES = 64


def met(inputs: Sequence[Pieces]) -> set[int]:
    """Return the splits of which different pieces come in by different inputs."""
    # Pieces of one split that came by one input would have met before.
    first: dict[int, int] = {}
    return {split for pieces in inputs for split, at in pieces if first.setdefault(split, at) != at}


def passed_on(inputs: Sequence[Pieces]) -> Pieces:
    """Return the pieces that an element-wise node's output derives from, if they do not meet."""
    pieces = frozenset().union(*inputs)
    return pieces if len(pieces) <= _MOST_PIECES else frozenset()
