"""Rewritten models: the target accepts them, and they compute the same."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import dmlsplit as dml
from dmlsplit.lint.check import assess
from dmlsplit.lint.fix import rewrite, split_forms, subgraph
from dmlsplit.lint.fix.replacement import Replacement
from dmlsplit.lint.fix.rewrite import write_fixed
from dmlsplit.lint.fix.split_forms import Merging
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Outcome
from tests.support.fixtures import Patch
from tests.support.models import (
    constant,
    every_verdict,
    in_function,
    model,
    nested,
    one_split,
    one_split_to_sequence,
    parsed,
    session,
    split_nodes,
    split_with_sizes_as_an_attribute,
    split_without_sizes,
)
from tests.support.networks import lstm
from tests.support.random_graphs import REFUSED, static_chains
from tests.support.rewriting import LEVEL_1, LEVEL_2, ORT, assessed, operators, rewritten

FLOAT = TensorProto.FLOAT


def operators_of(replacement: Replacement) -> list[str]:
    return [node.op_type for node in replacement.nodes if node.op_type != "Constant"]


@pytest.mark.parametrize(
    ("content", "target_options", "operator_names"),
    [
        (one_split(FLOAT, (6, 4), sizes=(2, 4), axis=0), LEVEL_1,
         "Unsqueeze Split Squeeze Squeeze"),
        (one_split(FLOAT, (2, 3, 4, 5), sizes=(1, 2), axis=1, opset=11 + 2), LEVEL_1, ""),
        (one_split(TensorProto.UINT8, (1, 1, 5, 3), sizes=(1, 2), axis=3), LEVEL_2,
         "Cast Split Cast Cast"),
        (one_split(TensorProto.BOOL, (4, 6), sizes=(2, 4), axis=1), {"windows": "19041"},
         "Unsqueeze Cast Split Cast Squeeze Cast Squeeze"),
        (one_split(FLOAT, (2,) * 9, sizes=(1, 1), axis=4), ORT, "Reshape Split Reshape Reshape"),
        (one_split(TensorProto.INT64, (6, 4), sizes=(2, 0, 4), axis=0), ORT, "Split"),
        (one_split_to_sequence(FLOAT, (2, 3)), ORT, "Split"),
        (one_split_to_sequence(TensorProto.DOUBLE, (2, 3), keepdims=0), ORT, "Split Squeeze"),
        (one_split_to_sequence(FLOAT, (2, 2) + 7 * (1,), keepdims=0), ORT, "Reshape Split Reshape"),
    ],
)  # fmt: skip
def test_a_refused_split_becomes_standard_nodes(
    content: onnx.ModelProto, target_options: dict[str, str], operator_names: str, tmp_path: Path
) -> None:
    rewriting, output = rewritten(content, tmp_path, **target_options)
    assert output.exists() == bool(operator_names)
    if operator_names:
        assert [replacement.site.node for replacement in rewriting.replaced] == ["cut"]
        assert rewriting.written
        assert {verdict.site.file for verdict in rewriting.written.verdicts} == {str(output)}
        assert operators(output) == operator_names.split()
        assert all(v.outcome is Outcome.RUNS for v in assessed(output, **target_options).verdicts)
        assert_same_outputs(content, output, 0)


@pytest.mark.parametrize(
    ("content", "target_options", "operator_names"),
    [
        (lstm("batch"), {"windows": "19041"}, "Unsqueeze Split" + 4 * " Squeeze"),
        (one_split(FLOAT, ("b", 6), sizes=(2, 4), axis=1, opset=13), LEVEL_2,
         "Unsqueeze Split Squeeze Squeeze"),
        (one_split(TensorProto.INT8, ("b", 6, "w", 2), sizes=(2, 4), axis=1), LEVEL_2,
         "Cast Split Cast Cast"),
        (one_split(FLOAT, ("b", "s", 6, 2, 4), sizes=(2, 4), axis=2, opset=18), LEVEL_2,
         "Reshape Split Reshape Reshape"),
        (one_split(FLOAT, ("b", "s", 2, 2, 6), sizes=(2, 4), axis=4, opset=13), LEVEL_2,
         "Reshape Split Reshape Reshape"),
        (one_split(FLOAT, ("b", "s", 2, 6, 4), sizes=(2, 4), axis=3, opset=18), LEVEL_2,
         "Reshape Split Shape Gather Gather Concat Reshape Concat Reshape"),
        (one_split(FLOAT, (2, 6, 3, "h", 4), sizes=(2, 4), axis=1, opset=18), LEVEL_2,
         "Reshape Split Reshape Reshape"),
        (one_split(FLOAT, ("b", 6, 3, "h", "w"), sizes=(2, 4), axis=1, opset=18), LEVEL_2,
         "Shape Gather Gather ReduceProd ReduceProd" + 3 * " Concat Reshape" + " Split"),
        (one_split(FLOAT, ("b", "s", "t", 6, "w"), sizes=(2, 4), axis=3, opset=14), LEVEL_2,
         "Shape Gather Gather ReduceProd ReduceProd" + 3 * " Concat Reshape" + " Split"),
        (one_split(FLOAT, ("b", 6), sizes=(2, 0, 4), axis=1), ORT,
         "Shape Gather Concat ConstantOfShape Split"),
    ],
)  # fmt: skip
def test_a_dynamic_model_is_rewritten_for_every_size(
    content: onnx.ModelProto, target_options: dict[str, str], operator_names: str, tmp_path: Path
) -> None:
    rewriting, output = rewritten(content, tmp_path, **target_options)
    output_model = onnx.load(output)
    assert output_model.graph.input == content.graph.input
    assert sorted(operator_names.split()) == sorted(operators_of(rewriting.replaced[0]))
    assert {v.outcome for v in assessed(output, **target_options).verdicts} == {
        Outcome.RUNS_FOR_EVERY_SIZE
    }
    assert rewriting.replaced[0].smallest_size == 0
    for size in (0, 1, 2, 5):
        assert_same_outputs(content, output, size)


@pytest.mark.parametrize("shape", [("b", 6, 3, "h", "w"), ("b", "s", 2, 6, 4)])
def test_sizes_of_0_are_excluded_where_reshape_cannot_take_them(
    shape: tuple[int | str, ...], tmp_path: Path
) -> None:
    """Before opset 14, a 0 in a computed shape stands for a size of the input."""
    rewriting, output = rewritten(
        one_split(FLOAT, shape, sizes=(2, 4), axis=shape.index(6), opset=13), tmp_path, **LEVEL_2
    )
    assert rewriting.replaced[0].smallest_size == 1
    for size in (1, 2, 5):
        assert_same_outputs(onnx.load(tmp_path / "in.onnx"), output, size)


@pytest.mark.parametrize("shape", [(2, 6), ("n", 6)])
def test_a_missing_count_becomes_num_outputs(shape: tuple[int | str, ...], tmp_path: Path) -> None:
    _, output = rewritten(split_without_sizes(shape), tmp_path, **ORT)
    (split,) = onnx.load(output).graph.node
    assert [attribute.name for attribute in split.attribute] == ["axis", "num_outputs"]


def assert_same_outputs(content: onnx.ModelProto, output: Path, size: int) -> None:
    """Run both models as a whole, in ONNX Runtime."""
    feeds = {declaration.name: values(declaration, size) for declaration in content.graph.input}
    original_outputs, new_outputs = (
        session(proto).run(None, feeds) for proto in (content, onnx.load(output))
    )
    for original_output, new_output in zip(original_outputs, new_outputs, strict=True):
        np.testing.assert_array_equal(original_output, new_output, strict=True)


@pytest.mark.parametrize("size", [0, 1])
def test_splits_in_both_bodies_of_an_if_are_replaced(tmp_path: Path, size: int) -> None:
    """With both values of the condition, because a run reaches one body only."""
    content = nested()
    rewriting, output = rewritten(content, tmp_path, **LEVEL_2)
    assert len(rewriting.replaced) == 2
    assert_same_outputs(content, output, size)


def values(declaration: onnx.ValueInfoProto, size: int) -> np.ndarray:
    """Random values for an input; its dynamic dimensions are `size`, `size` + 1 and so on."""
    tensor = declaration.type.tensor_type
    shape = [d.dim_value or size + index for index, d in enumerate(tensor.shape.dim)]
    kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if not shape:  # the condition of an If
        return np.array(size, kind)
    return np.random.default_rng(size).integers(0, 100, shape).astype(kind)


def test_a_replacement_that_is_correct_at_one_size_only_is_not_written(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(split_forms, "merge_dimensions", lambda *_: (Merging(0, (1, 1, 6, 8)), 2))
    rewriting, output = rewritten(
        one_split(FLOAT, ("b", 1, 6, 2, 4), sizes=(2, 4), axis=2), tmp_path, **LEVEL_2
    )
    assert "the split and its replacement cannot be compared" in rewriting.not_replaced[0][1]
    assert not output.exists()


# What DirectML's Cast takes below feature level 3_0, with 4 dimensions; BOOL is its UINT8. Source:
# https://learn.microsoft.com/windows/win32/api/directml/ns-directml-dml_cast_operator_desc
OLD_CAST = "FLOAT FLOAT16 INT16 INT8 UINT16 UINT8 BOOL".split()


@pytest.mark.parametrize("kind", ["INT8", "UINT8", "BOOL"])
@pytest.mark.parametrize("target_options", [LEVEL_1, LEVEL_2])
def test_old_levels_accept_the_casts_of_a_written_model(
    kind: str, target_options: dict[str, str], tmp_path: Path
) -> None:
    content = one_split(getattr(TensorProto, kind), (4, 6), sizes=(2, 4), axis=1)
    _, output = rewritten(content, tmp_path, **target_options)
    graph = onnx.shape_inference.infer_shapes(onnx.load(output)).graph
    types = {declaration.name: declaration.type.tensor_type for declaration in graph.value_info}
    casts = [node for node in graph.node if node.op_type == "Cast"]
    assert len(casts) == 3
    for name in (name for node in casts for name in (*node.input, *node.output)):
        assert TensorProto.DataType.Name(types[name].elem_type) in OLD_CAST
        assert len(types[name].shape.dim) == 4


def test_old_opsets_give_sizes_as_an_attribute(tmp_path: Path) -> None:
    _, output = rewritten(
        split_with_sizes_as_an_attribute(opset=11, axis=1, shape=(3, 6)),
        tmp_path,
        feature_level="1_0",
    )
    (split,) = [node for node in onnx.load(output).graph.node if node.op_type == "Split"]
    assert helper.get_attribute_value(split.attribute[1]) == [2, 4]


def test_splits_that_cannot_be_rewritten_are_left_and_reported(tmp_path: Path) -> None:
    rewriting, output = rewritten(every_verdict(), tmp_path, feature_level="2_0")
    assert {split.site.node for split in rewriting.replaced} == {"odd", "left", "right", "late"}
    reasons = {site.node: reason for site, reason in rewriting.not_replaced}
    assert "must add up" in reasons["wrong"]
    assert "Cast would lose bits of INT64" in reasons["wide"]
    outcomes = {v.site.node: v.outcome for v in assessed(output, feature_level="2_0").verdicts}
    assert (outcomes["odd"], outcomes["wrong"]) == (Outcome.RUNS, Outcome.REFUSED)


@pytest.mark.parametrize(
    ("content", "target_options", "reason"),
    [
        (in_function(), LEVEL_2, "in the body of a function"),
        (one_split(TensorProto.DOUBLE, (6,), sizes=(2, 4), axis=0), LEVEL_2,
         "Cast would lose bits of FLOAT64"),
        (one_split(TensorProto.INT64, (6,), sizes=(2, 4), axis=0), {"windows": "19041"},
         "Cast would lose bits of INT64, and no operator before BitCast-26 exposes them. "
         "Fix: if all values fit INT32, compute them in INT32"),
        (one_split(TensorProto.UINT64, ("b", 6), sizes=(2, 4), axis=1), LEVEL_2,
         "Cast would lose bits of UINT64, and no operator before BitCast-26 exposes them. "
         "Fix: if all values fit UINT32, compute them in UINT32"),
        (one_split(TensorProto.COMPLEX64, (6,), sizes=(2, 4), axis=0), LEVEL_2,
         "cannot reinterpret complex"),
        (one_split(TensorProto.STRING, (6,), sizes=(2, 4), axis=0), LEVEL_2, "has no strings"),
        (split_with_sizes_as_an_attribute(opset=2, axis=0, shape=(6,)), LEVEL_1,
         "opset is 2; rewriting needs 7"),
        (one_split(FLOAT, (2**20, 129), sizes=(2**19, 2**19), axis=0), LEVEL_1,
         "its input must have at most 268,435,456 bytes, the most that is compared with a "
         "replacement, and has 541,065,216"),
        (one_split(FLOAT, ("n", 2**20, 33), sizes=(2**19, 2**19), axis=1), LEVEL_1,
         "at two sizes of each dynamic dimension, its input must have at most 268,435,456 "
         "bytes, the most that is compared with a replacement. Fix: give the sizes with --dim"),
        (one_split(FLOAT, ("n", 2**20, 65), sizes=(2**19, 2**19), axis=1), LEVEL_1,
         "the most that is compared with a replacement"),
        (one_split_to_sequence(FLOAT, ("n", "m")), ORT,
         "its sizes are known only when the model runs. Fix: give them with --dim"),
        (parsed("(int64[6] x, int64[2] s) => (int64[] a, int64[] b) { a, b = Split (x, s) }"),
         LEVEL_2, "its split lengths are known only when the model runs. Fix: make them"),
        (parsed("(int8[n] x) => (int8[] a) { s = Shape (x) [cut] a = Split <axis = 0> (x, s) }"),
         LEVEL_2, "Fix: give the sizes from which they may follow with --dim"),
        (parsed("(float[6] x) => (seq(float[]) a) { y = Relu (x) a = SplitToSequence (z) }"), ORT,
         "no earlier node produces its input. Fix: sort the nodes"),
        (one_split_to_sequence(FLOAT, (2, 2**18)), LEVEL_2,
         "it has too many pieces. Fix: use a larger chunk"),
        (split_without_sizes(("b", "n"), num_outputs=2), ORT | {"directml": "1.4.0"},
         "ORT-FEATURE-LEVEL"),
        (split_without_sizes(("b", "n", 2, 2, 2), num_outputs=2), LEVEL_2, "known only"),
        (split_without_sizes(("b", "n")), LEVEL_2, "known only"),
    ],
)  # fmt: skip
def test_nothing_is_written_if_nothing_can_be_rewritten(
    content: onnx.ModelProto, target_options: dict[str, str], reason: str, tmp_path: Path
) -> None:
    rewriting, output = rewritten(content, tmp_path, **target_options)
    assert reason in rewriting.not_replaced[0][1]
    assert rewriting.replaced == ()
    assert not output.exists()


def decoded(nodes: list[onnx.NodeProto], outputs: dict[str, int]) -> onnx.ModelProto:
    """A model with nodes after ``decoded``, of which the shape is known, but not the type."""
    decode = helper.make_node("Decode", ["x"], ["bytes"], domain="ext")
    reshape = helper.make_node("Reshape", ["bytes", "shape"], ["decoded"])
    makers = decode, constant("shape", (2, 6)), reshape
    content = model([*makers, *nodes], {"x": (FLOAT, (2, 6))}, outputs)
    content.opset_import.append(helper.make_opsetid("ext", 1))
    return content


def test_the_reason_names_the_type_or_external_data_if_sizes_are_known(tmp_path: Path) -> None:
    source, output = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(decoded(split_nodes("cut", "decoded", (2, 4), 1), {}), source)
    rewriting = write_fixed(source, output, assessed(source, **LEVEL_2))
    expected = "its data type is not known. Fix: declare it in the model"
    assert [reason for _, reason in rewriting.not_replaced] == [expected]

    content = parsed("(float[2,6] x) => (float[] a) { [cut] a, b = Split <axis = 1> (x, s) }")
    content.graph.initializer.append(numpy_helper.from_array(np.array([2, 4]), "s"))
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(content, source, **options)
    rewriting = write_fixed(source, output, assessed(source, **LEVEL_2))
    expected = "its split lengths are in external data. Fix: keep them in the model"
    assert [reason for _, reason in rewriting.not_replaced] == [expected]


def test_a_model_that_onnx_cannot_load_gives_a_one_line_error(tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    source.write_bytes(b"\xff" * 10)
    with pytest.raises(
        dml.InvalidArgumentError, match="the package onnx cannot load the model: "
    ) as error:
        write_fixed(source, tmp_path / "out.onnx", assess([], resolve_target()))
    assert "\n" not in str(error.value)


_HONEST = subgraph._Nodes.split


def swapped(nodes: Any, value: str, lengths: dict[str, int], *rest: Any) -> None:
    _HONEST(nodes, value, dict(reversed(lengths.items())), *rest)


@pytest.mark.parametrize(
    ("place", "fault", "kind", "message"),
    [
        ((subgraph._Nodes, "split"), swapped, FLOAT, "gives another result"),
        (
            (subgraph, "_WIDE_TYPE"),
            TensorProto.UINT8,
            TensorProto.UINT8,
            "refused as well: .* This is a bug of dmlsplit; please report it$",
        ),
    ],
)
def test_a_replacement_that_changes_the_result_or_is_refused_is_not_written(
    place: Any, fault: Any, kind: int, message: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(*place, fault)
    with pytest.raises(dml.InvalidArgumentError, match=message):
        rewritten(one_split(kind, (4, 2), sizes=(2, 2), axis=0), tmp_path, feature_level="1_0")
    assert [path.name for path in tmp_path.iterdir()] == ["in.onnx"]


def test_external_weights_stay_where_they_are(tmp_path: Path) -> None:
    content = one_split(FLOAT, (6, 4), sizes=(2, 4), axis=0)
    weights = onnx.numpy_helper.from_array(np.ones((2, 4), np.float32), "w")
    content.graph.initializer.append(weights)
    content.graph.node.append(helper.make_node("Add", ["cut_0", "w"], ["sum"]))
    content.graph.output.append(helper.make_tensor_value_info("sum", FLOAT, None))
    source = tmp_path / "in.onnx"
    onnx.save(content, source, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "other").mkdir()
    assessment = assessed(source, feature_level="1_0")
    with pytest.raises(dml.InvalidArgumentError, match="Fix: give --write-fixed "):
        write_fixed(source, tmp_path / "other" / "out.onnx", assessment)
    assert write_fixed(source, tmp_path / "out.onnx", assessment).replaced
    assert (tmp_path / "out.onnx").stat().st_size < 2000
    with pytest.raises(dml.InvalidArgumentError, match="exists; it is not replaced"):
        write_fixed(source, tmp_path / "out.onnx", assessment)


def test_a_split_whose_type_a_custom_operator_hides_is_replaced(tmp_path: Path) -> None:
    source = tmp_path / "in.onnx"
    cut = helper.make_node("Split", ["decoded"], ["a", "b"], name="cut", axis=1)
    onnx.save(decoded([cut], {"a": FLOAT, "b": FLOAT}), source)
    rewriting = write_fixed(source, tmp_path / "out.onnx", assessed(source, **ORT))
    assert [split.site.element_type for split in rewriting.replaced] == [None]


@pytest.mark.parametrize("output_shape", ["n,6", "4,6", "n", "more,6", ""])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_written_model_declares_no_shape_that_given_sizes_contradict(
    output_shape: str, size: int, tmp_path: Path
) -> None:
    """Exporters give outputs the names of inputs' dimensions, or sizes of an example."""
    content = parsed(f"""(int8[n,6] x) => (int8[{output_shape}] y, int8[m,3] a, int8[k,3] b) {{
        y = Concat <axis = 0> (x, x)
        sizes = Constant <value = int64[2] {{3, 3}}> ()
        a, b = Split <axis = 1> (y, sizes)
    }}""")
    rewriting, output = rewritten(content, tmp_path, {"n": size}, **LEVEL_2)
    assert rewriting.replaced
    if output_shape:  # the checker wants a shape of each output
        onnx.checker.check_model(onnx.load(output), full_check=True)
    whole = onnx.shape_inference.infer_shapes(onnx.load(output), strict_mode=True)
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in whole.graph.output]
    assert shapes == [[2 * size, 6], [2 * size, 3], [2 * size, 3]]


