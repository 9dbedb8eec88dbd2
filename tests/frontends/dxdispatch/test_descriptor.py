"""DML_SPLIT_OPERATOR_DESC in JSON."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import read_descriptor
from tests.support.dxdispatch_models import F32, split_desc, tensor

# Dispatchables.


def test_forms_of_a_descriptor_are_one() -> None:
    plain = split_desc()
    expected = read_descriptor(plain)
    wrapped = {
        **plain,
        "InputTensor": {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": plain["InputTensor"]},
        "OutputTensors": [
            {
                "Type": "BUFFER",
                "Desc": {
                    **entry,
                    "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
                    "Flags": "DML_TENSOR_FLAG_NONE",
                    "DimensionCount": 1,
                    "Strides": [],
                    "TotalTensorSizeInBytes": 0,
                    "GuaranteedBaseOffsetAlignment": 0,
                },
            }
            for entry in plain["OutputTensors"]
        ],
    }
    without_count = {key: value for key, value in plain.items() if key != "OutputCount"}
    for form in (
        wrapped,
        without_count,
        {"type": "DML_OPERATOR_SPLIT", "desc": plain},
        {"Type": "SPLIT", "Desc": wrapped},
        {"type": "SPLIT", **plain},
    ):
        assert read_descriptor(form) == expected
    assert str(expected) == "SPLIT axis 0: FLOAT32[6] -> FLOAT32[2], FLOAT32[1], FLOAT32[3]"


def test_every_tensor_field_is_read() -> None:
    entry = tensor(
        [2, 3],
        "INT64",
        Strides=[4, 1],
        Flags=["OWNED_BY_DML", "NONE"],
        TotalTensorSizeInBytes=80,
        GuaranteedBaseOffsetAlignment=32,
    )
    desc = read_descriptor(
        {"InputTensor": entry, "OutputTensors": [tensor([2, 3], "INT64")], "Axis": 1}
    )
    assert desc.input_tensor == dml.TensorDesc(
        "INT64",
        (2, 3),
        strides=(4, 1),
        flags="OWNED_BY_DML",
        total_tensor_size_in_bytes=80,
        guaranteed_base_offset_alignment=32,
    )


def test_bad_descriptors_are_left_to_validation() -> None:
    desc = read_descriptor(
        {
            "InputTensor": tensor([0, -3], "UNKNOWN", Strides=[1]),
            "OutputTensors": [tensor([2**40])],
            "Axis": -1,
        }
    )
    broken = dml.validate(desc).rule_ids
    assert {"DML-TENSOR-ZERO-SIZE", "DML-UINT-RANGE", "DML-TENSOR-STRIDE-COUNT"} <= set(broken)
    empty = read_descriptor({"InputTensor": tensor([6]), "OutputTensors": [], "Axis": 0})
    assert "DML-SPLIT-OUTPUT-COUNT" in dml.validate(empty).rule_ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"OutputCount": "3"}, "OutputCount: is '3'; it must be an integer"),
        ({"Axis": 0.0}, "Axis: is 0.0; it must be an integer"),
        ({"Axis": False}, "Axis: is false"),
        ({"Axis": None}, "Axis: is null"),
        ({"InputTensor": None}, "InputTensor: is null; it must be an object"),
        ({"InputTensor": {}}, "InputTensor: lacks 'Sizes'"),
        ({"InputTensor": {"Sizes": [6]}}, "InputTensor: lacks 'DataType'"),
        (
            {"InputTensor": tensor([6], "float")},
            "DataType: is 'float'; it must be one of UNKNOWN, FLOAT32",
        ),
        ({"InputTensor": tensor([6.0])}, "InputTensor.Sizes[0]: is 6.0"),
        ({"InputTensor": {"DataType": F32, "Sizes": 6}}, "Sizes: is 6; it must be an array"),
        ({"InputTensor": tensor([6], Strides="1")}, "Strides: is '1'; it must be an array"),
        ({"OutputTensors": {}}, "OutputTensors: is an object; it must be an array"),
    ],
)
def test_descriptors_that_are_none(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)) as error:
        read_descriptor(split_desc(**changes))
    assert "\n" not in str(error.value)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["SPLIT", F32]),
)


keys = st.sampled_from(
    [
        "type",
        "desc",
        "Axis",
        "InputTensor",
        "OutputTensors",
        "OutputCount",
        "DataType",
        "Sizes",
        "Strides",
        "Flags",
    ]
)


trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=6)),
    max_leaves=20,
)


@settings(settings.get_profile("many"))
@given(mapping=st.dictionaries(keys, trees, max_size=6))
def test_any_mapping_is_a_descriptor_or_one_error(mapping: dict[str, Any]) -> None:
    try:
        desc = read_descriptor(mapping)
    except InvalidArgumentError:
        return
    dml.validate(desc)


def error_of(mapping: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgumentError) as error:
        read_descriptor(mapping)
    return str(error.value)


def test_an_error_is_a_path_a_value_and_what_is_allowed() -> None:
    plain = split_desc()
    wrapped = {"type": "SPLIT", "desc": split_desc(OutputCount=-1)}
    assert (
        error_of(wrapped) == "desc.OutputCount: is -1; it must be an integer from 0 to 4294967295"
    )
    assert error_of({**plain, "OutputCount": 2**32}).startswith("OutputCount: is 4294967296")
    assert error_of({**plain, "OutputCount": 2}) == (
        "OutputCount: is 2; it must be 3, the number of OutputTensors"
    )
    assert error_of({**plain, "type": "JOIN"}) == "type: is 'JOIN'; it must be DML_OPERATOR_SPLIT"
    for name in ("InputTensor", "OutputTensors", "Axis"):
        assert error_of({k: v for k, v in plain.items() if k != name}) == f"lacks {name!r}"
    tensors: list[tuple[dict[str, Any], str]] = [
        (tensor([6], DimensionCount=2), "DimensionCount: is 2; it must be 1, the number of Sizes"),
        (
            tensor([6], DimensionCount=-1),
            "DimensionCount: is -1; it must be an integer from 0 to 4294967295",
        ),
        (
            tensor([6], TotalTensorSizeInBytes=2**64),
            "TotalTensorSizeInBytes: is 18446744073709551616; "
            "it must be an integer from 0 to 18446744073709551615",
        ),
        (
            tensor([6], GuaranteedBaseOffsetAlignment=2**32),
            "GuaranteedBaseOffsetAlignment: is 4294967296; "
            "it must be an integer from 0 to 4294967295",
        ),
        (
            tensor([6], Flags=["OWNED"]),
            "Flags[0]: is 'OWNED'; it must be one of NONE, OWNED_BY_DML, "
            "with or without DML_TENSOR_FLAG_",
        ),
        (
            tensor([6], Type="TEXTURE"),
            "Type: is 'TEXTURE'; it must be one of BUFFER, with or without DML_TENSOR_TYPE_",
        ),
        (tensor([6], Strides=["1"]), "Strides[0]: is '1'; it must be an integer"),
    ]
    for changed, message in tensors:
        assert error_of({**plain, "InputTensor": changed}) == f"InputTensor.{message}"
    inside = {"Type": "BUFFER", "Desc": tensor(["6"])}  # type: ignore[list-item]
    assert error_of({**plain, "InputTensor": inside}) == (
        "InputTensor.Desc.Sizes[0]: is '6'; it must be an integer"
    )


def test_the_largest_numbers_are_read() -> None:
    entry = tensor(
        [6], TotalTensorSizeInBytes=2**64 - 1, GuaranteedBaseOffsetAlignment=2**32 - 1, Flags=[]
    )
    found = read_descriptor(split_desc(InputTensor=entry)).input_tensor
    assert found.total_tensor_size_in_bytes == 2**64 - 1
    assert found.guaranteed_base_offset_alignment == 2**32 - 1
    assert found.strides is None
    assert found.flags == dml.TensorFlags.NONE
    packed = read_descriptor(split_desc()).input_tensor
    assert packed == dml.TensorDesc("FLOAT32", (6,))
    owned = read_descriptor(
        split_desc(InputTensor=tensor([6], Flags="DML_TENSOR_FLAG_OWNED_BY_DML"))
    )
    assert owned.input_tensor.flags == dml.TensorFlags.OWNED_BY_DML
