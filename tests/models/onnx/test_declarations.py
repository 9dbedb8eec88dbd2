"""Declarations and names that contradict a model's nodes, held to ONNX Runtime itself."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from dmlsplit.frontends.onnx import scan
from tests.support.models import is_loaded, parsed
from tests.support.onnx_graphs import Scanned, model, node, sizes, value
from tests.support.sites import why

CUT = "[cut] a, b = Split <axis = 0, num_outputs = 2> (x)"
THEN = "then_branch = t () => (float[4] d)"
ELSE = "else_branch = e () => (float[4] f) { f = Identity (x) }"
IF = f"y = If (c) <{THEN} {{ d = Relu (x) }}, {ELSE}>"
ONE = "Constant <value = float[1] {2}>"
FLOAT16 = "as FLOAT16, but {} of net makes FLOAT"
# A graph, and the model's fault, if ONNX Runtime does not load it.
MODELS: list[tuple[str, str | None]] = [
    # Types.
    (f"(float[4] x) => (float16[2] a) {{ {CUT} }}", FLOAT16.format("Split 'cut'")),
    (f"(float[4] x) => (float[2] b) <float16[2] a> {{ {CUT} }}", FLOAT16.format("Split 'cut'")),
    (f"(float[4] x) => (float[2] b) <float16[4] r> {{ r = Relu (x) {CUT} }}", "Relu #0"),
    (f"(int64[4] z, float[4] x) => (float16[4] y) {{ y = Cast <to = 1> (z) {CUT} }}", "Cast #0"),
    (f"(float[4] x) => (int32[1] y) {{ y = Shape (x) {CUT} }}", "as INT32, but Shape #0"),
    (f"(float[4] x) => (float[4] y) {{ y = Equal (x, x) {CUT} }}", "makes BOOL"),
    (f"(float[4] x, bool c) => (float16[4] y) {{ {IF} {CUT} }}", FLOAT16.format("If #0")),
    (f"(float[4] x) => (float[4] s) {{ s = SplitToSequence (x) {CUT} }}", "makes a sequence"),
    (f"(float[4] x) => (float[2] a, float[2] b) {{ {CUT} }}", None),
    (f"(float[4] x) => (float16[4] w) {{ w = Constant <value = float[1] {{1}}> () {CUT} }}", None),
    # Names.
    ("(float[4] x) => (float[2] a) { a, a = Split <num_outputs = 2> (x) }", "the name a, which"),
    (f"(float[4] x) => (float[4] y) {{ y = Relu (x) y = Neg (x) {CUT} }}", "Neg #1 of net gives"),
    (f"(float[4] x) => (float[4] x) {{ {CUT} x = Relu (a) }}", "the name x"),
    (f"(float[4] x) => (float[4] w) <float[1] w = {{1}}> {{ w = Relu (x) {CUT} }}", "the name w"),
    (f"(float[4] x) => (float[1] w) <float[1] w = {{1}}> {{ w = {ONE} () {CUT} }}", None),
    (
        f"(float[4] x) => (float[1] w) <float[2] w = {{1, 2}}> {{ w = {ONE} () {CUT} }}",
        "the name w",
    ),
    (f"(float[4] x) => (float[1] w) <int64[1] w = {{1}}> {{ w = {ONE} () {CUT} }}", "the name w"),
    (
        f"(float[4] x, bool c) => (float[4] y) <float[1] d = {{1}}> {{ "
        f"{IF.replace('Relu (x)', f'{ONE} ()')} {CUT} }}",
        "the name d",
    ),
    (f"(float[4] x, bool c) => (float[4] y) {{ d = Neg (x) {IF} {CUT} }}", "the name d"),
    (f"(float[4] x, bool c) => (float[4] y) {{ {IF} d = Neg (x) {CUT} }}", None),
    (
        "(float[4] x, bool c) => (float[4] y) { "
        f"y = If (c) <then_branch = t () => (float[4] x) {{}}, {ELSE}> {CUT} }}",
        "nothing in its graph makes the output x",
    ),
    (f"(float[4] x, float[4] x) => (float[4] y) {{ y = Relu (x) {CUT} }}", "two inputs"),
    (
        f"(float[4] x, bool c) => (float[4] y) {{ y = If (c) <{THEN} {{ d = Relu (x) }}, "
        f"else_branch = e () => (float[4] d) {{ d = Neg (x) }}> {CUT} }}",
        None,
    ),
]


def scan_and_runtime_agree(content: onnx.ModelProto, fault: str | None, tmp_path: Path) -> None:
    """The scan finds this fault if ONNX Runtime does not load the model, and else none."""
    onnx.save(content, tmp_path / "model.onnx")
    (found,) = {site.model_fault for site in scan(tmp_path / "model.onnx")}
    assert is_loaded(content) == (found is None)
    assert (fault is None) == (found is None)
    assert fault is None or fault in str(found)


@pytest.mark.parametrize(("graph", "fault"), MODELS)
def test_a_model_has_a_fault_exactly_if_onnx_runtime_does_not_load_it(
    graph: str, fault: str | None, tmp_path: Path
) -> None:
    scan_and_runtime_agree(parsed(graph), fault, tmp_path)


def declared(name: str, kind: int) -> Callable[[Any], None]:
    return lambda graph: graph.value_info.append(helper.make_tensor_value_info(name, kind, [4]))


def default(kind: int, *shape: int) -> Callable[[Any], None]:
    ones = [1] * math.prod(shape)
    return lambda graph: graph.initializer.append(helper.make_tensor("v", kind, shape, ones))


def untyped_output(graph: Any) -> None:
    graph.output[0].type.tensor_type.elem_type = 0


def added_output(name: str) -> Callable[[Any], None]:
    return lambda graph: graph.output.append(onnx.ValueInfoProto(name=name))


EDITS: list[tuple[Callable[[Any], None], str | None]] = [
    (default(10, 4), "declares its input v as FLOAT, but the input's default is FLOAT16"),
    (default(1, 3), "declares its input v as [4], but the input's default is [3]"),
    (default(1, 1, 4), "declares its input v as [4], but the input's default is [1,4]"),
    (default(1), "declares its input v as [4], but the input's default is []"),
    (default(1, 4), None),
    (declared("a", 0), "declares a as a tensor without a type"),
    (declared("no value", 0), None),
    (declared("v", 0), None),
    (untyped_output, "declares y as a tensor without a type"),
    (added_output("no value"), "nothing in its graph makes the output no value"),
    (added_output("v"), None),
    (declared("y", 10), None),  # of two declarations, the output's counts
    (declared("v", 10), None),  # the input's, too
]


@pytest.mark.parametrize(("edit", "fault"), EDITS)
def test_onnx_runtime_takes_the_declarations_of_inputs_and_outputs_first(
    edit: Callable[[Any], None], fault: str | None, tmp_path: Path
) -> None:
    content = parsed(f"(float[4] x, float[4] v) => (float[4] y) {{ y = Add (x, v) {CUT} }}")
    edit(content.graph)
    scan_and_runtime_agree(content, fault, tmp_path)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        ("(v) => (w) { w = Cast <to = 10> (v) }", "local.f #0 of net makes FLOAT16"),
        ("(v) => (w) <float16[4] r> { r = Relu (v) w = Relu (r) }", None),
        ("(v) => (w) { w = Relu (v) w = Neg (v) }", "the name w"),
    ],
)
def test_functions_are_inlined_without_their_declarations(
    function: str, fault: str | None, tmp_path: Path
) -> None:
    text = f'<domain: "local", opset_import: ["" : 18]> f {function}'
    for call, its_fault in (("y = local.f (x)", fault), ("y = Relu (x)", None)):
        content = parsed(f"(float[4] x) => (float[4] y) {{ {call} {CUT} }}", text)
        scan_and_runtime_agree(content, its_fault and its_fault.replace("local.f", "f"), tmp_path)


def twice(node: onnx.NodeProto) -> None:
    node.attribute.append(node.attribute[0])


def untyped(node: onnx.NodeProto) -> None:
    node.attribute[0].ClearField("type")


@pytest.mark.parametrize("place", ["node", "body", "function"])
@pytest.mark.parametrize("edit", [twice, untyped])
def test_a_node_has_an_attribute_once_and_with_its_type(
    edit: Callable[[Any], None], place: str, tmp_path: Path
) -> None:
    function = '<domain: "local", opset_import: ["" : 18]> f (v) => (w) { w = Cast <to = 1> (v) }'
    body = IF.replace("d = Relu", "d = Cast <to = 1>")
    first = {"node": "y = Cast <to = 1> (x)", "body": body, "function": "y = local.f (x)"}[place]
    content = parsed(f"(float[4] x, bool c) => (float[4] y) {{ {first} {CUT} }}", function)
    edited, *_ = {
        "node": content.graph.node[:1],
        "body": [n for attribute in content.graph.node[0].attribute for n in attribute.g.node[:1]],
        "function": content.functions[0].node,
    }[place]
    edit(edited)
    fault = {twice: "the attribute to twice", untyped: "the attribute to without its type"}[edit]
    kept = place == "function" and edit is twice
    scan_and_runtime_agree(content, None if kept else fault, tmp_path)


def test_a_sequence_is_the_only_output_of_a_node(tmp_path: Path) -> None:
    content = parsed("(float[4] x) => (float[4] y) { s, t = SplitToSequence (x) y = Relu (x) }")
    assert not is_loaded(content)
    onnx.save(content, tmp_path / "model.onnx")
    (site,) = scan(tmp_path / "model.onnx")
    assert "the node has 2 outputs; it must have one" in why(site)


# --- shapes -----------------------------------------------------------------------------------


def remarks(scanned: Scanned, nodes: list[Any], *entries: Any, **options: Any) -> list[str]:
    """The warnings about declared shapes, of the only split."""
    content = model(nodes, [value("x", [4, 6])], initializers=(sizes("s", 2, 4),), declared=entries)
    (site,) = scanned(content, **options)
    return [text for text in site.warnings if "declares" in text]


CUT_IN_TWO = node("Split", "y s", "a b", name="cut", axis=1)


@pytest.mark.parametrize("shape", [[4, 3], [4], [4, 2, 1], []])
def test_a_declared_shape_that_a_node_contradicts_gives_a_warning_that_names_both(
    scanned: Scanned, shape: list[int]
) -> None:
    shape_text = f"[{','.join(map(str, shape))}]"
    relu = node("Relu", "x", "y")
    (warning,) = remarks(scanned, [relu, CUT_IN_TWO], value("a", shape))
    assert (
        f"declares a as {shape_text}, but Split 'cut' of main makes [4,2]; ONNX Runtime warns"
        in warning
    )
    (warning,) = remarks(scanned, [relu, CUT_IN_TWO], value("y", shape), value("a", [4, 2]))
    assert f"declares y as {shape_text}, but Relu #0 of main makes [4,6]" in warning
    warnings = remarks(scanned, [relu, CUT_IN_TWO], value("y", shape), value("a", shape))
    assert len(warnings) == 2


def test_right_and_dynamic_declarations_give_no_warning(scanned: Scanned) -> None:
    relu = node("Relu", "x", "y")
    for shape in ([4, 2], [4, "n"], [None, 2], None):
        assert remarks(scanned, [relu, CUT_IN_TWO], value("a", shape)) == []


RANK_KEPT = [
    node("Resize", "x nothing scales", "y"),  # of computed scales
    node("Pad", "x pads", "y"),
    node("Tile", "x times", "y"),
    node("Slice", "x starts ends", "y"),
    node("ConvTranspose", "x w", "y", output_shape=[8, 9]),
    node("Concat", "x unknown", "y", axis=2),
    node("MaxPool", "x", "y", kernel_shape=[2, 2], auto_pad="SAME_UPPER", ceil_mode=1),
]


@pytest.mark.parametrize("node_kept", RANK_KEPT, ids=lambda node_kept: node_kept.op_type)
@pytest.mark.parametrize("shape", [[], [4, 6]])
def test_a_declared_rank_is_not_believed_where_the_node_keeps_another(
    scanned: Scanned, node_kept: Any, shape: list[int]
) -> None:
    names = [name for name in node_kept.input if name not in ("x", "w", "nothing", "unknown")]
    vectors = [value(name, None, 7) for name in names]
    inputs = [value("x", [1, 2, 4, 6]), value("w", [2, 2, 3, 3]), *vectors]
    cut = node("Split", "y", "a b", name="cut", axis=1, num_outputs=2)
    (site,) = scanned(model([node_kept, cut], inputs, declared=(value("y", shape),)))
    assert site.shape is not None
    assert len(site.shape) == 4
    assert f"declares y as [{','.join(map(str, shape))}], but {node_kept.op_type} #0" in str(
        site.warnings
    )
    (site,) = scanned(model([node_kept, cut], inputs, declared=(value("y", [1, 2, 8, 9]),)))
    assert site.shape == (1, 2, 8, 9)
    assert not site.warnings


def test_a_declaration_holds_although_an_output_of_that_name_has_no_type(tmp_path: Path) -> None:
    content = parsed(f"(float[4] x) => (float[2] a, float[2] b) <int64[2] a> {{ {CUT} }}")
    content.graph.output[0].ClearField("type")
    assert not is_loaded(content)
    onnx.save(content, tmp_path / "m.onnx")
    (site,) = scan(tmp_path / "m.onnx")
    assert "as INT64, but Split 'cut' of net makes FLOAT" in str(site.model_fault)
