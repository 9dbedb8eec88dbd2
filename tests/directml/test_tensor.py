"""DML_BUFFER_TENSOR_DESC: values, arithmetic, and arguments that are not a descriptor at all."""

import pickle

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.directml.tensor import NUMPY_TYPES


def test_data_types_have_the_values_of_directml_h() -> None:
    names = "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64"
    names += " UINT4 INT4"
    assert [kind.name for kind in dml.TensorDataType] == names.split()
    assert [kind.value for kind in dml.TensorDataType] == list(range(14))
    bits = [0, 32, 16, 32, 16, 8, 32, 16, 8, 64, 64, 64, 4, 4]
    assert [kind.bits for kind in dml.TensorDataType] == bits


LONG_NAME = "DML_TENSOR_DATA_TYPE_FLOAT16"


@pytest.mark.parametrize(
    "name", ["FLOAT16", "float16", LONG_NAME, LONG_NAME.lower(), np.dtype("float16"), 2]
)
def test_a_data_type_is_read_from_any_of_its_names(name: object) -> None:
    assert dml.TensorDataType.parse(name) is dml.TensorDataType.FLOAT16


@pytest.mark.parametrize("text", ["FLOAT", "", None, 14, -1, True, 2.0])
def test_an_unknown_data_type_is_refused_with_the_allowed_ones(text: object) -> None:
    names = "FLOAT32, FLOAT16, UINT32, .*, UINT4, INT4"
    near = r"\. Did you mean FLOAT32\?" if text == "FLOAT" else ""
    message = rf"^data type is {text!r}; it must be one of {names} \(with or .*from 1 to 13{near}$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        dml.TensorDataType.parse(text)


def test_data_types_have_the_names_of_numpy() -> None:
    for kind in dml.TensorDataType:
        known = kind.name.lower() if kind.name not in ("UNKNOWN", "UINT4", "INT4") else None
        assert (np.dtype(kind.numpy_name).name if kind.numpy_name else None) == known
    assert NUMPY_TYPES[dml.TensorDataType.UINT16] == "u2"
    assert len(NUMPY_TYPES) == 11


def test_a_data_type_is_an_integer_that_survives_pickling() -> None:
    kind = dml.TensorDataType.INT64
    assert kind == 11
    assert dml.TensorDataType(11) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "size"),
    [
        ("FLOAT32", (1, 1, 6, 2), None, 48),
        ("UINT8", (1, 1, 1, 3), None, 4),  # rounded up to a DWORD
        ("FLOAT16", (3,), None, 8),
        ("FLOAT32", (2, 3), (8, 1), 44),  # (8 + 2 + 1) elements
        ("FLOAT32", (4, 5), (0, 1), 20),  # broadcast rows
        ("INT4", (3,), None, 4),
        ("UNKNOWN", (3,), None, 0),
        ("FLOAT32", (2, 0), None, 0),
    ],
)
def test_the_buffer_size_is_that_of_dml_calc_buffer_tensor_size(
    data_type: str, sizes: tuple[int, ...], strides: tuple[int, ...] | None, size: int
) -> None:
    assert dml.TensorDesc(data_type, sizes, strides=strides).total_tensor_size_in_bytes == size


def test_the_buffer_size_is_exact_where_dml_calc_buffer_tensor_size_wraps() -> None:
    tensor = dml.TensorDesc("UINT8", (2, 2), strides=(2**32 - 1, 1))
    assert tensor.minimum_size_in_bytes == 2**32 + 4
    assert tensor.wrapped_size_in_bytes == 4


def test_the_last_index_of_an_empty_tensor_is_minus_one() -> None:
    assert dml.TensorDesc("FLOAT32", (2, 0), strides=(9, 9)).last_element_index == -1
    assert dml.TensorDesc("FLOAT32", (2, -1)).last_element_index == -1
    assert dml.TensorDesc("FLOAT32", (2, 3)).last_element_index == 5
    assert dml.TensorDesc("FLOAT32", ()).last_element_index == 0
    assert dml.TensorDesc("FLOAT32", (2, 3), strides=(4, 1, 9)).last_element_index == 6


def test_a_tensor_keeps_its_fields_and_derives_counts_and_strides() -> None:
    total, alignment = np.int64(64), np.int64(32)
    sizes = {"total_tensor_size_in_bytes": total, "guaranteed_base_offset_alignment": alignment}
    owned = {"strides": [8, 1], "flags": "OWNED_BY_DML", **sizes}
    tensor = dml.TensorDesc("INT16", np.array([2, 3]), **owned)
    assert (tensor.sizes, tensor.strides, tensor.effective_strides) == ((2, 3), (8, 1), (8, 1))
    assert tensor.flags is dml.TensorFlags.OWNED_BY_DML
    assert (tensor.total_tensor_size_in_bytes, tensor.minimum_size_in_bytes) == (64, 24)
    assert tensor.guaranteed_base_offset_alignment == 32
    assert (tensor.dimension_count, tensor.element_count, tensor.element_bytes) == (2, 6, 2)
    plain = dml.TensorDesc("UINT4", (2, 3, 4))
    assert (plain.strides, plain.effective_strides, plain.element_bytes) == (None, (12, 4, 1), 0)
    assert (plain.flags, plain.guaranteed_base_offset_alignment) == (0, 0)


def test_flags_are_read_from_names() -> None:
    parse = dml.TensorFlags.parse
    assert parse("DML_TENSOR_FLAG_OWNED_BY_DML") == dml.TensorFlags.OWNED_BY_DML
    assert parse(["OWNED_BY_DML"]) == dml.TensorFlags.OWNED_BY_DML
    assert parse(0) == parse("NONE") == parse([]) == dml.TensorFlags.NONE
    assert parse(1) == parse("owned_by_dml") == parse(["NONE", "OWNED_BY_DML"]) == 1
    assert type(parse([1])) is dml.TensorFlags


def test_unknown_flags_are_refused_as_numbers_and_as_members() -> None:
    made = dml.TensorFlags(4)
    for value in (made, 4):
        with pytest.raises(
            dml.InvalidArgumentError, match=r" 4.*; they must be NONE or OWNED_BY_DML$"
        ):
            dml.TensorFlags.parse(value)


def test_equal_descriptors_have_one_hash_and_cannot_be_changed() -> None:
    one = dml.TensorDesc("FLOAT32", [1, np.int64(2)])
    assert one == dml.TensorDesc("float32", (1, 2))
    assert hash(one) == hash(dml.TensorDesc("float32", (1, 2)))
    with pytest.raises(AttributeError):
        one.sizes = (3,)  # type: ignore[misc]


def test_a_descriptor_prints_in_one_line() -> None:
    assert str(dml.TensorDesc("INT8", (2, 3), strides=(4, 1))) == "INT8[2,3] strides [4,1]"
    assert str(dml.TensorDesc("INT8", (2, 3))) == "INT8[2,3]"
