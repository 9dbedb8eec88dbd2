"""Every rule of a descriptor, broken alone and together, and the capability truth table."""

from pathlib import Path
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.directml.levels import NEWEST, LevelSupport
from dmlsplit.directml.operator import named_tensors
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.rules.descriptors import modified_split
from dmlsplit.directml.rules.rule import Sample
from dmlsplit.directml.validation import violations
from tests.golden.broken_rules import messages
from tests.support.descriptors import DATA_TYPES
from tests.support.each import each


def float32(*sizes: int, **fields: Any) -> dml.TensorDesc:
    return dml.TensorDesc("FLOAT32", sizes, **fields)


@pytest.mark.parametrize(
    ("desc", "rule", "message"),
    [
        (
            dml.SplitOperatorDesc(float32(4), [float32(1), float32(3)], axis=1),
            "DML-SPLIT-AXIS-RANGE",
            "Axis is 1; it must be below the input's DimensionCount, 1",
        ),
        (
            dml.SplitOperatorDesc(float32(4), [float32(1), float32(2)], axis=0),
            "DML-SPLIT-AXIS-SUM",
            "OutputTensors.Sizes[0] add up to 3; they must add up to 4, which is "
            "InputTensor.Sizes[0]",
        ),
        (
            dml.SplitOperatorDesc(float32(4, 5), [float32(1, 5), float32(3, 6)], axis=0),
            "DML-SPLIT-SIZE-MATCH",
            "OutputTensors[1].Sizes[1] is 6; it must be 5, as in InputTensor",
        ),
        (
            dml.SplitOperatorDesc(
                float32(4, guaranteed_base_offset_alignment=12), [float32(1), float32(3)], axis=0
            ),
            "DML-TENSOR-ALIGNMENT",
            "InputTensor.GuaranteedBaseOffsetAlignment is 12; it must be 0, or a power of two of "
            "at least 4",
        ),
    ],
    ids=["axis", "sum", "size", "alignment"],
)
def test_a_violation_names_the_place_the_value_and_the_allowed_values(
    desc: dml.SplitOperatorDesc, rule: str, message: str
) -> None:
    (violation,) = dml.validate(desc).violations
    assert (violation.rule.id, violation.message) == (rule, message)


LEVELS = [str(level) for level in dml.FeatureLevel]
SIXTEEN_AND_32 = {"FLOAT32", "FLOAT16", "INT32", "INT16", "UINT32", "UINT16"}


def documented(level: str, data_type: str, rank: int) -> bool:
    """The "Tensor support" table of DML_SPLIT_OPERATOR_DESC, written down a second time."""
    types = set(SIXTEEN_AND_32)
    if level >= "2_1":
        types |= {"INT8", "UINT8"}
    if level >= "4_1":
        types |= {"FLOAT64", "INT64", "UINT64"}
    ranks = range(1, 9) if level >= "3_0" else [4]
    return data_type in types and rank in ranks


@pytest.mark.parametrize("level", LEVELS)
@each(data_type=[*DATA_TYPES, "UINT4", "INT4"], rank=range(1, 10))
def test_a_level_accepts_exactly_the_documented_types_and_ranks(
    level: str, data_type: str, rank: int
) -> None:
    x = dml.TensorDesc(data_type, (4,) * rank)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=rank - 1, sizes=(1, 3))
    report = dml.validate(desc, level)
    assert report.ok == documented(level, data_type, rank)
    if not report.ok:
        assert {v.tensor for v in report.violations} == {name for name, _ in named_tensors(desc)}
        minimum = dml.minimum_feature_level(desc)
        accepted = [name for name in LEVELS if documented(name, data_type, rank)]
        assert (str(minimum) if minimum else None) == (accepted[0] if accepted else None)


# Samples are descriptors that break a rule; dmlsplit/directml/rules/descriptors.yaml lists them.
BROKEN = [(rule, sample) for rule, record in RULES.items() for sample in record.broken]


