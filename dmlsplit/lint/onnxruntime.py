"""The splits that ONNX Runtime's DirectML provider refuses, and the descriptors it makes.

Source: microsoft/onnxruntime, docs/OperatorKernels.md (operators and types) and
core/providers/dml: OperatorRegistration.cpp, DmlOperatorSplit.cpp, dml_provider_factory.cc.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.lint.rules import make_defect, make_violation
from dmlsplit.lint.target import Target
from dmlsplit.models.site import (
    Invalid,
    Known,
    SplitSite,
    Unknown,
)

# The provider passes this minimum to DMLCreateDevice1; a lower level fails the session.
MIN_LEVEL = FeatureLevel.LEVEL_5_0
# Lower ranks are padded on the left to NchwDimensionCount; DirectML takes at most 8.
MIN_DIMENSIONS, MAX_DIMENSIONS = 4, 8
# onnxruntime issue 14523: before 1.16, a Split-18 with num_outputs ran on the CPU. In the DLL of
# onnxruntime-directml, VersionedKernel<DmlOperatorSplit, 18> is new in 1.16.0 (1.15.1 lacks it).
FIRST_WITH_NUM_OUTPUTS = (1, 16)
# microsoft/DirectML, Releases.md, 1.9.1: "Fix bug with unconnected split nodes".
FIRST_WITH_UNCONNECTED = (1, 9, 1)
# The fix of a Split-18 with neither split nor num_outputs, for those versions.
SIZES = "give the sizes as split"
OPERATORS = ("Split-2", "Split-11", "Split-13", "Split-18")
ELEMENT_TYPES = frozenset({"BOOL", "DOUBLE", "FLOAT", "FLOAT16"}) | {
    f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)
}

# Seen with 1.32: "MLDataType for: tensor(complex64) is not currently registered or supported".
_REAL_TENSORS = (
    "store the real and the imaginary parts as real tensors; ONNX Runtime does not load a model "
    "with complex ones"
)


@lru_cache(maxsize=4096)
def provider_descriptor(desc: SplitOperatorDesc) -> SplitOperatorDesc:
    """The descriptor that the provider makes: padded on the left to 4 dimensions."""
    x = desc.input_tensor
    ones = (1,) * max(0, MIN_DIMENSIONS - x.dimension_count)
    if not ones:
        return desc
    padded = TensorDesc(x.data_type, (*ones, *x.sizes))
    return SplitOperatorDesc.from_sizes(padded, axis=desc.axis + len(ones), sizes=desc.split_sizes)


def takes_num_outputs(target: Target) -> bool:
    """Whether the provider has a kernel for a Split-18 with num_outputs."""
    return target.ort_version is None or target.ort_version >= FIRST_WITH_NUM_OUTPUTS


def target_violations(target: Target) -> Iterator[Violation]:
    """The provider's rule that the target itself breaks, for any model."""
    if target.via == "ort" and target.level < MIN_LEVEL:
        allowed = f"at least {MIN_LEVEL}"
        yield make_violation("ORT-FEATURE-LEVEL", "", "FeatureLevel", str(target.level), allowed)


def violations(site: SplitSite, target: Target) -> Iterator[Violation]:
    """The provider's rules that a split breaks; DirectML's own are checked elsewhere."""
    yield from target_violations(target)
    yield from _operator_violations(site, target)
    yield from _type_violations(site.element_type)
    count = len(site.shape or ())
    if count > MAX_DIMENSIONS:
        # The descriptor may have fewer, because dimensions are merged.
        allowed = f"at most {MAX_DIMENSIONS}"
        text = f"the input of the node has {count} dimensions; the provider supports {allowed}"
        fields = "InputTensor", "DimensionCount", str(count), allowed
        yield make_violation("ORT-DIMENSION-COUNT", *fields, text=text)
    match site.state:
        case Known(pieces=pieces) | Unknown(pieces=pieces) if pieces and any(pieces):
            yield from empty_pieces(pieces)
    if site.unused_outputs and target.directml and target.directml < FIRST_WITH_UNCONNECTED:
        yield make_defect("SPLIT-DEFECT-UNCONNECTED", f"output {site.unused_outputs[0]} is unused")


def empty_pieces(pieces: Iterable[int]) -> Iterator[Violation]:
    """A violation for each empty piece."""
    for index, size in enumerate(pieces):
        if size == 0:
            # The descriptor leaves empty pieces out, so its outputs have other indices.
            text = (
                f"output {index} of the node is empty; the provider then appears to skip the whole "
                "node and to leave its other outputs unwritten"
            )
            tensor = f"OutputTensors[{index}]"
            yield make_violation("ORT-EMPTY-PIECE", tensor, "Sizes", "0", "above 0", text=text)


def is_complex(element_type: str | None) -> bool:
    """Whether an element type is one of complex numbers."""
    return element_type is not None and element_type.startswith("COMPLEX")


def _type_violations(element_type: str | None) -> Iterator[Violation]:
    # SPLIT-NODE-TEXT is about strings.
    if element_type is None or element_type in ELEMENT_TYPES or element_type == "STRING":
        return
    allowed = f"one of {', '.join(sorted(ELEMENT_TYPES))}"
    refusal = make_violation("ORT-DATA-TYPE", "InputTensor", "DataType", element_type, allowed)
    yield replace(refusal, fix=_REAL_TENSORS) if is_complex(element_type) else refusal


def _operator_violations(site: SplitSite, target: Target) -> Iterator[Violation]:
    if site.operator not in OPERATORS:
        rule = "ORT-SEQUENCE" if site.operator.startswith("SplitTo") else "ORT-OPERATOR"
        allowed = f"one of {', '.join(OPERATORS)}"
        yield make_violation(rule, "", "OperatorType", site.operator, allowed)
    if site.operator != "Split-18":
        return
    is_unsized = site.sized_by == "outputs" and not isinstance(site.state, Invalid)
    axis_size = site.shape[site.axis] if site.shape and site.axis is not None else None
    if is_unsized and isinstance(axis_size, int):
        fault = "num_outputs", "absent", "set if split is absent"
        fix = "" if takes_num_outputs(target) else SIZES
        yield replace(make_violation("ORT-NUM-OUTPUTS", "", *fault), fix=fix)
    if site.sized_by == "num_outputs" and not takes_num_outputs(target):
        own = "{}.{}".format(*(target.ort_version or ()))
        allowed = "at least {}.{}".format(*FIRST_WITH_NUM_OUTPUTS)
        yield make_violation("ORT-VERSION", "", "ONNX Runtime version", own, allowed)
