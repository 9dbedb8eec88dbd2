"""Two models on the same random inputs, in a child process."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dmlsplit as dml
from dmlsplit.lint.fix import comparison
from dmlsplit.lint.fix.comparison import compare_models
from dmlsplit.lint.fix.feeds import feeds_of
from tests.support.fixtures import Patch
from tests.support.models import model, sequence, single

pytestmark = pytest.mark.usefixtures("forked_children")

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
    assert compare_models(path, path).engine in ("onnxruntime", "onnx.reference")


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


def test_a_runtime_that_crashes_its_process_does_not_crash_ours(saved: Saved) -> None:
    # ONNX Runtime 1.32 aborts while it loads this node; so does ONNX's shape inference.
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], axis=0, num_outputs=2)
    path = saved(model([node], {"x": (TensorProto.FLOAT, (6,))}, {"a": TensorProto.FLOAT}))
    assert compare_models(path, path).engine == "onnx.reference"


def test_if_every_runtime_fails_each_says_why(saved: Saved) -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"], axis=7, num_outputs=2)
    path = saved(model([node], {"x": (TensorProto.FLOAT, (6,))}, {"a": TensorProto.FLOAT}))
    with pytest.raises(dml.UnsupportedError, match=r"onnxruntime: .*; onnx\.reference: "):
        compare_models(path, path)


# The inputs that models run on.


def runs(
    saved: Saved, shape: tuple[int | str, ...] | None, **given: object
) -> list[dict[str, np.ndarray]]:
    path = saved(single(TensorProto.FLOAT, shape, (2, 2), 1))
    feed = given.get("feed")
    sizes = {name: size for name, size in given.items() if name != "feed"}
    return [feeds for feeds, _ in feeds_of(str(path), sizes, feed)]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", ["n", -1])
def test_dynamic_sizes_are_small_and_large(saved: Saved, size: int | str) -> None:
    found = {feeds["x"].shape[0] for feeds in runs(saved, (size, 4))}
    assert {1, 2, 8, 224, 512} <= found


def test_three_runs_meet_three_sizes_of_each_dimension(saved: Saved) -> None:
    """In each run the sizes differ, so that two dimensions cannot be mistaken for each other."""
    shapes = [feeds["x"].shape for feeds in runs(saved, ("n", 4, "m"))[:3]]
    assert all(len({shape[axis] for shape in shapes}) == 3 for axis in (0, 2))
    assert all(shape[0] != shape[2] for shape in shapes)


@pytest.mark.parametrize("name", "int8 uint64 bool float64 float16 object".split())
def test_integers_span_their_range_and_are_then_small(saved: Saved, name: str) -> None:
    names = {"float64": "DOUBLE", "object": "STRING"}
    kind = getattr(TensorProto, names.get(name, name.upper()))
    path = saved(single(kind, (64, 64), (32, 32), 0))
    whole, _, small, *_ = (feeds["x"] for feeds, _ in feeds_of(str(path), {}, None))
    assert whole.dtype == small.dtype == name
    if whole.dtype.kind in "iu":
        limits = np.iinfo(name)
        # In 4096 random numbers, each of the 256 of int8 occurs.
        least = 1 if name == "int8" else 0.98
        assert np.ptp(whole.astype(float)) >= least * (float(limits.max) - limits.min)
        assert set(small.flat) == {0, 1}
    else:
        assert len(set(small.flat)) >= {"bool": 2, "object": 100}.get(name, 1000)
        assert name != "object" or all(isinstance(text, str) for text in small.flat)


def test_fixed_inputs_are_few_and_the_same_in_each_run(saved: Saved) -> None:
    path = str(saved(single(TensorProto.FLOAT, (4,), (2, 2), 0)))
    first, again = (list(feeds_of(path, {}, None)) for _ in range(2))
    assert [fatal for _, fatal in first] == [False] * 4
    np.testing.assert_equal(first, again)


def test_an_initializer_is_no_input_and_its_data_are_not_read(tmp_path: Path) -> None:
    content = single(TensorProto.FLOAT, (0, 4), (2, 2), 1)
    content.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(9, np.float32), "w"))
    content.graph.input.insert(0, helper.make_tensor_value_info("w", TensorProto.FLOAT, (9,)))
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(content, tmp_path / "m.onnx", **options)
    (tmp_path / "w.bin").unlink()
    for feeds, _ in feeds_of(str(tmp_path / "m.onnx"), {}, None):
        assert {name: array.shape for name, array in feeds.items()} == {"x": (0, 4)}


def test_an_input_that_is_not_a_tensor_is_named(saved: Saved) -> None:
    content = single(TensorProto.FLOAT, (4,), (2, 2), 0)
    content.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    with pytest.raises(RuntimeError, match=r"^input 's' is not a tensor"):
        feeds_of(str(saved(content)), {}, None)


def test_given_inputs_and_sizes_are_used(saved: Saved, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "feed.npz", x=x)
    for shape in (("n", 4), None):
        for feeds in runs(saved, shape, feed=tmp_path / "feed.npz"):
            np.testing.assert_array_equal(feeds["x"], x)
    assert {feeds["x"].shape for feeds in runs(saved, ("n", 4), n=7)} == {(7, 4)}
    assert {feeds["x"].shape for feeds in runs(saved, ("n", 4), **{"x.0": 5})} == {(5, 4)}
    np.savez(tmp_path / "feed.npz", y=x)
    with pytest.raises(dml.InvalidArgumentError, match="has 'y'; the model's inputs are x"):
        runs(saved, ("n", 4), feed=tmp_path / "feed.npz")


@pytest.mark.parametrize("engine", ["onnxruntime", "onnx.reference"])
def test_the_nodes_that_run_are_counted(saved: Saved, engine: str, monkeypatch: Patch) -> None:
    path = saved(single(TensorProto.FLOAT, (4,), (2, 2), 0))
    monkeypatch.setattr(comparison, "ENGINES", {engine: comparison.ENGINES[engine]})
    found = compare_models(path, path, ("cut", "other"))
    assert (found.engine, found.ran) == (engine, 1)
    assert found.runs > 1
