"""Splits that divide a dynamic axis are padded and cast for old levels, right for every size."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlsplit.lint.fix.split_forms import compared_shapes, divided_into
from dmlsplit.lint.verdict import Outcome
from dmlsplit.models.discovery import scan_file
from tests.support.models import parsed, session
from tests.support.rewriting import LEVEL_1, LEVEL_2, assessed, operators, rewritten

FLOAT, INT8 = TensorProto.FLOAT, TensorProto.INT8
Dim = int | str


def dividing(
    shape: tuple[Dim, ...], axis: int, count: int, opset: int = 18, kind: int = FLOAT
) -> onnx.ModelProto:
    """A Split into `count` pieces, which are the outputs."""
    names = [f"y{index}" for index in range(count)]
    attributes = {"num_outputs": count} if opset >= 18 else {}
    node = helper.make_node("Split", ["x"], names, "cut", axis=axis, **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(name, kind, None) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def outputs(content: onnx.ModelProto, shape: tuple[int, ...]) -> list[np.ndarray]:
    kind = helper.tensor_dtype_to_np_dtype(content.graph.input[0].type.tensor_type.elem_type)
    x = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
    return list(session(content).run(None, {"x": x}))


PADDED, CAST = "Unsqueeze Split Squeeze Squeeze", "Cast Split Cast Cast"


@pytest.mark.parametrize(
    ("shape", "axis", "count", "opset", "kind", "expected"),
    [
        (("n", 4), 0, 2, 18, FLOAT, PADDED),
        (("b", "n"), 1, 2, 18, FLOAT, PADDED),
        (("b", "n"), -2, 2, 13, FLOAT, PADDED),
        (("n",), 0, 2, 11, FLOAT, PADDED),
        (("n",), 0, 2, 7, FLOAT, PADDED),
        (("n", "n", 2), 1, 2, 18, FLOAT, PADDED),
        (("b", "n", 4), 1, 3, 18, FLOAT, PADDED + " Squeeze"),
        (("n",), 0, 5, 18, FLOAT, PADDED + " Squeeze Squeeze Squeeze"),
        ((1, 1, "n", 2), 2, 2, 18, INT8, CAST),
        (("n", 2), 0, 2, 18, INT8, "Unsqueeze Cast Split Cast Squeeze Cast Squeeze"),
    ],
)
def test_a_divided_axis_stays_dynamic(
    shape: tuple[Dim, ...],
    axis: int,
    count: int,
    opset: int,
    kind: int,
    expected: str,
    tmp_path: Path,
) -> None:
    content = dividing(shape, axis, count, opset, kind)
    rewriting, output = rewritten(content, tmp_path, **LEVEL_2)
    assert [split.site.node for split in rewriting.replaced] == ["cut"]
    assert operators(output) == expected.split()
    output_model = onnx.load(output)
    assert output_model.graph.input == content.graph.input
    # It may still be refused for its size, which only a run knows.
    (verdict,) = assessed(output, **LEVEL_2).verdicts
    assert verdict.outcome is Outcome.UNKNOWN
    # One less than twice the pieces leaves a smaller last piece, which Split-18 allows.
    sizes = [count, 2 * count, 3 * count, *([2 * count - 1] if opset >= 18 else [])]
    for size in sizes:
        real = tuple(n if isinstance(n, int) else size for n in shape)
        pairs = zip(outputs(content, real), outputs(output_model, real), strict=True)
        for original_output, new_output in pairs:
            np.testing.assert_array_equal(original_output, new_output, strict=True)


def test_a_report_offers_to_rewrite_a_split_of_a_dynamic_axis(tmp_path: Path) -> None:
    onnx.save(dividing(("n", 4), 0, 2), tmp_path / "m.onnx")
    (verdict,) = assessed(tmp_path / "m.onnx", **LEVEL_1).verdicts
    assert verdict.outcome is Outcome.REFUSED_FOR_EVERY_SIZE
    assert verdict.rewriting in verdict.fixes
    assert "--write-fixed" in verdict.rewriting


def test_axes_are_compared_at_sizes_that_can_be_divided(tmp_path: Path) -> None:
    onnx.save(dividing(("b", "n", 4), 1, 3), tmp_path / "m.onnx")
    (site,) = scan_file(str(tmp_path / "m.onnx"))
    assert divided_into(site) == 3
    *above_zero, _, _, _, _ = shapes = compared_shapes(site)
    assert [shape[1] for shape in above_zero] == [3, 9, 6, 5]
    assert all((shape[1] == 5) or shape[1] % 3 == 0 for shape in shapes)


def test_a_split_of_a_dynamic_axis_in_a_scan_is_padded(tmp_path: Path) -> None:
    content = parsed("""(float[2,n] x) => (float[] y) {
        y = Scan <num_scan_inputs = 1, body = scan (float[n] row) => (float[m] b) {
            [cut] a, b = Split <axis = 0, num_outputs = 2> (row)
        }> (x)
    }""")
    rewriting, output = rewritten(content, tmp_path, **LEVEL_2)
    assert rewriting.replaced
    for size in (2, 3, 8):
        (original_output,), (new_output,) = (
            outputs(content_run, (2, size)) for content_run in (content, onnx.load(output))
        )
        np.testing.assert_array_equal(original_output, new_output, strict=True)
