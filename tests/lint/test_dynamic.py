"""Splits with dynamic sizes are checked for everything that does not depend on a size."""

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from dmlsplit.frontends.onnx import FixedSizes
from dmlsplit.lint.check import assess
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import FAILING, Assessment, Outcome, SizeRange, Verdict
from dmlsplit.models.discovery import scan_paths
from tests.support.command import ROOT
from tests.support.models import one_split, one_split_to_sequence, parsed, split_without_sizes

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def assessed(
    content: onnx.ModelProto, folder: Path, dim: dict[str, int] | None = None, **target_options: str
) -> Assessment:
    path = folder / "model.onnx"
    onnx.save(content, path)
    scan = scan_paths([str(path)], dimensions=FixedSizes(dim or {}))
    return assess(scan.sites, resolve_target(**target_options), scan.unreadable)


def verdict_of(content: onnx.ModelProto, folder: Path, **target_options: str) -> Verdict:
    (verdict,) = assessed(content, folder, **target_options).verdicts
    return verdict


def rules(verdict: Verdict) -> set[str]:
    return {violation.rule.id for violation in verdict.diagnostics if violation.severity == "error"}


REFUSED = [
    (one_split(INT64, ("batch", 6), sizes=(2, 4), axis=1), {"feature_level": "1_0"},
     {"DML-LEVEL-DATA-TYPE", "DML-LEVEL-DIMENSION-COUNT"}),
    (one_split(FLOAT, ("batch", 6), sizes=(2, 4), axis=1), {"windows": "19041"},
     {"DML-LEVEL-DIMENSION-COUNT"}),
    (split_without_sizes((2, "n"), num_outputs=2), {"windows": "19041"},
     {"DML-LEVEL-DIMENSION-COUNT"}),
    (one_split(INT64, None, sizes=(2, 4), axis=1), {"feature_level": "3_0"},
     {"DML-LEVEL-DATA-TYPE"}),
    (one_split(TensorProto.COMPLEX128, None, sizes=(2, 4), axis=1), {"feature_level": "3_0"},
     {"DML-LEVEL-DATA-TYPE"}),
    (one_split(FLOAT, ("n", 2**31, 2**3), sizes=(4, 4), axis=2), {}, {"DML-TENSOR-ELEMENT-COUNT"}),
    (one_split(FLOAT, ("n", 2**33), sizes=(2**32, 2**32), axis=1), {}, {"DML-UINT-RANGE"}),
    (one_split(TensorProto.STRING, ("n", 6), sizes=(2, 4), axis=1), {}, {"SPLIT-NODE-TEXT"}),
]  # fmt: skip
IN_A_RUNTIME = [
    (one_split(FLOAT, ("batch",) * 10, sizes=(2, 4), axis=1), Outcome.NOT_LOADED,
     "ORT-DIMENSION-COUNT"),
    (one_split(FLOAT, ("n", 6), sizes=(2, 0, 4), axis=1), Outcome.UNWRITTEN, "ORT-EMPTY-PIECE"),
    (one_split(TensorProto.BFLOAT16, ("n", 6), sizes=(2, 4), axis=1), Outcome.ON_CPU,
     "ORT-DATA-TYPE"),
    (one_split_to_sequence(FLOAT, ("n", "m")), Outcome.ON_CPU, "ORT-SEQUENCE"),
    (one_split(FLOAT, ("n", 2**31, 2**3), sizes=(4, 4), axis=2), Outcome.FAILS,
     "DML-TENSOR-ELEMENT-COUNT"),
    (one_split(TensorProto.STRING, ("n", 6), sizes=(2, 4), axis=1), Outcome.ON_CPU,
     "SPLIT-NODE-TEXT"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "target_options", "broken"), REFUSED)
def test_a_split_that_breaks_a_rule_for_every_size_is_refused(
    content: onnx.ModelProto, target_options: dict[str, str], broken: set[str], tmp_path: Path
) -> None:
    verdict = verdict_of(content, tmp_path, **target_options)
    assert verdict.outcome is Outcome.REFUSED_FOR_EVERY_SIZE
    assert not verdict.descriptor
    assert verdict.undecided == (broken != {"SPLIT-NODE-TEXT"})
    assert rules(verdict) == broken
    assert not assessed(content, tmp_path, **target_options).accepted


