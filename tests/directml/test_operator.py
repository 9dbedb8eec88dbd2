"""DML_SPLIT_OPERATOR_DESC as a value."""

import pytest

import dmlsplit as dml

INPUT = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))


def test_from_sizes_describes_packed_pieces() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(INPUT, axis=2, sizes=(2, 1, 3))
    assert [out.sizes for out in desc.output_tensors] == [(1, 1, 2, 2), (1, 1, 1, 2), (1, 1, 3, 2)]
    assert desc.output_count == 3
    assert desc.split_sizes == (2, 1, 3)
    assert desc == dml.SplitOperatorDesc(INPUT, list(desc.output_tensors), 2)


@pytest.mark.parametrize("axis", [-1, 4, 7])
def test_a_descriptor_with_an_axis_that_its_input_lacks_can_be_built_and_printed(axis: int) -> None:
    """Its outputs are as large as the input, as no size is that of the axis."""
    desc = dml.SplitOperatorDesc.from_sizes(INPUT, axis=axis, sizes=(3, 3))
    assert str(desc) == f"SPLIT axis {axis}: FLOAT32[1,1,6,2] -> 2 outputs"
    assert desc.output_tensors == (INPUT, INPUT)
    assert desc.split_sizes == ()


@pytest.mark.parametrize("axis", [0, 3])
def test_the_first_and_the_last_dimension_may_be_the_axis(axis: int) -> None:
    assert dml.SplitOperatorDesc.from_sizes(INPUT, axis=axis, sizes=(1, 1)).split_sizes == (1, 1)


def test_many_outputs_are_abbreviated() -> None:
    x = dml.TensorDesc("INT8", (100,))
    text = str(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[1] * 100))
    assert text == f"SPLIT axis 0: INT8[100] -> {', '.join(['INT8[1]'] * 8)}, ... (100 outputs)"
    eight = str(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[1] * 8))
    assert eight == f"SPLIT axis 0: INT8[100] -> {', '.join(['INT8[1]'] * 8)}"
    assert len(text) < 200
