"""Every rule of a descriptor, broken alone and together, and the capability truth table."""

import pytest
from hypothesis import given

import dmlsplit as dml
from descriptors import DATA_TYPES, split_descriptors
from dmlsplit.directml.rules import RULES

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
@pytest.mark.parametrize("data_type", [*DATA_TYPES, "UINT4", "INT4"])
@pytest.mark.parametrize("rank", range(1, 10))
def test_a_level_accepts_what_is_documented(level: str, data_type: str, rank: int) -> None:
    x = dml.TensorDesc(data_type, (4,) * rank)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=rank - 1, sizes=(1, 3))
    report = dml.validate(desc, level)
    assert report.ok == documented(level, data_type, rank)
    if not report.ok:
        assert {v.tensor for v in report.violations} == {
            "InputTensor",
            "OutputTensors[0]",
            "OutputTensors[1]",
        }
        minimum = dml.minimum_feature_level(desc)
        accepted = [name for name in LEVELS if documented(name, data_type, rank)]
        assert (str(minimum) if minimum else None) == (accepted[0] if accepted else None)


X = dml.TensorDesc("FLOAT32", (1, 2, 6, 2))
GOOD = dml.SplitOperatorDesc.from_sizes(X, axis=2, sizes=(2, 1, 3))


def with_input(**changes: object) -> dml.SplitOperatorDesc:
    fields = {"data_type": "FLOAT32", "sizes": X.sizes, **changes}
    return dml.SplitOperatorDesc(dml.TensorDesc(**fields), GOOD.output_tensors, GOOD.axis)  # type: ignore[arg-type]


def with_output(**changes: object) -> dml.SplitOperatorDesc:
    first, *rest = GOOD.output_tensors
    fields = {"data_type": "FLOAT32", "sizes": first.sizes, **changes}
    return dml.SplitOperatorDesc(X, (dml.TensorDesc(**fields), *rest), GOOD.axis)  # type: ignore[arg-type]


WIDE = (1, 1, 4, 2**30)
BROKEN = {
    "DML-UINT-RANGE": [
        with_input(strides=(24, 12, -2, 1), total_tensor_size_in_bytes=96),
        dml.SplitOperatorDesc(X, GOOD.output_tensors, -1),
        with_input(guaranteed_base_offset_alignment=2**32),
        with_input(total_tensor_size_in_bytes=2**64),
    ],
    "DML-TENSOR-DATA-TYPE": [
        dml.SplitOperatorDesc.from_sizes(
            dml.TensorDesc("UNKNOWN", (1, 1, 2, 1)), axis=2, sizes=(2,)
        )
    ],
    "DML-TENSOR-DIMENSION-COUNT": [
        dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT8", (2,) * 9), axis=0, sizes=(1, 1))
    ],
    "DML-TENSOR-ZERO-SIZE": [dml.SplitOperatorDesc.from_sizes(X, axis=2, sizes=(6, 0))],
    "DML-TENSOR-ELEMENT-COUNT": [
        dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT8", WIDE), axis=2, sizes=(2, 2))
    ],
    "DML-TENSOR-STRIDE-COUNT": [with_input(strides=(12, 2, 1), total_tensor_size_in_bytes=96)],
    "DML-TENSOR-SIZE-SMALL": [with_input(total_tensor_size_in_bytes=92)],
    "DML-TENSOR-SIZE-DWORD": [with_output(total_tensor_size_in_bytes=33)],
    "DML-TENSOR-SIZE-WRAP": [with_input(strides=(0, 2**32 - 1, 2, 1))],
    "DML-TENSOR-ALIGNMENT": [
        with_input(guaranteed_base_offset_alignment=48),
        with_output(guaranteed_base_offset_alignment=2),
    ],
    "DML-TENSOR-OWNED-OUTPUT": [with_output(flags="OWNED_BY_DML")],
    "DML-TENSOR-OUTPUT-OVERLAP": [
        with_output(strides=(0, 0, 2, 1)),
        with_output(strides=(8, 4, 1, 1)),
    ],
    "DML-SPLIT-OUTPUT-COUNT": [dml.SplitOperatorDesc(X, (), 2)],
    "DML-SPLIT-AXIS-RANGE": [dml.SplitOperatorDesc(X, (X,), 4)],
    "DML-SPLIT-DATA-TYPE-MATCH": [with_output(data_type="INT32")],
    "DML-SPLIT-DIMENSION-COUNT-MATCH": [with_output(sizes=(2, 2, 2))],
    "DML-SPLIT-SIZE-MATCH": [with_output(sizes=(1, 3, 2, 2))],
    "DML-SPLIT-AXIS-SUM": [dml.SplitOperatorDesc.from_sizes(X, axis=2, sizes=(2, 1, 2))],
    "DML-LEVEL-DATA-TYPE": [
        dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT4", (1, 1, 8, 1)), axis=2, sizes=(4, 4))
    ],
}
CASES = [(rule, desc) for rule, descs in BROKEN.items() for desc in descs]


@pytest.mark.parametrize(("rule", "desc"), CASES)
def test_a_rule_broken_alone_is_reported_alone(rule: str, desc: dml.SplitOperatorDesc) -> None:
    report = dml.validate(desc)
    assert report.rule_ids == (rule,)
    assert dml.minimum_feature_level(desc) is None


def test_a_dimension_count_of_another_level_is_reported_alone() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT16", (6,)), axis=0, sizes=(3, 3))
    assert dml.validate(desc, "2_1").rule_ids == ("DML-LEVEL-DIMENSION-COUNT",)


def test_every_descriptor_rule_has_a_case() -> None:
    rules = {rule for rule in RULES if not rule.startswith(("DML-BIND", "DML-ARRAY"))}
    assert rules == {*BROKEN, "DML-LEVEL-DIMENSION-COUNT"}


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
    # These need outputs, or an axis, that can be compared at all.
    missing = {"DML-SPLIT-OUTPUT-COUNT", "DML-SPLIT-AXIS-SUM", "DML-SPLIT-SIZE-MATCH"}
    rules = {rule for rule in RULES if not rule.startswith(("DML-BIND", "DML-ARRAY"))}
    assert set(report.rule_ids) == rules - missing
    outputs = tuple(dml.TensorDesc("FLOAT32", sizes) for sizes in [(4, 1, 2, 1), (4, 1, 3, 5)])
    report = dml.validate(dml.SplitOperatorDesc(X, outputs, 2))
    assert len(report.violations) == 1 + 2 * 2 + 2
    assert set(report.rule_ids) == {"DML-SPLIT-AXIS-SUM", "DML-SPLIT-SIZE-MATCH"}


@pytest.mark.parametrize("stride", [0, 7])
def test_any_stride_is_legal_on_a_dimension_of_one(stride: int) -> None:
    assert dml.validate(with_output(strides=(stride, 4, 2, 1))).ok


def test_an_unknown_level_is_an_error_not_a_report() -> None:
    with pytest.raises(dml.InvalidArgumentError, match="feature level is '9_9'"):
        dml.validate(GOOD, "9_9")


@given(split_descriptors())
def test_well_formed_descriptors_are_accepted(desc: dml.SplitOperatorDesc) -> None:
    report = dml.validate(desc)
    assert report.ok, str(report)
