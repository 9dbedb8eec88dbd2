"""DML_SPLIT_OPERATOR_DESC as a value."""

import pytest

import dmlsplit as dml

X = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))


def test_from_sizes_describes_packed_pieces() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(X, axis=2, sizes=(2, 1, 3))
    assert [out.sizes for out in desc.output_tensors] == [(1, 1, 2, 2), (1, 1, 1, 2), (1, 1, 3, 2)]
    assert desc.output_count == 3
    assert desc.split_sizes == (2, 1, 3)
    assert desc == dml.SplitOperatorDesc(X, list(desc.output_tensors), 2)


def test_fields_stand_in_the_order_of_the_struct() -> None:
    fields = dml.SplitOperatorDesc.__dataclass_fields__
    # InputTensor, (OutputCount,) OutputTensors, Axis: DirectML.h.
    assert list(fields) == ["input_tensor", "output_tensors", "axis"]


def test_a_bad_axis_can_be_built_and_printed() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(X, axis=7, sizes=(3, 3))
    assert str(desc).startswith("SPLIT axis 7: FLOAT32[1,1,6,2] -> ")
    assert desc.split_sizes == ()


def test_many_outputs_print_in_short() -> None:
    x = dml.TensorDesc("INT8", (100,))
    text = str(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[1] * 100))
    assert text.endswith("... (100 outputs)")
    assert len(text) < 200


@pytest.mark.parametrize(
    ("source", "outputs", "axis", "message"),
    [
        ("x", (X,), 0, "input_tensor is a str"),
        (X, (X, None), 0, r"output_tensors\[1\] is a NoneType"),
        (X, (X,), 0.0, "axis is 0.0"),
    ],
)
def test_what_is_no_descriptor_is_refused(
    source: object, outputs: object, axis: object, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        dml.SplitOperatorDesc(source, outputs, axis)  # type: ignore[arg-type]
