"""A SplitToSequence of which only single pieces are taken becomes a plain Split."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.lint.fix.replacement import Replacement
from dmlsplit.lint.verdict import Outcome
from tests.support.models import parsed, session
from tests.support.rewriting import ORT, assessed, operators, rewritten

FLOAT = TensorProto.FLOAT
Dim = int | str


def taking(
    positions: list[int],
    shape: tuple[Dim, ...] = ("n", 6, 2),
    axis: int = 1,
    split: list[int] | int | None = 2,
    keepdims: int | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model that takes pieces of a sequence at these positions, each an output."""
    attributes = {} if keepdims is None else {"keepdims": keepdims}
    constants = {f"at{i}": position for i, position in enumerate(positions)}
    inputs = ["x"] if split is None else ["x", "split"]
    nodes = [helper.make_node("SplitToSequence", inputs, ["s"], "cut", axis=axis, **attributes)]
    nodes += [
        helper.make_node("SequenceAt", ["s", position_name], [f"y{position_name}"])
        for position_name in constants
    ]
    initializers = constants if split is None else {**constants, "split": split}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [
            helper.make_tensor_value_info(f"y{position_name}", FLOAT, None)
            for position_name in constants
        ],
        [numpy_helper.from_array(np.array(value), name) for name, value in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def assert_same(
    content: onnx.ModelProto, output: Path, shape: tuple[int, ...], **more: Any
) -> None:
    feeds = {"x": np.random.default_rng(0).random(shape, np.float32), **more}
    original_outputs, new_outputs = (
        session(content_run).run(None, feeds) for content_run in (content, onnx.load(output))
    )
    for original_output, new_output in zip(original_outputs, new_outputs, strict=True):
        np.testing.assert_array_equal(original_output, new_output, strict=True)


SPLIT, SQUEEZED = ["Split"], ["Split", "Squeeze", "Squeeze"]


@pytest.mark.parametrize("opset", [11, 13, 18, 24])
@pytest.mark.parametrize(
    ("positions", "more", "expected"),
    [
        ([0, 1, 2], {}, SPLIT),
        ([2], {}, SPLIT),
        ([-1, 0], {}, SPLIT),
        ([-3, -2], {"split": [1, 2, 3]}, SPLIT),
        ([1, 1, -2], {}, ["Split", "Identity", "Identity"]),
        ([1, 0], {"split": 4}, SPLIT),
        ([5, -6], {"split": None}, SPLIT),
        ([5, -6], {"split": None, "keepdims": 0}, SQUEEZED),
        ([5, -6], {"split": None, "keepdims": 1}, SPLIT),
        # ONNX Runtime drops the axis beside a scalar of 1, and keeps it beside a list.
        ([5, -6], {"split": 1, "keepdims": 0}, SQUEEZED),
        ([5, -6], {"split": [1] * 6, "keepdims": 0}, SPLIT),
        ([0], {"split": 6}, SPLIT),
    ],
)
def test_pieces_at_constant_positions_are_those_of_a_split(
    positions: list[int], more: dict[str, Any], expected: list[str], opset: int, tmp_path: Path
) -> None:
    content = taking(positions, **more, opset=opset)
    rewriting, output = rewritten(content, tmp_path, **ORT)
    assert rewriting.replaced
    assert operators(output) == expected
    assert {v.outcome for v in assessed(output, **ORT).verdicts} == {Outcome.RUNS_FOR_EVERY_SIZE}
    for size in (0, 1, 3):
        assert_same(content, output, (size, 6, 2))
    # Nothing is left of the sequence.
    names = {tensor.name for tensor in onnx.load(output).graph.initializer}
    assert not names & {"split", *(f"at{i}" for i in range(len(positions)))}


def test_an_empty_piece_that_is_taken_is_a_constant(tmp_path: Path) -> None:
    content = taking([0, 1], split=[2, 0, 4], shape=(3, 6))
    _, output = rewritten(content, tmp_path, **ORT)
    assert operators(output) == SPLIT
    assert_same(content, output, (3, 6))


HEADER = "(float[n,6] x, bool flag, int64 at) => (float[] y OUTPUTS) <int64 zero = {0}> {"
SEQUENCE = "size = Constant <value = int64 {2}> () [cut] s = SplitToSequence <axis = 1> (x, size)"


def body(name: str, position: str, source: str = "s") -> str:
    return f"{name} () => (float[] {name}_y) {{ {name}_y = SequenceAt ({source}, {position}) }}"


def with_uses(uses: str, outputs: str = "") -> onnx.ModelProto:
    one_constant = "one = Constant <value = int64 {1}> ()"
    return parsed(f"{HEADER.replace('OUTPUTS', outputs)} {SEQUENCE} {one_constant} {uses} }}")


# `at` is an input, so its value is not known; `one` is a constant.
@pytest.mark.parametrize(
    ("uses", "outputs"),
    [
        ("y = SequenceAt (s, at)", ""),
        ("y = SequenceAt (s, one)", ", seq(float[]) s"),
        ("y = SequenceAt (s, one) c = SequenceLength (s)", ", int64 c"),
        ("t = Identity (s) y = SequenceAt (t, one)", ""),
        ("y = ConcatFromSequence <axis = 0> (s)", ""),
        (f"y = If (flag) <then_branch = {body('t', 'one')}, else_branch = {body('e', 'at')}>", ""),
        ("y = SequenceAt (s, one) z = If (flag) <then_branch = t () => (seq(float[]) t_y) "
         "{ t_y = Identity (s) }, else_branch = e () => (seq(float[]) e_y) "
         "{ e_y = Identity (s) }>", ", seq(float[]) z"),
    ],
    ids=["unknown position", "output of the graph", "its length", "passed on", "joined",
         "unknown position in one branch", "returned from a branch"],
)  # fmt: skip
def test_a_sequence_with_any_other_use_is_constructed_again(
    uses: str, outputs: str, tmp_path: Path
) -> None:
    content = with_uses(uses, outputs)
    rewriting, output = rewritten(content, tmp_path, **ORT)
    assert rewriting.replaced
    assert operators(output)[:2] == ["Split", "SequenceConstruct"]
    feeds = {"flag": np.array(True), "at": np.array(2)}
    assert_same(content, output, (3, 6), **feeds)


@pytest.mark.parametrize("position", [3, -4])
def test_a_position_out_of_range_still_fails(position: int, tmp_path: Path) -> None:
    _, output = rewritten(taking([0, position]), tmp_path, **ORT)
    assert operators(output)[:2] == ["Split", "SequenceConstruct"]
    with pytest.raises(Exception, match="Invalid sequence index"):
        session(onnx.load(output)).run(None, {"x": np.ones((1, 6, 2), np.float32)})


def test_a_position_that_a_caller_may_override_keeps_the_sequence(tmp_path: Path) -> None:
    content = taking([1])
    content.graph.input.append(helper.make_tensor_value_info("at0", TensorProto.INT64, []))
    _, output = rewritten(content, tmp_path, **ORT)
    assert operators(output) == ["Split", "SequenceConstruct", "SequenceAt"]
    for position in 0, 2:
        assert_same(content, output, (2, 6, 2), at0=np.array(position))


@pytest.mark.parametrize("flag", [True, False])
def test_bodies_of_an_if_may_take_pieces_of_a_sequence_outside(flag: bool, tmp_path: Path) -> None:
    """Bodies of one If may use the same names for different values."""
    text = f"y = If (flag) <then_branch = {body('t', 'one')}, else_branch = {body('e', 'zero')}>"
    content = with_uses(f"{text} z = SequenceAt (s, one)", ", float[] z")
    for node in content.graph.node:
        for attribute in node.attribute:
            if attribute.g.node:
                attribute.g.node[0].output[0] = attribute.g.output[0].name = "own"
    _, output = rewritten(content, tmp_path, **ORT)
    assert operators(output) == ["Split", "If"]
    position = np.array(0)
    assert_same(content, output, (3, 6), flag=np.array(flag), at=position)


def test_a_split_in_a_body_is_replaced_there(tmp_path: Path) -> None:
    content = parsed("""(float[2,n,6] x) => (float[] y) {
        y = Scan <num_scan_inputs = 1, body = scan (float[n,6] row) => (float[n,2] b) {
            size = Constant <value = int64 {2}> ()
            last = Constant <value = int64 {-1}> ()
            [cut] s = SplitToSequence <axis = 1> (row, size)
            b = SequenceAt (s, last)
        }> (x)
    }""")
    _, output = rewritten(content, tmp_path, **ORT)
    (node,) = onnx.load(output).graph.node
    assert "SequenceAt" not in {n.op_type for n in node.attribute[0].g.node}
    assert_same(content, output, (2, 3, 6))


def test_the_declaration_of_a_replaced_sequence_is_removed(tmp_path: Path) -> None:
    content = taking([1])
    content.graph.value_info.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    _, output = rewritten(content, tmp_path, **ORT)
    assert not onnx.load(output).graph.value_info


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any),
    form=st.sampled_from(["list", "scalar", "none"]),
    keepdims=st.sampled_from([None, 0, 1]),
    shape=st.lists(st.sampled_from([1, 2, "n", "m"]), min_size=1, max_size=4),
    opset=st.sampled_from([11, 12, 13, 18, 25]),
    data=st.data(),
)
def test_any_pieces_that_are_taken_have_the_same_bits(
    sizes: list[int],
    form: str,
    keepdims: int | None,
    shape: list[Dim],
    opset: int,
    data: st.DataObject,
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    shape[axis] = sum(sizes)
    chunk = data.draw(st.integers(1, sum(sizes)))
    count = {"list": len(sizes), "scalar": -(-sum(sizes) // chunk), "none": sum(sizes)}[form]
    split = {"list": sizes, "scalar": chunk, "none": None}[form]
    position = st.integers(-count, count - 1)
    positions = data.draw(st.lists(position, min_size=1, max_size=4))
    content = taking(positions, tuple(shape), axis, split, keepdims, opset)
    with tempfile.TemporaryDirectory() as folder:
        rewriting, output = rewritten(content, Path(folder), **ORT)
        if not rewriting.replaced:  # ONNX Runtime fails at this node
            assert keepdims == 0
            assert "ORT-KEEPDIMS" in rewriting.not_replaced[0][1]
            return
        assert not {op for op in operators(output) if "Sequence" in op}
        for size in (1, 2, 5):
            real = tuple(n if isinstance(n, int) else size + (n == "m") for n in shape)
            assert_same(content, output, real)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_piece_may_have_the_name_of_a_value_in_a_body(tmp_path: Path, is_taken: bool) -> None:
    """The split defines the piece, and a body after it, before the taker, the same name."""
    inner = "p0 = SequenceAt (s, i0)" if is_taken else "p0 = Relu (i1)"
    content = parsed(
        "(float[6,2] x, bool c, float[3,2] i1) => (float[3,2] y, float[3,2] z) {"
        "three = Constant <value = int64 {3}> () i0 = Constant <value = int64 {0}> ()"
        "s = SplitToSequence <axis = 0> (x, three)"
        f"z = If (c) <then_branch = g1 () => (float[3,2] p0) {{ {inner} }},"
        "else_branch = g2 () => (float[3,2] q0) { q0 = Neg (i1) }>"
        "p0 = SequenceAt (s, i0) y = Identity (p0) }"
    )
    _, output = rewritten(content, tmp_path, **ORT)
    onnx.checker.check_model(str(output), full_check=True)
    assert "SplitToSequence" not in {node.op_type for node in onnx.load(output).graph.node}


def test_a_comparison_of_many_taken_pieces_is_small() -> None:
    names = {position: f"{'n' * 3000}{position}" for position in range(400)}
    node = helper.make_node("SplitToSequence", ["x"], ["s"])
    nodes = Replacement(None, node, (), names).originals  # type: ignore[arg-type]
    assert sum(each.ByteSize() for each in nodes) < 2 * 400 * 3100
    made = [name for each in nodes for name in each.output]
    assert len(set(made)) == len(made) == 801
