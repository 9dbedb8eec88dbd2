"""ONNX's shape inference runs in a child process and fills gaps; a crash there is only noted."""

from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dmlsplit.errors import UnsupportedError
from dmlsplit.frontends.onnx import FixedSizes, child
from dmlsplit.frontends.onnx.folding import constants
from dmlsplit.frontends.site import Cause
from tests.support.onnx_graphs import INT64, SCALES, Scanned, model, node, resized, sizes, value

pytestmark = pytest.mark.usefixtures("one_child")
CUT = node("Split", "y", "a b", name="cut", axis=1, num_outputs=2)
AFTER_RESIZE = "its shape is unknown after Resize 'up' of main"


def test_a_gap_is_filled(scanned: Scanned) -> None:
    content = resized([1, 4, 8, 8])
    (found,) = scanned(content)
    assert (found.unknown, found.cause) == (AFTER_RESIZE, Cause.UNTRACKED)
    (found,) = scanned(content, infer_shapes=True)
    assert found.shape == (1, 4, 16, 16)


def test_given_sizes_count_there(scanned: Scanned) -> None:
    content = resized(["n", 4, 8, 8])
    (found,) = scanned(content, infer_shapes=True)
    assert (found.unknown, found.cause) == ("dimension 0 is dynamic", Cause.DYNAMIC)
    for name in ("n", "x.0"):
        (found,) = scanned(content, dimensions=FixedSizes({name: 3}), infer_shapes=True)
        assert found.shape == (3, 4, 16, 16)


def test_large_weights_are_not_sent_back(tmp_path: Path) -> None:
    content = resized([1, 4, 8, 8])
    zeros = np.zeros((1024, 1024), np.float32)
    content.graph.initializer.append(numpy_helper.from_array(zeros, "w"))
    (tmp_path / "m.onnx").write_bytes(content.SerializeToString())
    with child.kept() as kept:
        assert len(kept.answer(str(tmp_path / "m.onnx"), {})) < 2000


def test_a_crash_is_noted(scanned: Scanned) -> None:
    # This crashes ONNX's shape inference with SIGABRT.
    content = resized([1, 4, 8, 8], node("Split", "x", "p q r", axis=1, num_outputs=2))
    found, wrong = scanned(content, infer_shapes=True)
    assert found.unknown.startswith(f"{AFTER_RESIZE}; onnx's")
    assert "shape inference failed: " in found.unknown
    assert "num_outputs is 2 for 3 outputs" in wrong.problem


@pytest.mark.parametrize("equation", ["......", "a...b...->ab", "ab->ab,......"])
def test_an_equation_that_onnx_parses_forever_is_not_passed_to_it(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch, equation: str
) -> None:
    monkeypatch.setattr(child, "SECONDS", 10)
    nodes = [node("Einsum", "x", "y", name="sum", equation=equation), CUT]
    (found,) = scanned(model(nodes, [value("x", [2, 6])]), infer_shapes=True)
    assert found.unknown == "its shape is unknown after Einsum 'sum' of main"