def unbound(split: list[int] | int | None, keepdims: int | None, opset: int) -> onnx.ModelProto:
    """A model that cuts an axis of 3, and outputs its first piece."""
    attributes = {} if keepdims is None else {"keepdims": keepdims}
    inputs = ["x"] if split is None else ["x", "split"]
    nodes = [
        helper.make_node("SplitToSequence", inputs, ["s"], name="cut", axis=1, **attributes),
        helper.make_node("SequenceAt", ["s", "zero"], ["y"]),
    ]
    content = model(nodes, {"x": (FLOAT, (2, 3))}, {"y": FLOAT}, opset)
    numbers = {"zero": 0} if split is None else {"zero": 0, "split": split}
    for name, number in numbers.items():
        content.graph.initializer.append(numpy_helper.from_array(np.array(number), name))
    return content


# Whether a piece keeps the axis in ONNX Runtime 1.32; None if it fails there. ONNX ignores keepdims
# wherever sizes are given.
KEEPS_AXIS = {
    (None, None): True,
    (None, 1): True,
    (None, 0): False,
    ("ones", None): True,
    ("ones", 1): True,
    ("ones", 0): True,
    ("all", None): True,
    ("all", 1): True,
    ("all", 0): True,
    (1, None): True,
    (1, 1): True,
    (1, 0): False,
    (2, None): True,
    (2, 1): True,
    (2, 0): None,
    (3, 0): None,
    (4, 1): True,
    (4, 0): None,
}


