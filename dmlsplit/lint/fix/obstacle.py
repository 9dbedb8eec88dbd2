"""Why standard ONNX nodes cannot replace a refused split."""

from collections.abc import Iterable

from dmlsplit.directml.levels import FeatureLevel, capability_table
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.frontends import SplitSite

# ONNX's Cast extracts the low bits of an integer, and standard arithmetic the high ones.
IN_HALVES = frozenset({TensorDataType.INT64, TensorDataType.UINT64})


def rewriting_obstacle(site: SplitSite, errors: Iterable[Violation], level: FeatureLevel) -> str:
    """Why no rewriting of a split of an ONNX model is accepted; empty if one is."""
    broken = list(errors)
    for error in broken:
        if "model" not in error.rule.cured_by:
            return f"{error.rule.id}: {error.message}"
    if "()" in site.path:
        return "it is in the body of a function; inline the functions first (onnx.inliner)"
    if {each.rule.id for each in broken} == {"ORT-NUM-OUTPUTS"}:
        return ""
    if len(site.descriptors) != 1 or not site.pieces or not site.element_type:
        return "its sizes are known only when the model runs"
    if site.element_type.startswith("COMPLEX"):
        return "standard ONNX cannot reinterpret complex elements as another type"
    kind = site.descriptors[0].input_tensor.data_type
    if kind in capability_table()[level].input_tensor.data_types | IN_HALVES or kind.bits < 32:
        return ""
    return f"Cast would round {kind.name}, and no operator before BitCast-26 exposes its bits"
