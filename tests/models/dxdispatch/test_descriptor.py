"""DML_SPLIT_OPERATOR_DESC in JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import read_descriptor
from tests.conformance.cases import descriptor
from tests.support.dxdispatch import F32, split_desc, tensor

PLAIN = {
    "Axis": 0,
    "InputTensor": {"DataType": "FLOAT32", "Sizes": [6]},
    "OutputTensors": [{"DataType": "FLOAT32", "Sizes": [2]}, {"DataType": "FLOAT32", "Sizes": [4]}],
}
DEFAULTS = {
    "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
    "Flags": "DML_TENSOR_FLAG_NONE",
    "DimensionCount": 1,
    "Strides": [],
    "TotalTensorSizeInBytes": 0,
    "GuaranteedBaseOffsetAlignment": 0,
}
WITH_TYPED_TENSORS = {
    "Axis": 0,
    "InputTensor": {
        "Type": "DML_TENSOR_TYPE_BUFFER", "Desc": {"DataType": "FLOAT32", "Sizes": [6]}
    },
    "OutputTensors": [
        {"Type": "BUFFER", "Desc": {"Sizes": [2], **DEFAULTS}},
        {"Type": "BUFFER", "Desc": {"Sizes": [4], **DEFAULTS}},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "form",
    [
        PLAIN,
        {**PLAIN, "OutputCount": 2},
        WITH_TYPED_TENSORS,
        {"type": "DML_OPERATOR_SPLIT", "desc": PLAIN},
        {"Type": "SPLIT", "Desc": WITH_TYPED_TENSORS},
        {"type": "SPLIT", **PLAIN},
    ],
    ids=["plain", "count", "typed tensors", "type and desc", "short type", "type beside fields"],
)
def test_every_spelling_of_a_descriptor_reads_the_same(form: dict[str, Any]) -> None:
    assert str(read_descriptor(form)) == "SPLIT axis 0: FLOAT32[6] -> FLOAT32[2], FLOAT32[4]"


def test_every_tensor_field_is_read_and_the_kit_writes_it_back() -> None:
    promises = {"TotalTensorSizeInBytes": 80, "GuaranteedBaseOffsetAlignment": 32}
    flags = ["OWNED_BY_DML", "NONE"]
    entry = tensor([2, 3], "INT64", Strides=[4, 1], Flags=flags, **promises)
    desc = read_descriptor(split_desc(InputTensor=entry, Axis=1))
    assert desc.axis == 1
    record = descriptor(desc)
    assert read_descriptor(record) == desc
    counts = record["InputTensor"]["DimensionCount"], record["OutputCount"]
    assert counts == (2, len(desc.output_tensors))
    promises = {"total_tensor_size_in_bytes": 80, "guaranteed_base_offset_alignment": 32}
    expected = dml.TensorDesc("INT64", (2, 3), strides=(4, 1), flags="OWNED_BY_DML", **promises)
    assert desc.input_tensor == expected


def test_descriptors_that_break_rules_are_read_and_refused_only_by_validation() -> None:
    source, outputs = tensor([0, -3], "UNKNOWN", Strides=[1]), [tensor([2**40])]
    desc = read_descriptor({"InputTensor": source, "OutputTensors": outputs, "Axis": -1})
    broken = dml.validate(desc).rule_ids
    assert {"DML-TENSOR-ZERO-SIZE", "DML-UINT-RANGE", "DML-TENSOR-STRIDE-COUNT"} <= set(broken)
    assert read_descriptor(descriptor(desc)) == desc
    empty = read_descriptor({"InputTensor": tensor([6]), "OutputTensors": [], "Axis": 0})
    assert "DML-SPLIT-OUTPUT-COUNT" in dml.validate(empty).rule_ids


def error_of(mapping: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgumentError) as error:
        read_descriptor(mapping)
    return str(error.value)


UINT = "it must be an integer from 0 to 4294967295"
# A change, and the error: its place and message.
ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"OutputCount": "3"}, f"OutputCount is '3'; {UINT}"),
    ({"OutputCount": -1}, f"OutputCount is -1; {UINT}"),
    ({"OutputCount": 2**32}, f"OutputCount is 4294967296; {UINT}"),
    ({"OutputCount": 2}, "OutputCount is 2; it must be 3, the number of OutputTensors"),
    ({"type": "JOIN"}, "type is 'JOIN'; it must be DML_OPERATOR_SPLIT"),
    ({"Type": "JOIN"}, "Type is 'JOIN'; it must be DML_OPERATOR_SPLIT"),
    ({"Axis": 0.0}, "Axis is 0.0; it must be an integer"),
    ({"Axis": False}, "Axis is false; it must be an integer"),
    ({"Axis": None}, "Axis is null; it must be an integer"),
    ({"InputTensor": None}, "InputTensor is null; it must be an object"),
    ({"OutputTensors": {}}, "OutputTensors is an object; it must be an array"),
    *(
        ({"InputTensor": changed}, f"InputTensor{message}")
        for changed, message in [
            ({}, " lacks 'Sizes'"),
            ({"Sizes": [6]}, " lacks 'DataType'"),
            ({"DataType": F32, "Sizes": 6}, ".Sizes is 6; it must be an array"),
            (tensor([6.0]), ".Sizes[0] is 6.0; it must be an integer"),
            ({"Desc": tensor(["6"])}, ".Desc.Sizes[0] is '6'; it must be an integer"),
            (tensor([6], Strides="1"), ".Strides is '1'; it must be an array"),
            (tensor([6], Strides=["1"]), ".Strides[0] is '1'; it must be an integer"),
            (tensor([6], DimensionCount=-1), f".DimensionCount is -1; {UINT}"),
            (tensor([6], DimensionCount=2),
             ".DimensionCount is 2; it must be 1, the number of Sizes"),
            (tensor([6], TotalTensorSizeInBytes=2**64),
             f".TotalTensorSizeInBytes is {2**64}; it must be an integer from 0 to {2**64 - 1}"),
            (tensor([6], GuaranteedBaseOffsetAlignment=2**32),
             f".GuaranteedBaseOffsetAlignment is 4294967296; {UINT}"),
            (tensor([6], Flags=["OWNED"]), ".Flags[0] is 'OWNED'; it must be one of NONE, "
             "OWNED_BY_DML, with or without DML_TENSOR_FLAG_"),
            (tensor([6], Type="TEXTURE"),
             ".Type is 'TEXTURE'; it must be one of BUFFER, with or without DML_TENSOR_TYPE_"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), ERRORS)
def test_an_error_names_the_path_the_value_and_the_requirement(
    changes: dict[str, Any], message: str
) -> None:
    assert error_of(split_desc(**changes)) == message


def test_an_error_names_the_missing_key_and_the_path_of_its_object() -> None:
    for name in ("InputTensor", "OutputTensors", "Axis"):
        lacking = {key: value for key, value in split_desc().items() if key != name}
        assert error_of(lacking) == f"lacks {name!r}"
        assert error_of({"type": "SPLIT", "desc": lacking}) == f"desc lacks {name!r}"
    kind = error_of(split_desc(InputTensor=tensor([6], "float")))
    assert kind.startswith("InputTensor.DataType is 'float'; it must be one of UNKNOWN, FLOAT32")


TEXTS = st.text(max_size=8) | st.sampled_from(["SPLIT", F32])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS)
NAMES = "type desc Axis InputTensor OutputTensors OutputCount DataType Sizes Strides Flags"
KEYS = st.sampled_from(NAMES.split())
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@given(mapping=st.dictionaries(KEYS, TREES, max_size=6))
def test_any_mapping_gives_a_descriptor_or_an_invalid_argument_error(
    mapping: dict[str, Any],
) -> None:
    try:
        desc = read_descriptor(mapping)
    except InvalidArgumentError:
        return
    dml.validate(desc)


def test_the_largest_numbers_are_read() -> None:
    def read(**fields: Any) -> dml.TensorDesc:
        return read_descriptor(split_desc(InputTensor=tensor([6], **fields))).input_tensor

    largest = read(TotalTensorSizeInBytes=2**64 - 1, GuaranteedBaseOffsetAlignment=2**32 - 1)
    assert largest.total_tensor_size_in_bytes == 2**64 - 1
    assert largest.guaranteed_base_offset_alignment == 2**32 - 1
    assert read() == read(Flags=[]) == dml.TensorDesc("FLOAT32", (6,))
    assert read(Flags="DML_TENSOR_FLAG_OWNED_BY_DML").flags == dml.TensorFlags.OWNED_BY_DML


def test_more_entries_than_a_tensor_may_have_are_refused_before_they_are_read() -> None:
    content = split_desc(InputTensor=tensor([2**63] * 1000))
    with pytest.raises(InvalidArgumentError, match="has 1000 entries; DirectML takes at most 8"):
        read_descriptor(content)
