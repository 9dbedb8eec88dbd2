"""Arguments of ONNX splits, checked without a shape."""

from __future__ import annotations

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.frontends.onnx import (
    ElementType,
    lower,
    node_arguments,
    operator_version,
)
from onnx_splits import INT64, refused


@pytest.mark.parametrize("opset", [13, 18])
def test_sizes_as_input_must_be_int64(opset: int) -> None:
    operator = operator_version("Split", opset)
    with pytest.raises(dml.InvalidArgumentError, match=r"split has data type int32; .* INT64"):
        node_arguments(operator, {}, [np.array([2, 4], np.int32)], 2)


def test_split_and_num_outputs_together_are_refused() -> None:
    text = refused("Split", 18, (6,), split=[2, 4], num_outputs=2)
    assert "num_outputs is 2 and sizes are given; one of them may be given" in text


@pytest.mark.parametrize(("asked", "outputs"), [(3, 2), (2, 3)])
def test_num_outputs_other_than_the_number_of_outputs_is_refused(asked: int, outputs: int) -> None:
    text = refused("Split", 18, (6,), num_outputs=asked, output_count=outputs)
    assert f"num_outputs is {asked}, and there are {outputs} outputs; both must be equal" in text


@pytest.mark.parametrize("value", [0, -1])
def test_num_outputs_must_be_positive(value: int) -> None:
    assert "it must be at least 1" in refused("Split", 18, (6,), num_outputs=value)


@pytest.mark.parametrize("opset", [13, 18])
def test_split_omitted_by_an_empty_name_is_no_split(opset: int) -> None:
    operator = operator_version("Split", opset)
    attributes = {"num_outputs": 2} if opset == 18 else {}
    arguments = node_arguments(operator, attributes, [None], 2)
    assert lower(arguments, ElementType.FLOAT, (6,)).sizes == (3, 3)


def test_split_1_takes_whole_floats_and_an_axis_of_0_with_a_warning() -> None:
    operator = operator_version("Split", 1)
    for kind in (np.float16, np.float32, np.float64):
        arguments = node_arguments(operator, {"axis": 0}, [np.array([2, 4], kind)], 2)
        assert arguments.split == (2, 4)
        assert not arguments.assumed
    assert "names no default axis" in node_arguments(operator, {}, [], 2).assumed[0]
    for wrong in (0.5, np.nan, np.inf):
        with pytest.raises(dml.InvalidArgumentError, match="its values must be whole numbers"):
            node_arguments(operator, {}, [np.array([wrong, 4], np.float32)], 2)
    with pytest.raises(dml.InvalidArgumentError, match="given as input and as attribute"):
        node_arguments(operator, {"split": [2, 4]}, [np.array([2, 4], np.float32)], 2)


@pytest.mark.parametrize("opset", [2, 11])
def test_sizes_are_an_attribute_before_opset_13_and_an_input_after(opset: int) -> None:
    sizes = np.array([2, 4], INT64)
    assert node_arguments(operator_version("Split", opset), {"split": [2, 4]}, [], 2).split
    with pytest.raises(dml.InvalidArgumentError, match=r"at most 1 exist\. Fix: before opset 13"):
        node_arguments(operator_version("Split", opset), {}, [sizes], 2)
    with pytest.raises(dml.InvalidArgumentError, match="Fix: since opset 13, sizes are the second"):
        node_arguments(operator_version("Split", 13), {"split": [2, 4]}, [], 2)


@pytest.mark.parametrize("opset", [1, 2, 11, 13])
def test_num_outputs_exists_since_opset_18(opset: int) -> None:
    assert "it exists since opset 18" in refused("Split", opset, (6,), axis=0, num_outputs=2)
