"""Verdicts: what a target says of each site, on models built for each of them."""

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

import dmlsplit as dml
from dmlsplit.directml import validation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.discovery import scan_file
from dmlsplit.lint.judge import assess, judge
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Outcome, Verdict
from tests.support.descriptors import split_descriptors
from tests.support.models import every_verdict, in_function, single


def verdicts(content: onnx.ModelProto, tmp_path: Path, **asked: str) -> dict[str, Verdict]:
    """Verdicts by the name of the node."""
    path = tmp_path / "model.onnx"
    onnx.save(content, path)
    found = assess(scan_file(str(path)), resolve_target(**asked)).verdicts
    return {verdict.site.node: verdict for verdict in found}


def rules(verdict: Verdict) -> set[str]:
    return {diagnostic.rule.id for diagnostic in verdict.diagnostics}


def test_every_verdict_of_one_model(tmp_path: Path) -> None:
    found = verdicts(every_verdict(), tmp_path, feature_level="2_0")
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        "fits": Outcome.OK,
        "wide": Outcome.LEGALIZED,
        "odd": Outcome.REFUSED,
        "wrong": Outcome.REFUSED,
        "late": Outcome.NEVER,
        "frame": Outcome.UNKNOWN,
        "left": Outcome.LEGALIZED,
        "right": Outcome.LEGALIZED,
    }
    assert found["left"].site.place == "net/choose.then_branch"


def test_ok_says_the_least_that_accepts_it(tmp_path: Path) -> None:
    verdict = verdicts(every_verdict(), tmp_path)["fits"]
    assert str(verdict.minimum) == "level 1_0, DirectML 1.0.0, Windows build 18362"
    assert not verdict.fix
    assert not verdict.diagnostics


def test_equal_splits_are_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = dml.TensorDesc("INT64", (1, 1, 1, 997))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(2, 995))
    sites = [SplitSite("m.json", "", f"cut{i}", i, "DML_OPERATOR_SPLIT", (desc,)) for i in range(9)]
    seen: list[dml.SplitOperatorDesc] = []
    honest = validation._of_every_level
    monkeypatch.setattr(validation, "_of_every_level", lambda d: seen.append(d) or honest(d))
    found = assess(sites, resolve_target(feature_level="1_0")).verdicts
    assert {verdict.outcome for verdict in found} == {Outcome.LEGALIZED}
    # For the target, and for the minimum level; then the equivalent.
    assert seen.count(desc) == 2
    assert len(seen) == 3


def test_legalizable_gives_the_descriptor_and_the_release(tmp_path: Path) -> None:
    verdict = verdicts(single(TensorProto.INT64, (6,), (2, 4), 0), tmp_path, windows="19041")["cut"]
    assert rules(verdict) == {"DML-LEVEL-DATA-TYPE", "DML-LEVEL-DIMENSION-COUNT"}
    assert [dml.validate(desc, "2_0").ok for desc in verdict.legalized] == [True]
    assert str(verdict.legalized[0]) in verdict.fix
    assert "DirectML 1.7.0 or later (level 4_1), or Windows build 22621" in verdict.fix


def test_refused_says_why_there_is_no_equivalent(tmp_path: Path) -> None:
    shape = (1, 1, 5, 3)
    verdict = verdicts(single(TensorProto.UINT8, shape, (1, 2), 3), tmp_path, feature_level="2_0")[
        "cut"
    ]
    assert verdict.outcome is Outcome.REFUSED
    assert "no equivalent at feature level 2_0: OutputTensors[0] is copied in runs of 1" in (
        verdict.fix
    )


def test_a_broken_node_has_no_minimum(tmp_path: Path) -> None:
    verdict = verdicts(single(TensorProto.FLOAT, (6,), (2, 5), 0), tmp_path)["cut"]
    assert verdict.outcome is Outcome.REFUSED
    assert verdict.minimum is None
    assert rules(verdict) == {"SPLIT-NODE-INVALID"}