@pytest.fixture
def own_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own for this test, which starts in it."""
    monkeypatch.setattr(child, "_KEPT", ContextVar("_KEPT", default=None))


@pytest.mark.usefixtures("own_child")
def test_a_child_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Replaces the package onnx in the child.
    (tmp_path / "onnx.py").write_text("raise ValueError('no\\nsuch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with child.kept() as kept, pytest.raises(UnsupportedError, match=r"such \(exit status 1\)"):
        kept.answer(str(tmp_path / "m.onnx"), {})


@pytest.mark.usefixtures("own_child")
def test_nothing_is_imported_from_the_current_folder(
    scanned: Scanned, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    Path("onnx.py").write_text("raise SystemExit(7)")
    Path("json.py").write_text("raise SystemExit(7)")
    (found,) = scanned(resized([1, 4, 8, 8]), infer_shapes=True)
    assert found.descriptors


def test_without_onnx_the_gap_is_reported(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "is_installed", lambda: False)
    (found,) = scanned(resized([1, 4, 8, 8]), infer_shapes=True)
    assert found.unknown == AFTER_RESIZE


def test_no_process_starts_if_nothing_is_missing(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "kept", None)
    relu = [node("Relu", "x", "y"), CUT]
    (known,) = scanned(model(relu, [value("x", [2, 6])]), infer_shapes=True)
    (dynamic,) = scanned(model(relu, [value("x", ["n", 6])]), infer_shapes=True)
    assert known.descriptors
    assert dynamic.cause is Cause.DYNAMIC


def test_computed_shapes_stay_unknown(scanned: Scanned) -> None:
    nodes = [node("NonZero", "x", "y", name="nz"), node("Split", "y s", "a b", axis=1)]
    content = model(nodes, [value("x", [2, 6])], initializers=(sizes("s", 2, 4),))
    (found,) = scanned(content, infer_shapes=True)
    assert found.unknown == "its shape is unknown after NonZero 'nz' of main"


# Constants that onnx's evaluator computes.


def ranged(limit: int) -> Any:
    """A split of what a Range up to a computed end gathers."""
    ends = {"zero": 0, "minus": -limit, "one": 1}
    tensors = [numpy_helper.from_array(np.array(n), name) for name, n in ends.items()]
    nodes = [
        node("Abs", "minus", "end"),
        node("Range", "zero end one", "at", name="r"),
        node("Gather", "x at", "y", axis=1),
        CUT,
    ]
    return model(nodes, [value("x", [2, 9])], initializers=tensors)


def test_a_computed_constant_counts(scanned: Scanned) -> None:
    (found,) = scanned(ranged(4), infer_shapes=True)
    assert found.shape == (2, 4)


@pytest.mark.parametrize("limit", [2**17, 2**40, 2**62])
def test_a_large_constant_has_a_shape_but_is_not_computed(scanned: Scanned, limit: int) -> None:
    (found,) = scanned(ranged(limit), infer_shapes=True)
    assert (found.unknown, found.shape) == ("", (2, limit))
    content = ranged(limit)
    assert "at" not in constants(content.graph, {}, content.opset_import)


def test_the_default_of_an_input_is_no_constant() -> None:
    content = ranged(4)
    graph, opsets = content.graph, content.opset_import
    assert constants(graph, {}, opsets)["end"] == 4
    graph.input.append(value("minus", [], INT64))
    assert not {"minus", "end"} & constants(graph, {}, opsets).keys()


def test_computed_lengths_are_read(scanned: Scanned) -> None:
    nodes = [
        node("Sqrt", "squares", "roots"),
        node("Cast", "roots", "lengths", to=INT64),
        node("Split", "x lengths", "p q", axis=1),
    ]
    squares = numpy_helper.from_array(np.array([4, 16], np.float32), "squares")
    content = model(nodes, [value("x", [3, 6])], initializers=(squares,))
    (found,) = scanned(content)
    assert found.cause is Cause.LENGTHS
    (found,) = scanned(content, infer_shapes=True)
    assert (found.unknown, found.pieces, found.index) == ("", (2, 4), 2)


def test_what_only_the_walk_knows_counts_there(scanned: Scanned) -> None:
    # onnx is not asked about the pool, but about the Resize after it.
    pool = node("MaxPool", "x", "p", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    nodes = [pool, onnx.helper.make_node("Resize", ["p", "", "scales"], ["y"], name="up"), CUT]
    content = model(nodes, [value("x", [1, 4, 7, 8])], initializers=(SCALES,))
    (found,) = scanned(content, infer_shapes=True)
    assert found.shape == (1, 4, 8, 8)


def test_a_size_in_the_middle_counts_there(scanned: Scanned) -> None:
    nodes = [
        node("NonZero", "x", "z", name="nz"),
        node("OneHot", "z depth values", "hot"),
        node("Transpose", "hot", "y", perm=[0, 2, 1]),
        CUT,
    ]
    depth = numpy_helper.from_array(np.array(4), "depth")
    values = numpy_helper.from_array(np.array([0, 1], np.float32), "values")
    content = model(nodes, [value("x", [2, 3])], initializers=(depth, values))
    (found,) = scanned(content, dimensions=FixedSizes({"z.1": 6}), infer_shapes=True)
    assert found.shape == (2, 4, 6)