@pytest.mark.parametrize(("cut", "keeps_axis"), KEEPS_AXIS.items(), ids=str)
@pytest.mark.parametrize("opset", [11, 13, 23, 24])
def test_a_sequence_keeps_the_axis_as_it_does_in_onnx_runtime(
    cut: tuple[Any, int | None], keeps_axis: bool | None, opset: int, tmp_path: Path
) -> None:
    split = {"ones": [1, 1, 1], "all": [3]}.get(cut[0], cut[0])
    content = unbound(split, cut[1], opset)
    rewriting, output = rewritten(content, tmp_path, **ORT)
    if keeps_axis is None:
        with pytest.raises(REFUSED, match="SplitToSequence"):
            session(content).run(None, {"x": np.ones((2, 3), np.float32)})
        assert "ORT-KEEPDIMS: keepdims is 0 with a scalar split, so" in rewriting.not_replaced[0][1]
        return
    assert rewriting.replaced
    (piece,) = session(onnx.load(output)).run(None, {"x": np.ones((2, 3), np.float32)})
    assert piece.ndim == 1 + keeps_axis
    assert_same_outputs(content, output, 0)


def test_a_sequence_on_which_onnx_and_onnx_runtime_differ_is_left_for_other_targets(
    tmp_path: Path,
) -> None:
    rewriting, output = rewritten(unbound(1, 0, 13), tmp_path, **LEVEL_2)
    assert "ONNX ignores keepdims=0 with a scalar split" in rewriting.not_replaced[0][1]
    assert not output.exists()