def test_unknown_asks_for_the_size(tmp_path: Path) -> None:
    verdict = verdicts(single(TensorProto.FLOAT, ("n", 2), (2, 2), 0), tmp_path)["cut"]
    assert verdict.outcome is Outcome.UNKNOWN
    assert "dimension 0 is dynamic (n)" in verdict.diagnostics[0].message
    assert "--dim n=N" in verdict.fix
    assert "make_dynamic_shape_fixed" in verdict.fix


def test_a_function_is_judged_where_it_is_called(tmp_path: Path) -> None:
    verdict = verdicts(in_function(), tmp_path, feature_level="1_0")["inner"]
    assert verdict.site.place == "net/call"
    assert verdict.outcome is Outcome.LEGALIZED


# Through ONNX Runtime's DirectML provider. Each rule alone is in test_examples.


def through_ort(content: onnx.ModelProto, tmp_path: Path, level: str = "5_0") -> Verdict:
    return verdicts(content, tmp_path, feature_level=level, via="ort")["cut"]


def test_ort_pads_to_four_dimensions(tmp_path: Path) -> None:
    verdict = through_ort(single(TensorProto.INT64, (2, 6), (2, 4), 1), tmp_path)
    assert verdict.outcome is Outcome.OK
    assert str(verdict.descriptors[0]) == (
        "SPLIT axis 3: INT64[1,1,2,6] -> INT64[1,1,2,2], INT64[1,1,2,4]"
    )
    assert str(verdict.minimum).startswith("level 5_0, DirectML 1.8.0")


def test_ort_needs_level_5_0(tmp_path: Path) -> None:
    verdict = through_ort(single(TensorProto.FLOAT, (6,), (2, 4), 0), tmp_path, "4_1")
    assert verdict.outcome is Outcome.REFUSED
    assert rules(verdict) == {"ORT-FEATURE-LEVEL"}
    assert "DirectML 1.8.0 or later" in verdict.fix


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.COMPLEX64, TensorProto.STRING])
def test_ort_lacks_types(tmp_path: Path, kind: int) -> None:
    assert "ORT-DATA-TYPE" in rules(through_ort(single(kind, (6,), (2, 4), 0), tmp_path))


@pytest.mark.parametrize(
    "kind",
    [
        TensorProto.BOOL,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
        TensorProto.UINT8,
        TensorProto.INT8,
    ],
)
def test_ort_takes_types(tmp_path: Path, kind: int) -> None:
    assert through_ort(single(kind, (6,), (2, 4), 0), tmp_path).outcome is Outcome.OK


# What counts as refused.


@pytest.mark.parametrize(
    ("failing", "accepted"),
    [((Outcome.REFUSED, Outcome.LEGALIZED), False), ((Outcome.REFUSED,), True)],
)
def test_what_counts_as_refused_is_chosen(failing: tuple[Outcome, ...], accepted: bool) -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4))
    site = SplitSite("f", "net", "n", 0, "Split-13", (desc,))
    assert assess([site], resolve_target(feature_level="1_0"), (), failing).accepted == accepted


# The verdict and the library agree.


@given(desc=split_descriptors(), level=st.sampled_from(list(dml.FeatureLevel)))
def test_verdicts_agree_with_validate_and_legalize(
    desc: dml.SplitOperatorDesc, level: dml.FeatureLevel
) -> None:
    site = SplitSite("f", "net", "n", 0, "Split-13", (desc,))
    verdict = judge(site, resolve_target(feature_level=str(level)))
    report = dml.validate(desc, level)
    assert (verdict.outcome is Outcome.OK) == report.ok
    assert rules(verdict) == set(report.rule_ids)
    assert bool(verdict.fix) == (verdict.outcome is not Outcome.OK)
    assert (verdict.outcome is Outcome.LEGALIZED) == bool(verdict.legalized)
    assert all(dml.validate(each, level).ok for each in verdict.legalized)
    if verdict.minimum is not None:
        assert dml.validate(desc, verdict.minimum.level).ok