@pytest.mark.parametrize(("content", "outcome", "broken"), IN_A_RUNTIME)
def test_what_a_runtime_does_for_every_size_is_said_although_the_sizes_are_dynamic(
    content: onnx.ModelProto, outcome: Outcome, broken: str, tmp_path: Path
) -> None:
    verdict = verdict_of(content, tmp_path, ort="")
    assert (verdict.outcome, rules(verdict)) == (outcome, {broken})


@pytest.mark.parametrize(
    ("content", "target_options"),
    [
        (split_without_sizes((6, "n"), num_outputs=2), {}),
        (one_split(FLOAT, None, sizes=(2, 4), axis=1), {"feature_level": "1_0"}),
        (one_split(FLOAT, None, sizes=(2, 4), axis=1), {}),
        (one_split(FLOAT, ("n", 0, 6), sizes=(0, 0), axis=1), {}),
    ],
)
def test_a_verdict_that_depends_on_the_size_is_unknown(
    content: onnx.ModelProto, target_options: dict[str, str], tmp_path: Path
) -> None:
    verdict = verdict_of(content, tmp_path, **target_options)
    assert (verdict.outcome, verdict.minimum, rules(verdict)) == (Outcome.UNKNOWN, None, set())


def test_if_equivalents_are_allowed_a_refused_type_is_undecided(tmp_path: Path) -> None:
    content = one_split(INT64, ("batch", 6), sizes=(2, 4), axis=1)
    assessment = assessed(content, tmp_path, feature_level="1_0")
    (verdict,) = assessment.verdicts
    assert verdict.notes == (
        "an equivalent descriptor may exist for fixed sizes; to check, give the dynamic sizes, for "
        "example --dim batch=1",
    )
    assert verdict.minimum is not None
    assert str(verdict.minimum.level) == "4_1"

    def fails(*failing: Outcome) -> bool:
        return Assessment(assessment.target, assessment.verdicts, (), frozenset(failing)).fails(
            verdict
        )

    assert fails(*FAILING)
    assert not fails(Outcome.REFUSED, Outcome.REFUSED_FOR_EVERY_SIZE)
    assert fails(Outcome.REFUSED, Outcome.REFUSED_FOR_EVERY_SIZE, Outcome.UNKNOWN)


# A Split-18 with neither sizes nor num_outputs: ONNX Runtime 1.32 does not load it, unless it does
# not know the size of the axis while loading.


@pytest.mark.parametrize(
    ("shape", "outcome"),
    [((2, 6), Outcome.NOT_LOADED), (("n", 6), Outcome.NOT_LOADED), ((2, "n"), Outcome.UNKNOWN)],
)
def test_a_missing_count_is_refused_if_the_axis_is_known(
    shape: tuple[int | str, ...], outcome: Outcome, tmp_path: Path
) -> None:
    verdict = verdict_of(split_without_sizes(shape), tmp_path, ort="")
    assert verdict.outcome is outcome
    assert verdict.fix.startswith("set num_outputs")
    assert ("ORT-NUM-OUTPUTS" in rules(verdict)) == (outcome is not Outcome.UNKNOWN)
    # ONNX Runtime fails to load it, but that is not a failure of DirectML.
    assert verdict.hresult is None
    assert verdict_of(split_without_sizes(shape), tmp_path).outcome is not Outcome.REFUSED


MOST = 2**32 - 1  # elements of a tensor


# Sizes that only multiply the elements: the verdict holds for every size, up to the most elements.


