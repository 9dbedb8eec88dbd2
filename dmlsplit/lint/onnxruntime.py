"""What ONNX Runtime's DirectML provider does with a split: takes it, or leaves it to the CPU.

Source: microsoft/onnxruntime, docs/OperatorKernels.md (operators and types) and
core/providers/dml: OperatorRegistration.cpp, DmlOperatorSplit.cpp; what differs between releases is
in runtimes.yaml.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.lint.advice_texts import Advice
from dmlsplit.lint.loading import WITHOUT_KERNEL, conversion
from dmlsplit.lint.rules import make_violation
from dmlsplit.lint.runtimes import Release, runtime_table
from dmlsplit.lint.target import Runtime, Target
from dmlsplit.messages import Fix
from dmlsplit.models.onnx.operators import element_bytes
from dmlsplit.models.site import Known, ProviderRemark, SplitSite, Unknown

# Lower ranks are padded on the left to NchwDimensionCount.
MIN_DIMENSIONS = 4
# The types of every known provider. Windows ML's documents do not list those of other providers.
_SURE_TYPES = frozenset({"FLOAT", "FLOAT16"})
# The rules about names of inputs and outputs.
_NAMES = {"ORT-OUTPUT-NAME", "ORT-INPUT-NAME"}


@lru_cache(maxsize=4096)
def provider_descriptor(desc: SplitOperatorDesc) -> SplitOperatorDesc:
    """The descriptor that the provider makes: padded on the left to 4 dimensions."""
    x = desc.input_tensor
    ones = (1,) * max(0, MIN_DIMENSIONS - x.dimension_count)
    if not ones:
        return desc
    padded = TensorDesc(x.data_type, (*ones, *x.sizes))
    return SplitOperatorDesc.from_sizes(padded, axis=desc.axis + len(ones), sizes=desc.split_sizes)


def cpu_violations(site: SplitSite, target: Target) -> Iterator[Violation]:
    """Why the provider leaves a split to the CPU, and what goes wrong there."""
    reasons = [*_operator_reasons(site, target), *_type_reasons(site, target)]
    is_shape = site.is_shape and site.element_type != "FLOAT16"
    provider = target.runtime and target.runtime.provider
    if not reasons and is_shape and provider and provider.cpu_shapes.value:
        reasons.append(make_violation("ORT-SHAPE", text="it splits the shape of a value"))
    if reasons:  # where it fails, it does not matter that it would run on the CPU
        yield from list(cpu_faults(site, target)) or reasons


def provider_violations(site: SplitSite, target: Target) -> Iterator[Violation]:
    """The provider's rules that a split breaks which it takes; DirectML's own are checked apart."""
    assert target.runtime is not None
    yield from _rank_violations(site, target.runtime)
    match site.state:
        case Known(pieces=pieces) | Unknown(pieces=pieces) if pieces and any(pieces):
            yield from empty_pieces(pieces)
    yield from _neighbour_violations(site, target.runtime)


def _rank_violations(site: SplitSite, runtime: Runtime) -> Iterator[Violation]:
    """The violation of the greatest rank of the provider.

    It is of the node: the descriptor may have fewer dimensions, because some are merged.
    """
    count = len(site.shape or ())
    limit = runtime.assumed_provider.maximum_rank.value
    if count <= limit:
        return
    allowed = f"at most {limit}"
    yield make_violation(
        "ORT-DIMENSION-COUNT",
        "InputTensor",
        field="DimensionCount",
        found=str(count),
        allowed=allowed,
        text=f"the input of the node has {count} dimensions; the provider supports {allowed}",
        fix=_advice_of_first_release(lambda release: release.provider.maximum_rank.value >= count),
    )


def empty_pieces(pieces: Iterable[int]) -> Iterator[Violation]:
    """A violation for each empty piece."""
    for index, size in enumerate(pieces):
        if size == 0:
            # The descriptor leaves empty pieces out, so its outputs have other indices.
            text = (
                f"output {index} of the node is empty. According to its source code, the provider "
                "then writes no output at all, without an error"
            )
            yield make_violation(
                "ORT-EMPTY-PIECE",
                f"OutputTensors[{index}]",
                field="Sizes",
                found="0",
                allowed="above 0",
                text=text,
            )


def _neighbour_violations(site: SplitSite, runtime: Runtime) -> Iterator[Violation]:
    """The warning about neighbours of a split that the provider leaves to the CPU."""
    leave_at = runtime.provider.neighbours_leave_at.value if runtime.provider else None
    if not site.neighbours or not leave_at or site.opset < leave_at:
        return
    names = " and ".join(site.neighbours)
    text = (
        f"{names} next to it {'run' if len(site.neighbours) > 1 else 'runs'} on the CPU in a "
        f"model of opset {site.opset}, so {_bytes_text(site)} cross between GPU and CPU"
    )
    yield make_violation("ORT-NEIGHBOURS", text=text)


def _operator_reasons(site: SplitSite, target: Target) -> Iterator[Violation]:
    """Why the provider does not take this operator or this version of it, or may not."""
    assert target.runtime is not None
    reasons = _sequence_reasons if site.makes_sequence else _version_reasons
    yield from reasons(site, target.runtime)


def _sequence_reasons(site: SplitSite, runtime: Runtime) -> Iterator[Violation]:
    """Why the provider does not take a SplitToSequence, or may not."""
    if runtime.provider is None:
        text = f"no source says whether {runtime.name} runs sequences"
        yield make_violation("ORT-NOT-KNOWN", text=text)
    elif runtime.provider.cpu_sequences.value:
        text = f"the provider has no {site.operator}"
        yield make_violation("ORT-SEQUENCE", field="OperatorType", found=site.operator, text=text)
    else:
        text = f"{runtime.name} does not run sequences with DirectML"
        fix = _advice_of_first_release(lambda release: release.provider.cpu_sequences.value)
        yield make_violation("ORT-SEQUENCE", text=text, effect="run", fix=fix)


def _version_reasons(site: SplitSite, runtime: Runtime) -> Iterator[Violation]:
    """Why the provider does not take this version of Split."""
    served = runtime.assumed_provider.split_versions.value
    since = int(site.operator.rpartition("-")[2])
    if since in served:
        return
    names = ", ".join(f"Split-{number}" for number in served)
    text = f"{runtime.name} has no DirectML kernel for {site.operator}, only for {names}"
    first = _advice_of_first_release(lambda release: since in release.provider.split_versions.value)
    newest = 13 if site.operator == WITHOUT_KERNEL else since - 1
    command = conversion(site.file, site.opset, newest)
    yield make_violation(
        "ORT-OPERATOR",
        field="OperatorType",
        found=site.operator,
        allowed=f"one of {names}",
        text=text,
        fix=Fix.joined("; or ", filter(None, (first, command))),
        effect="load" if site.operator == WITHOUT_KERNEL else None,
    )


def _type_reasons(site: SplitSite, target: Target) -> Iterator[Violation]:
    """Why the provider does not take the type of a split, or may not."""
    assert target.runtime is not None
    element_type = site.element_type
    provider = target.runtime.provider
    yield from text_faults(site)
    if element_type in (None, "STRING") or site.makes_sequence:
        return
    if provider is None:
        if element_type not in _SURE_TYPES:
            name = target.runtime.name
            text = f"no source says whether {name} runs {element_type} on DirectML"
            yield make_violation("ORT-NOT-KNOWN", text=text)
    elif element_type not in (types := provider.element_types.value):
        yield make_violation(
            "ORT-DATA-TYPE",
            "InputTensor",
            field="DataType",
            found=element_type,
            allowed=f"one of {', '.join(sorted(types))}",
            fix=_advice_of_first_release(
                lambda release: element_type in release.provider.element_types.value
            ),
        )


def text_faults(site: SplitSite) -> tuple[Violation, ...]:
    """The violation of a split of strings, which DirectML lacks."""
    if site.element_type != "STRING":
        return ()
    text = "InputTensor.DataType is STRING; DirectML has no strings"
    return (make_violation("SPLIT-NODE-TEXT", text=text),)


def cpu_faults(site: SplitSite, target: Target) -> Iterator[Violation]:
    """What goes wrong on the CPU."""
    provider = target.runtime and target.runtime.provider
    state = site.state
    if provider is None or not isinstance(state, Known | Unknown):
        return
    pieces = state.pieces or ()
    element_type = site.element_type
    names = {"ORT-OUTPUT-NAME"} if provider.cpu_unnamed_split.value else _NAMES
    for remark in site.warnings:
        if isinstance(remark, ProviderRemark) and remark.rule in names:
            yield make_violation(remark.rule, text=remark.fault)
    if site.makes_sequence:
        types = provider.sequence_types.value
        if element_type is not None and element_type not in types:
            yield make_violation(
                "ORT-SEQUENCE-TYPE",
                "InputTensor",
                field="DataType",
                found=element_type,
                allowed=f"one of {', '.join(sorted(types))}",
            )
        other_sizes = [size for size in pieces if size != 1]
        if site.keeps_axis is None and other_sizes:
            text = (
                "keepdims is 0 with a scalar split, so every piece must have size 1; one has size "
                f"{other_sizes[0]}"
            )
            yield make_violation("ORT-KEEPDIMS", text=text)
    elif site.sized_by == "num_outputs" and 0 in pieces and not provider.cpu_empty_last.value:
        text = (
            f"output {pieces.index(0)} is empty; ONNX Runtime's CPU kernel refuses an empty output "
            "if num_outputs is given"
        )
        yield make_violation("ORT-EMPTY-LAST", text=text)


def _bytes_text(site: SplitSite) -> str:
    """The bytes of the input, in words."""
    count = element_bytes(site.element_type)
    if count is None or not site.shape:
        return "its tensors"
    names = []
    for size in site.shape:
        if isinstance(size, int):
            count *= size
        else:
            names.append(str(size or "?"))
    return " * ".join([f"{count:,}", *names]) + " bytes"


def _advice_of_first_release(holds: Callable[[Release], bool]) -> str:
    """The advice to use the first release for which something holds; empty without one."""
    packaged = [row for row in runtime_table().onnxruntime if row.has_package]
    return next(
        (Advice.USE_NEWER_RUNTIME.format(release=row) for row in packaged if holds(row)), ""
    )
