"""Whether ONNX Runtime or Windows ML loads a model at all, whichever provider runs its splits."""

from collections.abc import Iterator

from dmlsplit.directml.rules.rule import Effect
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.advice_texts import Advice
from dmlsplit.lint.commands import python_command
from dmlsplit.lint.rules import make_violation
from dmlsplit.lint.runtimes import Cell, runtime_table, version_text
from dmlsplit.lint.target import Runtime, Target
from dmlsplit.messages import Fix
from dmlsplit.models.site import Cause, Invalid, Known, OnnxModel, SplitSite, Unknown

# The versions of Split that onnx's converter does not bring back to the one before, "No Adapter";
# nor does it bring Split-1 to any other.
_NOT_CONVERTED = (11, 18)
# Split-1 has no kernel, on the CPU either. Seen with 1.15 to 1.32.
WITHOUT_KERNEL = "Split-1"


def target_violations(target: Target) -> Iterator[Violation]:
    """The rule that the target itself breaks, for any model."""
    provider = target.runtime and target.runtime.provider
    least = provider.minimum_level.value if provider else target.level
    if target.level < least:
        allowed = f"at least {least}"
        yield make_violation(
            "ORT-FEATURE-LEVEL", field="FeatureLevel", found=str(target.level), allowed=allowed
        )


def load_violations(site: SplitSite, target: Target) -> Iterator[Violation]:
    """Why the runtime of a target does not load the model of a split, or may not."""
    runtime = target.runtime
    assert runtime is not None
    yield from target_violations(target)
    model = OnnxModel(site.file, site.opset, site.ir_version, site.model_fault)
    yield from model_violations(model, runtime)
    match site.state:
        case Invalid(problem, is_loaded):
            yield invalid_node(site, problem, "run" if is_loaded else "load")
        case Unknown(cause=Cause.WEIGHTS) if _refuses_external_sizes(runtime):
            yield make_violation(
                "ORT-EXTERNAL-SIZES",
                text="the sizes of the pieces are in external data",
                fix=python_command(Advice.KEEP_SMALL_TENSORS_INSIDE, site.file),
            )
        case Known(pieces=()) | Unknown(pieces=()) if site.shape is not None and _is_listed(site):
            yield invalid_node(site, "split is empty; it must have at least one size", "load")
    if is_complex(site.element_type):
        yield make_violation(
            "ORT-DATA-TYPE",
            "InputTensor",
            field="DataType",
            found=site.element_type or "",
            allowed="a real type",
            fix=Advice.STORE_REAL_TENSORS,
            effect="load",
        )
    yield from _missing_count(site)


def _is_listed(site: SplitSite) -> bool:
    """Whether the sizes of a sequence are a list that no caller changes."""
    return site.makes_sequence and site.sized_by == "split" and not site.is_overridable


def invalid_node(site: SplitSite, problem: str, effect: Effect | None = None) -> Violation:
    """The violation of a node that breaks a rule of its own operator."""
    text = problem.removeprefix(f"{site.operator}: ")  # reports name the operator before
    return make_violation("SPLIT-NODE-INVALID", text=text, effect=effect)


def _refuses_external_sizes(runtime: Runtime) -> bool:
    """Whether sizes in external data are known to keep a model from loading."""
    return runtime.provider is not None and runtime.provider.external_sizes_load.value is False


def is_complex(element_type: str | None) -> bool:
    """Whether an element type is one of complex numbers."""
    return element_type is not None and element_type.startswith("COMPLEX")


def conversion(file: str, opset: int, newest: int) -> str:
    """How to bring a model to an older operator set."""
    if opset < 2 or any(newest < version <= opset for version in _NOT_CONVERTED):
        return Advice.EXPORT_AT_OPSET.format(number=newest)
    return python_command(Advice.CONVERT_TO_OPSET, file, number=str(newest))


def _setting_ir(file: str, ir: int, newest: int) -> Fix:
    """How to bring a model to an older IR version."""
    return python_command(Advice.SET_IR_VERSION, file, number=str(newest))


def _missing_count(site: SplitSite) -> Iterator[Violation]:
    """The violation of a split that lacks num_outputs on an axis of known size."""
    if not site.lacks_count:
        return
    axis_size = site.shape[site.axis] if site.shape and site.axis is not None else None
    if isinstance(axis_size, int) and not isinstance(site.state, Invalid):
        yield make_violation(
            "ORT-NUM-OUTPUTS",
            field="num_outputs",
            found="absent",
            allowed="set if split is absent",
        )


def model_violations(model: OnnxModel, runtime: Runtime) -> Iterator[Violation]:
    """Why a runtime does not load a model, or may not, whatever its splits are."""
    yield from _version_violations(model.file, model.opset, model.ir_version, runtime)
    if model.fault is not None:
        yield make_violation("SPLIT-MODEL-INVALID", text=model.fault)


def _version_violations(file: str, opset: int, ir: int, runtime: Runtime) -> Iterator[Violation]:
    """What is newer than a runtime loads, or may be: a model's operators, or its IR version."""
    loaders = list(_newer_runtime_advice(opset, ir, runtime))
    pairs = (
        ("ORT-OPSET", "opset", opset, runtime.opset, runtime.sure_opset, conversion),
        ("ORT-IR-VERSION", "IR version", ir, runtime.ir, runtime.sure_ir, _setting_ir),
    )
    for rule, subject, number, limit, sure, template in pairs:
        newest = sure.value if limit.value is None else limit.value
        if newest is None or number <= newest:
            continue
        command = template(file, number, newest)
        # A newer runtime helps against both; without it, both have to be changed.
        fix = Fix.joined("; or ", [*loaders, command])
        loaders = []
        has = f"the model has {subject} {number}"
        if limit.value is not None:
            text = f"{has}; {runtime.name} loads at most {newest}"
            yield make_violation(
                rule,
                field=subject,
                found=str(number),
                allowed=f"at most {newest}",
                text=text,
                fix=fix,
            )
        else:
            text = f"{has}; no source says whether {runtime.name} loads more than {newest}"
            yield make_violation("ORT-NOT-KNOWN", text=text, fix=fix)


def _newer_runtime_advice(opset: int, ir: int, runtime: Runtime) -> Iterator[str]:
    """The first releases of runtimes with DirectML that load a model for certain."""
    table = runtime_table()
    if runtime.release is None:
        for windows in table.windows_ml:
            if _loads(windows.sure_opset, opset) and _loads(windows.sure_ir, ir):
                yield Advice.REQUIRE_WINDOWS_BUILD.format(build=windows.build)
                break
    releases = [
        release
        for release in table.onnxruntime
        if _loads(release.opset, opset) and _loads(release.ir, ir)
    ]
    for release in releases:
        if release.has_package:
            yield Advice.USE_NEWER_RUNTIME.format(release=release)
            return
    versions = {release.version for release in releases}
    for package in table.packages:
        if package.onnxruntime.value in versions:
            yield Advice.USE_WINDOWS_ML.format(version=version_text(package.version))
            break


def _loads(limit: Cell, number: int) -> bool:
    """Whether a limit is known to admit a version."""
    return limit.value is not None and number <= limit.value
