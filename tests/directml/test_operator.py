"""DML_SPLIT_OPERATOR_DESC as a value."""

import dmlsplit as dml

X = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))


def test_from_sizes_describes_packed_pieces() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(X, axis=2, sizes=(2, 1, 3))
    assert [out.sizes for out in desc.output_tensors] == [(1, 1, 2, 2), (1, 1, 1, 2), (1, 1, 3, 2)]
    assert desc.output_count == 3
    assert desc.split_sizes == (2, 1, 3)
    assert desc == dml.SplitOperatorDesc(X, list(desc.output_tensors), 2)


def test_a_descriptor_with_an_invalid_axis_can_be_built_and_printed() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(X, axis=7, sizes=(3, 3))
    assert str(desc) == "SPLIT axis 7: FLOAT32[1,1,6,2] -> 2 outputs"
    assert desc.split_sizes == ()
    assert [tensor.sizes for tensor in desc.output_tensors] == [X.sizes] * 2
    for axis in (-1, 4):
        desc = dml.SplitOperatorDesc.from_sizes(X, axis=axis, sizes=(3,))
        assert (desc.axis, desc.split_sizes, desc.output_tensors) == (axis, (), (X,))
    assert dml.SplitOperatorDesc.from_sizes(X, axis=3, sizes=(1, 1)).split_sizes == (1, 1)
    assert dml.SplitOperatorDesc.from_sizes(X, axis=0, sizes=(1,)).split_sizes == (1,)


def test_many_outputs_are_abbreviated() -> None:
    x = dml.TensorDesc("INT8", (100,))
    text = str(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[1] * 100))
    assert text == f"SPLIT axis 0: INT8[100] -> {', '.join(['INT8[1]'] * 8)}, ... (100 outputs)"
    eight = str(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[1] * 8))
    assert eight == f"SPLIT axis 0: INT8[100] -> {', '.join(['INT8[1]'] * 8)}"
    assert len(text) < 200
