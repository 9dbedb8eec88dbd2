"""Two models on the same random inputs, in a child process."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import dmlsplit as dml
from dmlsplit.lint.fix.comparison import compare_models
from tests.models import model, sequence, single

Saved = Callable[[onnx.ModelProto], Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    def save(content: onnx.ModelProto) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        onnx.save(content, path)
        return path

    return save


@pytest.mark.parametrize(
    "content",
    [
        single(TensorProto.FLOAT, (6,), (2, 4), 0),
        single(TensorProto.INT8, ("n", 4), (1, 3), 1),
        single(TensorProto.STRING, (6,), (2, 4), 0),
        single(TensorProto.BFLOAT16, (6,), (2, 4), 0),
        sequence(TensorProto.FLOAT, (2, 3)),
    ],
)
def test_a_model_equals_itself(saved: Saved, content: onnx.ModelProto) -> None:
    path = saved(content)
    assert compare_models(path, path) in ("onnxruntime", "onnx.reference")


def test_other_values_are_found(saved: Saved) -> None:
    def along(axis: int) -> Path:
        return saved(single(TensorProto.FLOAT, (4, 4), (2, 2), axis))

    with pytest.raises(dml.InvalidArgumentError, match=r"outputs\[0\]: float32.* became float32"):
        compare_models(along(0), along(1))
    swapped = single(TensorProto.FLOAT, (4,), (2, 2), 0)
    del swapped.graph.node[1].output[:]
    swapped.graph.node[1].output.extend(["cut_1", "cut_0"])
    with pytest.raises(dml.InvalidArgumentError, match="the values differ"):
        compare_models(saved(single(TensorProto.FLOAT, (4,), (2, 2), 0)), saved(swapped))


def test_a_model_that_does_not_run_proves_nothing(saved: Saved) -> None:
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], domain="nowhere")
    path = saved(model([node], {"x": (TensorProto.FLOAT, (2,))}, {"y": TensorProto.FLOAT}))
    with pytest.raises(dml.UnsupportedError, match="could not be compared"):
        compare_models(path, path)


def test_a_runtime_that_ends_its_process_is_survived(saved: Saved) -> None:
    # ONNX Runtime 1.31 aborts while it loads this node; so does ONNX's shape inference.
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], axis=0, num_outputs=2)
    path = saved(model([node], {"x": (TensorProto.FLOAT, (6,))}, {"a": TensorProto.FLOAT}))
    with pytest.raises(dml.UnsupportedError, match="could not be compared"):
        compare_models(path, path)
