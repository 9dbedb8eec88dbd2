"""Versions and data types of ONNX's splits."""

import pytest

import dmlsplit as dml
from dmlsplit.frontends.onnx import ElementType, operator_version
from dmlsplit.models.onnx.operators import CARRIERS, element_bytes


@pytest.mark.parametrize(
    ("name", "opset", "since"),
    [("Split", o, s) for o, s in [(1, 1), (2, 2), (10, 2), (11, 11), (12, 11), (13, 13)]]
    + [("Split", o, s) for o, s in [(17, 13), (18, 18), (28, 18)]]
    + [("SplitToSequence", o, s) for o, s in [(11, 11), (23, 11), (24, 24), (28, 24)]],
)
def test_an_opset_means_the_newest_version_up_to_it(name: str, opset: int, since: int) -> None:
    assert str(operator_version(name, opset)) == f"{name}-{since}"


@pytest.mark.parametrize(("name", "opset", "first"), [("Split", 0, 1), ("SplitToSequence", 10, 11)])
def test_an_opset_before_the_first_version_is_refused(name: str, opset: int, first: int) -> None:
    message = f"^{name}: opset is {opset}; the operator exists since opset {first}$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        operator_version(name, opset)
    with pytest.raises(dml.InvalidArgumentError, match=f"^{name}: opset is "):
        operator_version(name, "13")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("element_type", "size"),
    [("BOOL", 1), ("FLOAT16", 2), ("BFLOAT16", 2), ("COMPLEX64", 8), ("COMPLEX128", 16)],
)
def test_an_element_has_the_bytes_of_its_type(element_type: str, size: int) -> None:
    assert element_bytes(element_type) == size


def test_an_element_of_unknown_type_counts_as_a_float_and_strings_have_no_size() -> None:
    assert element_bytes(None) == 4
    assert element_bytes("STRING") is None


def test_signatures_and_types_are_those_of_the_onnx_package() -> None:
    onnx = pytest.importorskip("onnx", reason="compares with the schemas of the package onnx")
    assert {k.name: int(k) for k in ElementType} == dict(onnx.TensorProto.DataType.items())
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain or schema.name not in ("Split", "SplitToSequence"):
            continue
        signature = operator_version(schema.name, schema.since_version)
        assert signature.since == schema.since_version
        assert set(schema.attributes) == set(signature.attributes)
        assert schema.max_input == (2 if signature.split_types else 1)


def test_the_type_of_an_array_is_known_by_name() -> None:
    names = {"float32": "FLOAT", "float64": "DOUBLE", "torch.float32": "FLOAT"}
    names |= {"torch.bfloat16": "BFLOAT16", "float8_e4m3fn": "FLOAT8E4M3FN"}
    names |= {"float4_e2m1fn": "FLOAT4E2M1", "float8_e8m0fnu": "FLOAT8E8M0"}
    names |= dict.fromkeys(("object", "<U3", ">U3", "StringDType()"), "STRING")
    names |= dict.fromkeys((">f4", "datetime64[ns]"), "UNDEFINED")
    assert {name: ElementType.of_dtype(name).name for name in names} == names


def test_a_number_that_a_later_onnx_gives_to_a_type_is_undefined() -> None:
    assert ElementType(99) is ElementType.UNDEFINED
    with pytest.raises(ValueError, match="'99'"):
        ElementType("99")


def test_every_type_is_carried_by_itself_or_by_an_unsigned_type() -> None:
    assert {kind.name: carrier.name for kind, (carrier, _) in CARRIERS.items()} == {
        "FLOAT": "FLOAT32",
        "DOUBLE": "FLOAT64",
        "BFLOAT16": "UINT16",
        "BOOL": "UINT8",
        "COMPLEX64": "UINT64",
        "COMPLEX128": "UINT64",
        "FLOAT16": "FLOAT16",
        **{f"{s}INT{b}": f"{s}INT{b}" for s in ("", "U") for b in (8, 16, 32, 64)},
    }
    lanes = {kind.name: lanes for kind, (_, lanes) in CARRIERS.items()}
    assert lanes.pop("COMPLEX128") == 2
    assert set(lanes.values()) == {1}
