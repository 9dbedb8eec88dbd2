"""DML_BUFFER_TENSOR_DESC: values, arithmetic, and what is no descriptor at all."""

import numpy as np
import pytest

import dmlsplit as dml


def test_data_types_have_the_values_of_directml_h() -> None:
    names = "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64"
    names += " UINT4 INT4"
    assert [kind.name for kind in dml.TensorDataType] == names.split()
    assert [kind.value for kind in dml.TensorDataType] == list(range(14))
    bits = [0, 32, 16, 32, 16, 8, 32, 16, 8, 64, 64, 64, 4, 4]
    assert [kind.bits for kind in dml.TensorDataType] == bits


@pytest.mark.parametrize(
    "text", ["FLOAT16", "float16", "DML_TENSOR_DATA_TYPE_FLOAT16", np.dtype("float16"), 2]
)
def test_a_data_type_is_read_from_any_of_its_names(text: object) -> None:
    assert dml.TensorDataType.parse(text) is dml.TensorDataType.FLOAT16


@pytest.mark.parametrize("text", ["FLOAT", "", None, 14, -1, True, 2.0])
def test_an_unknown_data_type_is_refused_with_the_allowed_ones(text: object) -> None:
    with pytest.raises(ValueError, match="must be one of UNKNOWN, FLOAT32"):
        dml.TensorDataType.parse(text)


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


def test_the_buffer_size_is_exact_where_the_original_wraps() -> None:
    tensor = dml.TensorDesc("UINT8", (2, 2), strides=(2**32 - 1, 1))
    assert tensor.minimum_size_in_bytes == 2**32 + 4
    assert tensor.wrapped_size_in_bytes == 4


@pytest.mark.parametrize("sizes", [(1.0,), ("1",), (True,), 3, "123", (None,)])
def test_sizes_that_are_no_integers_are_no_descriptor(sizes: object) -> None:
    with pytest.raises(TypeError, match="sizes"):
        dml.TensorDesc("FLOAT32", sizes)  # type: ignore[arg-type]


def test_flags_are_read_from_names() -> None:
    parse = dml.TensorFlags.parse
    assert parse("DML_TENSOR_FLAG_OWNED_BY_DML") == dml.TensorFlags.OWNED_BY_DML
    assert parse(["OWNED_BY_DML"]) == dml.TensorFlags.OWNED_BY_DML
    assert parse(0) == parse("NONE") == parse([]) == dml.TensorFlags.NONE
    with pytest.raises(ValueError, match="NONE or OWNED_BY_DML"):
        parse("SHARED")


def test_descriptors_are_values() -> None:
    one = dml.TensorDesc("FLOAT32", [1, np.int64(2)])
    assert one == dml.TensorDesc("float32", (1, 2))
    assert hash(one) == hash(dml.TensorDesc("float32", (1, 2)))
    with pytest.raises(AttributeError):
        one.sizes = (3,)  # type: ignore[misc]


def test_a_descriptor_prints_in_one_line() -> None:
    assert str(dml.TensorDesc("INT8", (2, 3), strides=(4, 1))) == "INT8[2,3] strides [4,1]"
