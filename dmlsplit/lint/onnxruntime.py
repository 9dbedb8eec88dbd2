"""What ONNX Runtime's DirectML provider makes of a split.

Source: microsoft/onnxruntime, docs/OperatorKernels.md (operators and types) and
core/providers/dml: OperatorRegistration.cpp, DmlOperatorSplit.cpp, dml_provider_factory.cc.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Rule, Violation
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.frontends import SplitSite

# DMLCreateDevice1 is called with this minimum; without it no session starts.
MINIMUM_LEVEL = FeatureLevel.LEVEL_5_0
# Lower ranks are padded on the left to NchwDimensionCount; DirectML ends at 8.
LEAST_DIMENSIONS, MOST_DIMENSIONS = 4, 8
OPERATORS = ("Split-2", "Split-11", "Split-13", "Split-18")
ELEMENT_TYPES = frozenset({"BOOL", "DOUBLE", "FLOAT", "FLOAT16"}) | {
    f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)
}

_KERNELS = "https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md"
_PROVIDER = "https://github.com/microsoft/onnxruntime/tree/main/onnxruntime/core/providers/dml"

RULES = {
    rule.id: rule
    for rule in (
        Rule(
            "ORT-FEATURE-LEVEL",
            "ONNX Runtime's DirectML provider creates its device with feature level 5_0 or above.",
            "documented",
            _PROVIDER,
            "ship DirectML.dll 1.8.0 or later beside the application",
        ),
        Rule(
            "ORT-OPERATOR",
            "The DirectML provider has a kernel for this version of the operator.",
            "documented",
            _KERNELS,
            "export the model at opset 13 or later. As it is, the node runs on the CPU",
        ),
        Rule(
            "ORT-SEQUENCE",
            "The DirectML provider has no SplitToSequence.",
            "documented",
            _KERNELS,
            "use Split and SequenceConstruct, as --write-fixed does where the sizes are known. As"
            " it is, the node runs on the CPU",
        ),
        Rule(
            "ORT-DATA-TYPE",
            "The DirectML provider's Split takes the element type.",
            "documented",
            _KERNELS,
            "cast the tensor to a listed type around the split. As it is, the node runs on the CPU",
        ),
        Rule(
            "ORT-DIMENSION-COUNT",
            "A tensor of the DirectML provider has at most 8 dimensions.",
            "documented",
            _PROVIDER,
            "reshape around the split: merge the dimensions before the axis, and those behind it",
        ),
        Rule(
            "ORT-EMPTY-PIECE",
            "No piece is empty: by its source, the provider skips a node with an empty output"
            " whole and leaves the other outputs unwritten, without an error.",
            "policy",
            _PROVIDER,
            "leave the empty pieces out of the node and make them constants",
        ),
    )
}


def lowered(desc: SplitOperatorDesc) -> SplitOperatorDesc:
    """Return the descriptor that the provider makes: padded on the left to 4 dimensions."""
    ones = (1,) * max(0, LEAST_DIMENSIONS - desc.input_tensor.dimension_count)
    if not ones:
        return desc
    source, *targets = (
        TensorDesc(tensor.data_type, (*ones, *tensor.sizes))
        for tensor in (desc.input_tensor, *desc.output_tensors)
    )
    return SplitOperatorDesc(source, targets, desc.axis + len(ones))


def violations(site: SplitSite, level: FeatureLevel) -> Iterator[Violation]:
    """Yield what the provider refuses, besides what DirectML itself refuses."""
    if level < MINIMUM_LEVEL:
        yield _broken("ORT-FEATURE-LEVEL", "", "FeatureLevel", level, f"at least {MINIMUM_LEVEL}")
    if site.operator not in OPERATORS:
        rule = "ORT-SEQUENCE" if site.operator.startswith("SplitTo") else "ORT-OPERATOR"
        allowed = f"one of {', '.join(OPERATORS)}"
        yield _broken(rule, "", "OperatorType", site.operator, allowed)
    if site.element_type and site.element_type not in ELEMENT_TYPES:
        allowed = f"one of {', '.join(sorted(ELEMENT_TYPES))}"
        yield _broken("ORT-DATA-TYPE", "InputTensor", "DataType", site.element_type, allowed)
    count = len(site.shape)
    if count > MOST_DIMENSIONS:
        allowed = f"at most {MOST_DIMENSIONS}"
        yield _broken("ORT-DIMENSION-COUNT", "InputTensor", "DimensionCount", count, allowed)
    if site.descriptors:
        for index, size in enumerate(site.pieces):
            if size == 0:
                yield _broken("ORT-EMPTY-PIECE", f"OutputTensors[{index}]", "Sizes", 0, "above 0")


def _broken(rule: str, tensor: str, field: str, found: object, allowed: object) -> Violation:
    return Violation(RULES[rule], tensor, field, str(found), str(allowed))