@pytest.mark.parametrize(
    ("content", "target_options", "names", "most"),
    [
        (one_split(FLOAT, ("batch", 64), sizes=(32, 32), axis=1), {}, ("batch",),
         MOST // 64),
        (one_split(FLOAT, ("batch", 6), sizes=(2, 4), axis=1), {"ort": ""}, ("batch",),
         MOST // 6),
        (one_split(FLOAT, ("b", 1, 6, "w"), sizes=(2, 4), axis=2), {"feature_level": "1_0"},
         ("b", "w"), MOST // 6),
        (one_split(FLOAT, ("n", 2**31), sizes=(2**30, 2**30), axis=1), {}, ("n",), 1),
        (one_split(TensorProto.COMPLEX128, ("n", 6), sizes=(2, 4), axis=1), {}, ("n",),
         MOST // 12),
        (one_split(FLOAT, ("n",) * 9 + (6,), sizes=(2, 4), axis=9), {}, ("n",) * 9, MOST // 6),
        (one_split(FLOAT, ("n", 6), sizes=(0, 6), axis=1), {}, ("n",), MOST // 6),
    ],
)  # fmt: skip
def test_a_split_that_every_size_keeps_legal_is_ok_for_every_size(
    content: onnx.ModelProto,
    target_options: dict[str, str],
    names: Any,
    most: int,
    tmp_path: Path,
) -> None:
    verdict = verdict_of(content, tmp_path, **target_options)
    assert verdict.outcome is Outcome.RUNS_FOR_EVERY_SIZE
    assert verdict.hresult is None
    assert verdict.sizes
    assert verdict.sizes.names == names
    assert verdict.sizes.maximum_product == most
    assert str(verdict.sizes).startswith(f"{' * '.join(names)} from 1 to ")
    assert bool(verdict.minimum) == ("ort" not in target_options)
    # Even --fail-on unknown accepts it.
    assessment = assessed(content, tmp_path, **target_options)
    failing = FAILING | {Outcome.UNKNOWN}
    assert Assessment(assessment.target, assessment.verdicts, (), failing).accepted


@pytest.mark.parametrize(
    ("kind", "elements"), [(FLOAT, 6), (TensorProto.COMPLEX128, 12)], ids=["FLOAT", "COMPLEX128"]
)
def test_the_range_of_a_dynamic_size_ends_at_the_most_elements(
    kind: int, elements: int, tmp_path: Path
) -> None:
    """A complex number is two elements."""

    def outcome(batch: int) -> Outcome:
        content = one_split(kind, ("batch", 6), sizes=(2, 4), axis=1)
        (verdict,) = assessed(content, tmp_path, dim={"batch": batch}).verdicts
        return verdict.outcome

    assert outcome(MOST // elements) is Outcome.RUNS
    assert outcome(MOST // elements + 1) is not Outcome.RUNS


def test_more_than_8_dimensions_are_merged_and_8_are_checked_as_they_are(tmp_path: Path) -> None:
    nine, eight = (
        one_split(TensorProto.FLOAT, (2,) * rank, sizes=(1, 1), axis=4) for rank in (9, 8)
    )
    verdict = verdict_of(nine, tmp_path, feature_level="4_1")
    assert verdict.outcome is Outcome.RUNS
    assert str(verdict.descriptor).startswith("SPLIT axis 1: FLOAT32[16,2,16]")
    assert verdict_of(nine, tmp_path, ort="").outcome is Outcome.NOT_LOADED
    verdict = verdict_of(eight, tmp_path, feature_level="2_0")
    assert verdict.outcome is Outcome.EQUIVALENT
    assert verdict_of(eight, tmp_path, ort="").outcome is Outcome.RUNS


@pytest.mark.parametrize(
    "node",
    [
        "y = CenterCropPad <axes = [1]> (x, size)",
        'y = Einsum <equation = "...i->...i"> (x)',
        "y = NonMaxSuppression (x, x)",
    ],
)
def test_shapes_that_onnx_infers_are_known_once_its_inference_has_run(
    node: str, here: Path, tmp_path: Path
) -> None:
    """The remedy that docs/validate.md gives for operators that dmlsplit does not know."""
    content = parsed(f"""(float[1,6,3] x) => (float[] a) {{
        size = Constant <value = int64[1] {{6}}> ()
        {node}
        a, b = Split <axis = -1, num_outputs = 2> (y)
    }}""")
    assert verdict_of(content, tmp_path).outcome is Outcome.UNKNOWN
    onnx.save(content, "model.onnx")
    text = (ROOT / "docs" / "validate.md").read_text("utf-8")
    (command,) = re.findall(r'^python -c "(.*infer_shapes_path.*)"$', text, re.MULTILINE)
    exec(command, {})
    after = verdict_of(onnx.load("inferred.onnx"), tmp_path)
    assert isinstance(after.site.shape, tuple)
    assert after.site.element_type is not None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("s77", "s27 - 1"), "s77 * (s27 - 1) from 1 to 8"),
        (("s77//2", "/head/Reshape.1"), "(s77//2) * /head/Reshape.1 from 1 to 8"),
        (("s27 - 1",), "s27 - 1 from 1 to 8"),
        (("batch", "x.0"), "batch * x.0 from 1 to 8"),
    ],
)
def test_a_limit_has_composite_names_in_parentheses(names: tuple[str, ...], expected: str) -> None:
    assert str(SizeRange(names, 8)) == expected
