"""Pieces of one split that an element-wise node combines: a known defect of DirectML."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from dmlsplit.frontends.onnx import scan
from dmlsplit.models.onnx import piece_uses
from dmlsplit.models.onnx.recombination import gated_splits
from dmlsplit.models.onnx.values import Piece
from tests.support.onnx_graphs import Scanned, chained, model, node, sizes, value

HALVES = node("Split", "x", "a b", name="cut", axis=1, num_outputs=2)
# A GLU of the halves.
GATE, PRODUCT = node("Sigmoid", "b", "g"), node("Mul", "a g", "y")


def nodes_that_recombine(
    scanned: Scanned, *nodes: Any, split: Any = HALVES, shape: Any = (1, 4, 5)
) -> list[str]:
    """The nodes that combine pieces of a split of x into a and b, halves unless it is given."""
    inputs = [value("x", list(shape)), value("other", [1, 2, 5])]
    (site,) = scanned(model([split, *nodes], inputs, initializers=(sizes("s", 2, 2),)))
    return list(site.recombined_by)


def test_only_an_activated_piece_beside_another_one_is_a_gate() -> None:
    gate, plain_piece = Piece(7, 1, True), Piece(7, 0)
    assert gated_splits([frozenset({gate}), frozenset({plain_piece})]) == {7}
    assert gated_splits([frozenset({plain_piece}), frozenset({gate})]) == {7}
    apart = [{plain_piece._replace(split=8)}, {gate}, {Piece(7, 1)}]
    assert not any(gated_splits([frozenset({gate}), frozenset(pieces)]) for pieces in apart)
    assert not gated_splits([frozenset({plain_piece}), frozenset({Piece(7, 1)})])


def test_many_recombinations_of_one_split_are_recorded_without_quadratic_copies(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_count = 0

    def counted_replace(site: Any, **changes: Any) -> Any:
        nonlocal copied_count
        copied_count += len(changes.get("recombined_by", ()))
        return replace(site, **changes)

    monkeypatch.setattr(piece_uses, "replace", counted_replace)
    gates = (node("Mul", "a g", f"y{i}") for i in range(500))
    recombinations = nodes_that_recombine(scanned, GATE, *gates)
    assert recombinations == [f"Mul #{i + 2} of main" for i in range(500)]
    assert copied_count <= 2 * 500


def test_the_product_of_a_glu_combines_pieces_of_one_split(scanned: Scanned) -> None:
    glu = [GATE, node("Mul", "a g", "y", name="gate")]
    assert nodes_that_recombine(scanned, *glu) == ["Mul 'gate' of main"]
    lengths = node("Split", "x s", "a b", axis=1)
    assert nodes_that_recombine(scanned, *glu, split=lengths, shape=("n", 4, 5)) == [
        "Mul 'gate' of main"
    ]


MICROSOFT = "com.microsoft"
# Each is a GLU: one half of the split times the activation of the other half.
GLUS = {
    # Between the split and the product are nodes that keep the bytes, as --write-fixed writes them.
    "Squeeze": [
        *(node("Squeeze", "a", "p"), node("Squeeze", "b", "q")),
        *(node("Tanh", "q", "g"), node("Mul", "p g", "y")),
    ],
    "Reshape and Flatten": [
        *(node("Reshape", "a s", "p"), node("Flatten", "b", "q")),
        *(node("Gelu", "q", "g"), node("Mul", "p g", "y")),
    ],
    "CastLike and Dropout": [
        *(node("CastLike", "a other", "p"), node("Dropout", "b", "q")),
        *(node("Sigmoid", "q", "g"), node("Mul", "p g", "y")),
    ],
    "Squeeze and Cast": [
        *(node("Squeeze", "a", "p"), node("Squeeze", "b", "c"), node("Cast", "c", "q", to=10)),
        *(node("Sigmoid", "q", "g"), node("Mul", "p g", "y")),
    ],
    "Unsqueeze": [
        *(node("Unsqueeze", "a axis", "p"), node("Relu", "p", "g"), node("Mul", "g b", "y")),
    ],
    # Gelu as exporters write it, in several nodes.
    "Erf": [node("Erf", "b", "e"), node("Mul", "e b", "f"), node("Mul", "f a", "y")],
    "Sigmoid of a multiple": [
        *(node("Mul", "b other", "p"), node("Sigmoid", "p", "g")),
        *(node("Mul", "p g", "q"), node("Mul", "a q", "y")),
    ],
    # What ONNX Runtime's optimizers make of element-wise nodes.
    **{
        operator: [node(operator, "b", "g", domain=MICROSOFT), PRODUCT]
        for operator in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")
    },
}
NO_GLUS = {
    # Forms of which no report is known.
    "rotary embedding": [
        *(node("Mul", "a other", "p"), node("Neg", "b", "q"), node("Mul", "q other", "r")),
        node("Add", "p r", "y"),
    ],
    "product without activation": [node("Mul", "a b", "y")],
    "sum": [GATE, node("Add", "a g", "y")],
    "BiasAdd": [node("BiasAdd", "a other b", "y", domain=MICROSOFT)],
    "SkipLayerNormalization": [
        node("SkipLayerNormalization", "a b other", "y", domain=MICROSOFT),
    ],
    # One piece alone.
    "square": [node("Mul", "a a", "y")],
    "activation of the same half": [node("Sigmoid", "a", "g"), PRODUCT],
    "product with a constant": [node("Mul", "a other", "y")],
    # Operators that are not element-wise, or that move elements.
    "Concat": [node("Concat", "b a", "y", axis=1)],
    "Softmax": [GATE, node("Softmax", "g", "p"), node("Mul", "a p", "y")],
    "MatMul": [node("MatMul", "a b", "y")],
    "FusedMatMul": [node("FusedMatMul", "a b", "y", domain=MICROSOFT)],
    "Transpose": [GATE, node("Transpose", "g", "p"), node("Mul", "a p", "y")],
    # Operators of which nothing is known.
    "Mul of another domain": [GATE, node("Mul", "a g", "y", domain="own")],
    "Squeeze of another domain": [
        *(GATE, node("Squeeze", "g", "p", domain="own"), node("Mul", "a p", "y")),
    ],
    "QuickGelu without a domain": [node("QuickGelu", "b", "g"), PRODUCT],  # ONNX has none
    # The output derives from the first input only.
    "CastLike of another value": [GATE, node("CastLike", "other g", "p"), node("Mul", "a p", "y")],
    "Reshape of another value": [GATE, node("Reshape", "other g", "p"), node("Mul", "a p", "y")],
}


@pytest.mark.parametrize("nodes", GLUS.values(), ids=GLUS)
def test_a_half_times_the_activation_of_the_other_half_is_a_recombination(
    scanned: Scanned, nodes: list[Any]
) -> None:
    assert len(nodes_that_recombine(scanned, *nodes)) == 1


@pytest.mark.parametrize("nodes", NO_GLUS.values(), ids=NO_GLUS)
def test_halves_that_no_product_gates_are_not_recombined(
    scanned: Scanned, nodes: list[Any]
) -> None:
    assert nodes_that_recombine(scanned, *nodes) == []


def test_the_gates_of_an_lstm_are_no_glu(scanned: Scanned) -> None:
    gates = node("Split", "x", "i f g o", axis=1, num_outputs=4)
    nodes = [node("Sigmoid", "i", "p"), node("Tanh", "g", "q"), node("Mul", "p q", "y")]
    assert nodes_that_recombine(scanned, *nodes, split=gates) == []


def test_combining_pieces_of_two_splits_is_no_recombination(scanned: Scanned) -> None:
    second_split = node("Split", "x", "c d", axis=1, num_outputs=2)
    nodes = [HALVES, second_split, node("Sigmoid", "d", "g"), PRODUCT]
    sites = scanned(model(nodes, [value("x", [1, 4, 5])]))
    assert [site.recombined_by for site in sites] == [(), ()]


def test_pieces_are_followed_into_a_nested_body(scanned: Scanned) -> None:
    nodes = [GATE, node("Mul", "a g", "z", name="in")]
    body = helper.make_graph(nodes, "t", [], [value("z")])
    empty = helper.make_graph([node("Identity", "x", "e")], "e", [], [value("e")])
    branch = node("If", "c", "y", name="if", then_branch=body, else_branch=empty)
    assert nodes_that_recombine(scanned, branch) == ["Mul 'in' of main/if.then_branch"]


def test_a_function_is_not_scanned_again_for_each_piece(scanned: Scanned) -> None:
    calls = [(f"f{i}", [f"f{i + 1}"] * 2) for i in range(40)] + [("f40", [])]
    content = chained(calls)
    content.graph.node.insert(0, HALVES)
    content.graph.node.extend(node("f0", name, f"z{name}", domain="own") for name in "ab")
    assert len(scanned(content)) == 1


GATES = {
    "QuickGelu": "s = Sigmoid (b) m = Mul (b, s) y = Mul (a, m)",
    "Gelu": "d = Div (b, root) e = Erf (d) f = Add (e, one) g = Mul (b, f) k = Mul (g, half)"
    " y = Mul (a, k)",
    "BiasGelu": "h = Add (b, bias) d = Div (h, root) e = Erf (d) f = Add (e, one) g = Mul (h, f)"
    " k = Mul (g, half) y = Mul (a, k)",
}


@pytest.mark.parametrize("operator", GATES)
def test_a_recombination_is_seen_before_and_after_onnx_runtime_has_optimized_the_model(
    tmp_path: Path, operator: str
) -> None:
    import onnxruntime

    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    constants = "float root = {1.41421356}, float one = {1}, float half = {0.5}"
    vectors = "float[2] bias = {1, 2}"
    text = f"""<ir_version: 8, opset_import: ["" : 17]> main (float[1,3,4] x) => (float[1,3,2] y)
        <{constants}, {vectors}> {{ a, b = Split <axis = 2> (x) {GATES[operator]} }}"""
    onnx.save(onnx.parser.parse_model(text), before)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(after)
    onnxruntime.InferenceSession(str(before), options, providers=["CPUExecutionProvider"])
    assert operator in {optimized_node.op_type for optimized_node in onnx.load(after).graph.node}
    for path in (before, after):
        assert [len(site.recombined_by) for site in scan(path)] == [1]
