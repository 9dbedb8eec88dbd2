"""Judges the splits that a scan found: accepted, refused or unknown, why, and what to change."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from dmlsplit.directml.legalization import equivalent
from dmlsplit.directml.levels import FeatureLevel, capability_table
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import UINT_MAX, TensorDataType
from dmlsplit.directml.validation import minimum_feature_level, report_at
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.frontends import SplitSite
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.remedies import options, remedies
from dmlsplit.lint.rules import violation
from dmlsplit.lint.target import Requirement, Target, requirement
from dmlsplit.lint.verdict import FAILING, Assessment, Outcome, SizeRange, Verdict

IN_A_FUNCTION = "it is in the body of a function; inline the functions first (onnx.inliner)"
# ONNX's Cast extracts the low bits of an integer, and standard arithmetic the high ones.
IN_HALVES = frozenset({TensorDataType.INT64, TensorDataType.UINT64})
# A model has many splits, but few different descriptors.
_remembered = lru_cache(maxsize=4096)
_minimum_level = _remembered(minimum_feature_level)


def assess(
    sites: Iterable[SplitSite],
    target: Target,
    unreadable: Iterable[tuple[str, str]] = (),
    failing: Iterable[Outcome] = FAILING,
    defects_fail: bool = False,
) -> Assessment:
    """Judge all sites for a target."""
    # Implied sites become splits in ONNX Runtime only.
    judged = (site for site in sites if target.via == "ort" or not site.implied)
    verdicts = tuple(judge(site, target) for site in judged)
    about_target = tuple(onnxruntime.target_violations(target))
    return Assessment(
        target, verdicts, tuple(unreadable), frozenset(failing), about_target, defects_fail
    )


def judge(site: SplitSite, target: Target) -> Verdict:
    """Judge one site for a target."""
    if site.implied:
        return _judge_implied(site, target)
    found = list(_of_the_node(site))
    # If sizes are unknown, judge the smallest descriptor: a rule that it breaks, all sizes break.
    judged = site.smallest if site.unknown else next(iter(site.descriptors), None)
    if target.via == "ort":
        found += onnxruntime.violations(site, target)
        judged = judged and onnxruntime.lowered(judged)
    broken = report_at(judged, target.level).violations if judged else ()
    errors = [each for each in found if each.severity == "error"]
    sizes = None if errors or broken else _sizes(site)
    desc = judged
    if site.unknown and not sizes:
        desc = None
        broken = tuple(v for v in broken if v.tensor == "InputTensor" and v.rule.at_every_size)
        found.append(violation("SPLIT-NODE-UNKNOWN", text=site.unknown))
    # The provider makes its own descriptors, so an equivalent cannot be passed to it.
    replaceable = bool(broken) and not errors and target.via == "directml"
    legal, obstacle = _equivalent(desc, target.level) if desc and replaceable else (None, "")
    refused = bool(errors or broken)
    outcome = Outcome.ALWAYS if sizes else _outcome(site, refused, legal is not None)
    curable = all("level" in each.rule.cured_by for each in errors)
    minimum = _minimum(judged, target) if curable and outcome is not Outcome.UNKNOWN else None
    diagnostics = tuple(sorted([*found, *broken], key=lambda each: each.severity != "error"))
    undecided = replaceable and bool(site.unknown)
    verdict = Verdict(site, desc, outcome, diagnostics, legal, minimum, "", undecided, sizes)
    return replace(verdict, fix="; ".join(_fixes(verdict, obstacle, target.level)))


def _sizes(site: SplitSite) -> SizeRange | None:
    """The sizes at which a split breaks no rule, if it breaks none at the smallest ones.

    Larger sizes only multiply the number of elements, so no other rule can break.
    """
    if not site.smallest or not site.scales:
        return None
    most = UINT_MAX // site.smallest.input_tensor.element_count
    return SizeRange(tuple(name for name, _ in site.missing), most)


def _judge_implied(site: SplitSite, target: Target) -> Verdict:
    """Judge a node that ONNX Runtime turns into a split: a broken rule is only a warning."""
    desc = onnxruntime.lowered(site.descriptors[0])
    broken = [*onnxruntime.empty_pieces(site), *report_at(desc, target.level).violations]
    diagnostics = [violation("SPLIT-IMPLIED", text=site.implied)]
    diagnostics += [replace(each, warns=True) for each in broken]
    minimum = _minimum(desc, target)
    fix = "; ".join(dict.fromkeys(each.hint for each in broken))
    return Verdict(site, desc, Outcome.OK, tuple(diagnostics), None, minimum, fix)


def _outcome(site: SplitSite, refused: bool, has_equivalent: bool) -> Outcome:
    if not refused:
        return Outcome.UNKNOWN if site.unknown else Outcome.OK
    if site.unknown:
        return Outcome.NEVER
    return Outcome.EQUIVALENT if has_equivalent else Outcome.REFUSED


def _of_the_node(site: SplitSite) -> Iterator[Violation]:
    if site.problem:
        yield violation("SPLIT-NODE-INVALID", text=site.problem)
    if site.element_type == "STRING":
        text = "InputTensor.DataType is STRING; DirectML has no strings"
        yield violation("SPLIT-NODE-TEXT", text=text)
    for warning in site.warnings:
        yield violation("SPLIT-NODE-SURPRISE", text=warning)
    for place in site.meets:
        text = (
            f"its pieces meet again in {place}. In fused graphs, such as GLU, DirectML is known to "
            "use one piece instead of the other (onnxruntime issues 32146, 24311, 21007)"
        )
        yield violation("SPLIT-DEFECT-MEET", text=text)


@_remembered
def _equivalent(
    desc: SplitOperatorDesc, level: FeatureLevel
) -> tuple[SplitOperatorDesc | None, str]:
    """The equivalent of a refused descriptor; if it has none, None and the reason."""
    try:
        return equivalent(desc, level), ""
    except NoEquivalentError as error:
        return None, f"no equivalent descriptor at feature level {level}: {error.reason}"
    except InvalidArgumentError:  # invalid at every level
        return None, ""


def _minimum(desc: SplitOperatorDesc | None, target: Target) -> Requirement | None:
    """The lowest level that accepts a descriptor; None if none does, or if it is unknown."""
    level = _minimum_level(desc) if desc else None
    if level is None:
        return None
    return requirement(max(level, onnxruntime.MINIMUM_LEVEL) if target.via == "ort" else level)


def _fixes(verdict: Verdict, obstacle: str, level: FeatureLevel) -> Iterator[str]:
    """Possible fixes, the most direct first."""
    site, minimum = verdict.site, verdict.minimum
    defects = (each for each in verdict.diagnostics if each.severity == "defect")
    yield from dict.fromkeys(each.hint for each in defects)
    if verdict.outcome is Outcome.UNKNOWN:
        yield from remedies(site)
    if verdict.outcome not in FAILING:
        return
    if minimum is None:
        yield from dict.fromkeys(each.hint for each in verdict.errors)
    if site.format == "onnx":
        yield from _rewriting(verdict, level)
    if verdict.equivalent:
        yield f"in DirectML, dispatch {verdict.equivalent}"
    if minimum is not None:
        build = f", or Windows build {minimum.windows.build}" if minimum.windows else ""
        yield f"ship DirectML {minimum.directml} or later (level {minimum.level}){build}"
    if obstacle:
        yield f"there is {obstacle}"
    if verdict.undecided:
        how = "fix the sizes" if site.format == "openvino" else f"give {options(site.missing)}"
        yield f"an equivalent may exist; to find out, {how}"


def _rewriting(verdict: Verdict, level: FeatureLevel) -> Iterator[str]:
    """What the author of the model can do about a refused split."""
    if any("model" not in each.rule.cured_by for each in verdict.errors) or verdict.undecided:
        return
    why = rewriting_obstacle(verdict, level)
    yield (
        f"standard ONNX nodes cannot replace it: {why}"
        if why
        else "in the model, replace it with accepted nodes: --write-fixed fixed.onnx"
    )


def rewriting_obstacle(verdict: Verdict, level: FeatureLevel) -> str:
    """Why no rewriting of a refused split of an ONNX model is accepted; empty if one is."""
    site, broken = verdict.site, verdict.errors
    for error in broken:
        if "model" not in error.rule.cured_by:
            return f"{error.rule.id}: {error.message}"
    if "()" in site.path:
        return IN_A_FUNCTION
    if verdict.lacks_only_count:
        return ""
    if not site.descriptors or not site.pieces or not site.element_type:
        return "its sizes are known only when the model runs"
    if site.element_type.startswith("COMPLEX"):
        return "standard ONNX cannot reinterpret complex elements as another type"
    kind = site.descriptors[0].input_tensor.data_type
    if kind in capability_table()[level].input_tensor.data_types | IN_HALVES or kind.bits < 32:
        return ""
    return f"Cast would round {kind.name}, and no operator before BitCast-26 exposes its bits"