@pytest.mark.parametrize(("rule", "sample"), BROKEN, ids=lambda part: getattr(part, "name", part))
def test_a_rule_broken_alone_is_reported_alone(rule: str, sample: Sample) -> None:
    report = dml.validate(sample.desc, sample.level)
    assert report.rule_ids == (rule,)
    higher = dml.minimum_feature_level(sample.desc)
    assert (higher is None) == (sample.level == str(NEWEST))


def test_the_messages_of_all_samples_are_those_of_the_golden_file() -> None:
    golden = Path(__file__).parents[1] / "golden" / "rules.txt"
    assert messages() == golden.read_text("utf-8")


UINT32_MAX = 2**32 - 1


def one_output(**fields: object) -> dml.SplitOperatorDesc:
    """The split of a tensor into itself, along the last axis."""
    tensor = dml.TensorDesc(**{"data_type": "FLOAT32", **fields})  # type: ignore[arg-type]
    return dml.SplitOperatorDesc(tensor, [tensor], tensor.dimension_count - 1)


LIMITS = [
    *((sample.desc, sample.level) for record in RULES.values() for sample in record.kept),
    (one_output(sizes=(1, 4), strides=(UINT32_MAX, 1)), "6_4"),
    (one_output(data_type="UINT8", sizes=(2, 2), strides=(UINT32_MAX - 1, 1)), "6_4"),
    (one_output(sizes=(4,), total_tensor_size_in_bytes=16), "6_4"),
    (one_output(data_type="UINT8", sizes=(4,), guaranteed_base_offset_alignment=1), "6_4"),
    (modified_split(input_tensor={"strides": (0, 0, 0, 0), "total": 4}), "6_4"),
    (modified_split(first_output={"strides": (7, 4, 2, 1)}), "6_4"),
]


@pytest.mark.parametrize(("desc", "level"), LIMITS, ids=str)
def test_a_value_at_its_limit_breaks_no_rule(desc: dml.SplitOperatorDesc, level: str) -> None:
    assert dml.validate(desc, level).ok, str(dml.validate(desc, level))


@pytest.mark.parametrize(
    ("desc", "rules"),
    [
        (dml.SplitOperatorDesc(float32(4), [float32(4)], 2**32), ["UINT-RANGE"]),
        (dml.SplitOperatorDesc(float32(4), [float32(4), float32(4)], -1), ["UINT-RANGE"]),
        (dml.SplitOperatorDesc(float32(4), [float32(4), float32(4)], 1), ["SPLIT-AXIS-RANGE"]),
        (dml.SplitOperatorDesc(float32(4), [float32(4), float32(4, 1)], 0), [
            "SPLIT-DIMENSION-COUNT-MATCH"]),
        (dml.SplitOperatorDesc(float32(4), [], 1), ["SPLIT-OUTPUT-COUNT", "SPLIT-AXIS-RANGE"]),
        (dml.SplitOperatorDesc(float32(4), [float32(5)], 0), ["SPLIT-AXIS-SUM"]),
        (dml.SplitOperatorDesc(float32(4, 5), [float32(4, 6)], 0), ["SPLIT-SIZE-MATCH"]),
        (one_output(sizes=(4,), guaranteed_base_offset_alignment=1), ["TENSOR-ALIGNMENT"] * 2),
        (one_output(sizes=(2**32,)), ["UINT-RANGE"] * 2),
        (one_output(sizes=(-1,), total_tensor_size_in_bytes=0), ["UINT-RANGE"] * 2),
        (one_output(sizes=(0,), total_tensor_size_in_bytes=2), [
            "TENSOR-ZERO-SIZE", "TENSOR-SIZE-DWORD"] * 2),
        (one_output(sizes=(2, 2), strides=(-2, 1), total_tensor_size_in_bytes=0), [
            "UINT-RANGE"] * 2),
        (one_output(sizes=(2, 2), strides=(2**32, 1), total_tensor_size_in_bytes=0), [
            "UINT-RANGE"] * 2),
        (one_output(data_type="UINT8", sizes=(UINT32_MAX,), total_tensor_size_in_bytes=4), [
            "TENSOR-SIZE-SMALL"] * 2),
        (one_output(sizes=(2,), strides=(1, 1)), ["TENSOR-STRIDE-COUNT"] * 2),
        (one_output(sizes=(2,), strides=()), ["TENSOR-STRIDE-COUNT"] * 2),
        (one_output(sizes=(4,), total_tensor_size_in_bytes=-4), [
            "UINT-RANGE", "TENSOR-SIZE-SMALL"] * 2),
        (one_output(sizes=(4,), guaranteed_base_offset_alignment=-3), ["UINT-RANGE"] * 2),
        (one_output(data_type="UINT8", sizes=(4,), guaranteed_base_offset_alignment=3), [
            "TENSOR-ALIGNMENT"] * 2),
        (one_output(data_type="UINT8", sizes=(2, 2), strides=(UINT32_MAX, 1)), [
            "TENSOR-SIZE-WRAP"] * 2),
        (dml.SplitOperatorDesc(dml.TensorDesc("INT8", ()), [dml.TensorDesc("INT8", ())], 0), [
            "TENSOR-DIMENSION-COUNT", "TENSOR-DIMENSION-COUNT", "SPLIT-AXIS-RANGE"]),
    ],
)  # fmt: skip
def test_a_value_past_its_limit_breaks_exactly_the_listed_rules(
    desc: dml.SplitOperatorDesc, rules: list[str]
) -> None:
    rule_ids = [v.rule.id.removeprefix("DML-") for v in dml.validate(desc).violations]
    assert rule_ids == rules