@pytest.mark.parametrize("target_options", [LEVEL_1, LEVEL_2])
def test_a_rewritten_random_graph_has_the_outputs_of_the_original(
    target_options: dict[str, str], tmp_path: Path
) -> None:
    content, _ = static_chains(0, 40)
    rewriting, output = rewritten(content, tmp_path, **target_options)
    assert len(rewriting.replaced) > 5
    assert_same_outputs(content, output, 0)


# Any split that is rewritten moves the same bits.

NAMES = "FLOAT FLOAT16 INT8 UINT8 BOOL INT32"
KINDS = [getattr(TensorProto, name) for name in NAMES.split()]


@st.composite
def splits(draw: st.DrawFn) -> onnx.ModelProto:
    rank = draw(st.integers(1, 9))
    axis = draw(st.integers(0, rank - 1))
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any))
    shape = [draw(st.integers(1, 3)) for _ in range(rank)]
    shape[axis] = sum(sizes)
    return one_split(
        draw(st.sampled_from(KINDS)),
        shape,
        sizes=sizes,
        axis=axis,
        opset=draw(st.sampled_from([13, 18])),
    )


@settings(max_examples=60)
@given(content=splits(), target_options=st.sampled_from([LEVEL_1, {"feature_level": "2_1"}, ORT]))
def test_any_rewritten_split_moves_the_same_bits(
    content: onnx.ModelProto, target_options: dict[str, str]
) -> None:
    (declaration,) = content.graph.input
    shape = [dim.dim_value for dim in declaration.type.tensor_type.shape.dim]
    kind = helper.tensor_dtype_to_np_dtype(declaration.type.tensor_type.elem_type)
    random = np.random.default_rng(0)
    x = random.integers(0, 2 if kind == np.bool_ else 100, shape).astype(kind)
    expected = session(content).run(None, {"x": x})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        onnx.save(content, path)
        assessment = assessed(path, **target_options)
        replacements, not_replaced = rewrite._replace_splits(content, assessment)
        assert not not_replaced
        assert len(replacements) == sum(map(assessment.fails, assessment.verdicts))
        onnx.save(content, path)
        assert assessed(path, **target_options).accepted
    for expected_piece, piece in zip(expected, session(content).run(None, {"x": x}), strict=True):
        assert expected_piece.dtype == piece.dtype
        np.testing.assert_array_equal(expected_piece, piece)