def test_a_violation_names_the_range_of_dimension_counts_of_its_level() -> None:
    kinds = frozenset([dml.TensorDataType.FLOAT32])
    row = LevelSupport(
        level=dml.FeatureLevel.LEVEL_5_0,
        directml="1.8.0",
        is_public=True,
        windows=None,
        minimum_dimensions=2,
        maximum_dimensions=3,
        data_types=kinds,
        source="",
    )
    ranges = [(v.place, v.allowed) for v in violations(one_output(sizes=(4,)), row)]
    assert ranges[0] == ("InputTensor.DimensionCount", "from 2 to 3 at feature level 5_0")


def test_descriptor_rules_have_samples_and_binding_rules_have_an_example() -> None:
    for rule, record in RULES.items():
        is_of_bindings = rule.startswith(("DML-BIND", "DML-ARRAY"))
        assert (record.example is not None) == is_of_bindings
        assert bool(record.broken) != is_of_bindings


def test_all_violations_are_reported_at_once() -> None:
    source = dml.TensorDesc(
        "FLOAT64", (0, 2**33, 5), strides=(1, 2), total_tensor_size_in_bytes=3,
        guaranteed_base_offset_alignment=3,
    )  # fmt: skip
    outputs = (
        dml.TensorDesc("UNKNOWN", (2,) * 9),
        dml.TensorDesc("FLOAT64", (1, 3, 4), strides=(0, 0, 0), flags="OWNED_BY_DML",
                       total_tensor_size_in_bytes=4),
        dml.TensorDesc("FLOAT64", (2, 2**31, 5)),
        dml.TensorDesc("FLOAT64", (2, 2, 5), strides=(2**32 - 1, 2**32 - 1, 1)),
    )  # fmt: skip
    report = dml.validate(dml.SplitOperatorDesc(source, outputs, 3), "1_0")
    # The other rules need outputs, or an axis, that can be compared at all.
    missing = {"DML-SPLIT-OUTPUT-COUNT", "DML-SPLIT-AXIS-SUM", "DML-SPLIT-SIZE-MATCH"}
    rules = {rule for rule in RULES if not rule.startswith(("DML-BIND", "DML-ARRAY"))}
    assert set(report.rule_ids) == rules - missing


def test_every_wrong_size_of_every_output_is_reported() -> None:
    outputs = [float32(4, 1, 2, 1), float32(4, 1, 3, 5)]
    report = dml.validate(dml.SplitOperatorDesc(float32(1, 2, 6, 2), outputs, axis=2))
    assert {(violation.rule.id, violation.place) for violation in report.violations} == {
        ("DML-SPLIT-AXIS-SUM", "OutputTensors.Sizes[2]"),
        ("DML-SPLIT-SIZE-MATCH", "OutputTensors[0].Sizes[0]"),
        ("DML-SPLIT-SIZE-MATCH", "OutputTensors[0].Sizes[1]"),
        ("DML-SPLIT-SIZE-MATCH", "OutputTensors[1].Sizes[0]"),
        ("DML-SPLIT-SIZE-MATCH", "OutputTensors[1].Sizes[1]"),
        ("DML-SPLIT-SIZE-MATCH", "OutputTensors[0].Sizes[3]"),
        ("DML-SPLIT-SIZE-MATCH", "OutputTensors[1].Sizes[3]"),
    }


@pytest.mark.parametrize(
    ("sizes", "fields"),
    [
        ((2**32 - 1,) * 1000, {}),
        ((10**5000, 2), {}),
        ((2, 2), {"strides": (10**5000, -(10**5000))}),
        ((2, 2), {"total_tensor_size_in_bytes": 10**5000}),
        ((2, 2), {"guaranteed_base_offset_alignment": 10**5000}),
    ],
)
def test_numbers_with_more_digits_than_python_prints_are_reported(
    sizes: tuple[int, ...], fields: dict[str, Any]
) -> None:
    tensor = dml.TensorDesc("FLOAT32", sizes, **fields)
    report = dml.validate(dml.SplitOperatorDesc(tensor, [float32(2, 2)], 0))
    assert "about 2^" in "".join(violation.found for violation in report.violations)
    assert str(report).startswith("SPLIT axis 0: FLOAT32[")


def test_a_report_names_its_descriptor_and_the_level() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4))
    report = dml.validate(desc, "4.0")
    assert (report.subject, report.level) == (str(desc), "4_0")


def test_a_higher_level_is_advised_only_if_one_accepts_the_tensor() -> None:
    def hints(kind: str, level: str) -> set[str]:
        desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc(kind, (8,)), axis=0, sizes=(4, 4))
        return {v.hint for v in dml.validate(desc, level).violations}

    assert hints("INT4", "6_4") == {"let dml.legalize or --write-fixed look for an equivalent"}
    assert hints("INT4", "4_1") == hints("INT4", "6_4")
    assert all(hint.startswith("raise the feature level, or ") for hint in hints("INT64", "2_0"))


def test_the_repr_of_a_report_is_short_and_names_the_broken_rules() -> None:
    x = dml.TensorDesc("FLOAT32", (6,))
    report = dml.validate(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "2_0")
    assert repr(report) == (
        "ValidationReport('SPLIT axis 0: FLOAT32[6] -> FLOAT32[2], FLOAT32[4]', level='2_0', "
        "rule_ids=('DML-LEVEL-DIMENSION-COUNT',))"
    )
    assert repr(report.violations[0].rule) == "<Rule DML-LEVEL-DIMENSION-COUNT>"
    assert repr(dml.FeatureLevel.LEVEL_4_1) == "FeatureLevel.LEVEL_4_1"


def test_a_fix_is_said_once_for_all_tensors_that_break_a_rule() -> None:
    x = dml.TensorDesc("FLOAT32", (6,))
    text = str(dml.validate(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "2_0"))
    assert (text.count("DML-LEVEL-DIMENSION-COUNT: "), text.count("Fix: ")) == (3, 1)
    assert text.endswith("look for an equivalent.")
