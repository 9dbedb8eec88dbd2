"""The splits of an ONNX file: places, bodies, functions, and odd graphs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from dmlsplit.frontends import Known
from dmlsplit.frontends.onnx import scan
from dmlsplit.models.onnx import model_scan
from dmlsplit.models.onnx.shapes import RULES
from dmlsplit.models.site import Cause
from tests.support.models import is_loaded
from tests.support.onnx_graphs import INT64, Scanned, branch, halve, model, node, sizes, value
from tests.support.sites import why


def test_a_split_is_found_with_its_place_and_its_descriptor(scanned: Scanned) -> None:
    nodes = [node("Relu", "x", "y"), node("Split", "y s", "a b", name="cut", axis=-1)]
    (site,) = scanned(model(nodes, [value("x", [2, 6])], initializers=(sizes("s", 2, 4),)))
    assert site.graph == "main"
    assert (site.node, site.index, site.operator) == ("cut", 1, "Split-18")
    desc = site.state.descriptor
    assert str(desc) == "SPLIT axis 1: FLOAT32[2,6] -> FLOAT32[2,2], FLOAT32[2,4]"
    assert site.warnings == ()


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_the_opset_determines_the_version(scanned: Scanned, domain: str) -> None:
    cut = node("Split", "x", "a b", axis=0)
    (site,) = scanned(model([cut], [value("x", [4])], opsets={domain: 12}))
    assert (site.operator, site.state.pieces) == ("Split-11", (2, 2))


def test_split_to_sequence_is_found(scanned: Scanned) -> None:
    cut = node("SplitToSequence", "x s", "y")
    chunk = numpy_helper.from_array(np.array(2, np.int64), "s")
    (site,) = scanned(model([cut], [value("x", [5, 3])], initializers=(chunk,)))
    assert site.operator == "SplitToSequence-11"
    assert site.state.descriptor.split_sizes == (2, 2, 1)
    assert "provider has no SplitToSequence" in site.warnings[0]


def test_a_missing_opset_is_a_problem(scanned: Scanned) -> None:
    (site,) = scanned(model([node("Split", "x", "a")], [value("x", [4])], opsets={"own": 1}))
    assert "the model imports no opset of ai.onnx" in site.state.problem


def test_splits_of_other_domains_are_skipped(scanned: Scanned) -> None:
    assert scanned(model([node("Split", "x", "a", domain="own")], [value("x", [4])])) == []


def test_nested_bodies_are_walked_and_see_outer_names(scanned: Scanned) -> None:
    bodies = {"then_branch": branch("t", 2), "else_branch": branch("e", 3)}
    inner = node("If", "c", "z", name="inner", **bodies)
    body = helper.make_graph([inner], "body", [value("i"), value("c")], [])
    loop = node("Loop", "n c", "y", body=body)
    nodes = [node("Relu", "x", "outer"), loop]
    sites = scanned(model(nodes, [value("x", [6, 2])]))
    assert [site.graph for site in sites] == [
        "main/Loop[1].body/inner.else_branch",
        "main/Loop[1].body/inner.then_branch",
    ]
    assert [site.state.descriptor.split_sizes for site in sites] == [(2, 2, 2), (3, 3)]


def test_names_of_a_nested_body_are_unknown_outside_the_body(scanned: Scanned) -> None:
    body = helper.make_graph([node("Relu", "wide", "y")], "b", [value("wide", [8])], [])
    nodes = [node("Scan", "x", "z", body=body), node("Split", "y", "a b", num_outputs=2)]
    (site,) = scanned(model(nodes, [value("x", [6])]))
    assert site.state.reason == "no earlier node produces value 'y'"
    assert site.state.cause is Cause.ORDER


def test_functions_are_scanned_per_call(scanned: Scanned) -> None:
    nodes = [
        node("Halve", "x", "a b", domain="own", at=1, name="first"),
        node("Halve", "a", "c d", domain="own", at=0),
        node("Halve", "b", "e f", domain="own", at=0),  # The types are those of the second call.
        node("Split", "d", "g h", num_outputs=2),
    ]
    sites = scanned(model(nodes, [value("x", [4, 8])], functions=(halve(),)))
    assert [(site.graph, site.operator) for site in sites] == [
        ("main/first", "Split-18"),
        ("main/Halve[1]", "Split-18"),
        ("main", "Split-18"),
    ]
    shapes = [site.state.descriptor.output_tensors[0].sizes for site in sites]
    assert shapes == [(4, 4), (2, 4), (1, 4)]


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(
    ("own_opset", "cut"),
    [
        (11, node("Split", "x", "a b", split=[2, 4])),
        (13, node("Split", "x s", "a b")),
        (13, node("Split", "x", "a b", num_outputs=2)),
        (18, node("Split", "x", "a b", num_outputs=2)),
    ],
)
def test_a_function_is_read_at_the_opset_of_the_model_into_which_onnx_runtime_inlines_it(
    scanned: Scanned, own_opset: int, cut: Any, opset: int
) -> None:
    imports = [helper.make_opsetid("", own_opset)]
    function = helper.make_function("own", "Cut", ["x", "s"], ["a", "b"], [cut], imports)
    content = model(
        [node("Cut", "x s", "a b", domain="own")],
        [value("x", [6])],
        initializers=(sizes("s", 2, 4),),
        functions=(function,),
        opsets={"": opset, "own": 1},
        outputs="a b",
    )
    (site,) = scanned(content)
    assert isinstance(site.state, Known) == is_loaded(content)


def test_a_function_that_nothing_calls_is_scanned_without_its_arguments(scanned: Scanned) -> None:
    (site,) = scanned(model([], [], functions=(halve(),)))
    assert site.graph == "function own.Halve"
    assert site.state.reason == "attribute 'axis' is dynamic: the function's caller sets it"
    assert site.never_runs == "no node calls its function"


def test_a_wrong_node_of_a_function_that_nothing_calls_does_not_keep_a_model_from_loading(
    scanned: Scanned,
) -> None:
    cut = node("Split", "x", "a b", split=[2, 4])
    imports = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "Cut", ["x"], ["a", "b"], [cut], imports)
    for operator, loads in (("Cut", False), ("Identity", True)):
        domain = "own" if operator == "Cut" else ""
        call = node(operator, "x", "a b" if domain else "a", domain=domain)
        content = model([call], [value("x", [6])], functions=(function,), outputs="a")
        (site,) = scanned(content)
        assert site.state.is_loaded == is_loaded(content) == loads


def test_defaults_of_function_attributes_are_used(scanned: Scanned) -> None:
    function = halve()
    del function.attribute[:]
    function.attribute_proto.append(helper.make_attribute("at", 1))
    call = node("Halve", "x", "a b", domain="own")
    (site,) = scanned(model([call], [value("x", [4, 8])], functions=(function,)))
    assert site.state.descriptor.axis == 1


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Split", "x s", "a b", axis=1)],
        [node("Abs", "s", "t"), node("Split", "x t", "a b", axis=1)],
        [node("Reshape", "x s", "y"), node("Split", "y", "a b", axis=1)],
        [node("Split", "w", "a b")],  # of the default's own shape, which is not declared
        [node("ReduceMax", "s", "m", keepdims=0), node("SplitToSequence", "x m", "q", axis=1)],
        [node("Twice", "x s", "a b", domain="own")],
    ],
)
@pytest.mark.parametrize("ir_version", [3, 4, 10])
def test_what_follows_from_the_default_of_a_graph_input_is_overridable(
    scanned: Scanned, nodes: list[Any], ir_version: int
) -> None:
    """Before IR version 4, ONNX Runtime takes no value for an initializer."""
    inputs = [value("x", [4, 6]), value("s", [2], INT64), value("w", ["n", 6])]
    initializers = sizes("s", 2, 4), numpy_helper.from_array(np.ones((4, 6), np.float32), "w")
    cut = node("Split", "x s", "a b", axis=1)
    opset = [helper.make_opsetid("", 13)]
    twice = helper.make_function("own", "Twice", ["x", "s"], ["a", "b"], [cut], opset)
    content = model(
        nodes,
        inputs,
        initializers=initializers,
        functions=(twice,),
        ir_version=ir_version,
        opsets={"": 13, "own": 1},
    )
    site, *_ = scanned(content)  # then the function, if nothing calls it
    assert isinstance(site.state, Known)
    assert site.is_overridable == (ir_version >= 4)
    warned = any("a caller may override it" in text for text in site.warnings)
    assert warned == site.is_overridable


def test_a_weight_that_a_caller_may_override_leaves_sizes_as_they_are(scanned: Scanned) -> None:
    weight = numpy_helper.from_array(np.ones((4, 6), np.float32), "w")
    nodes = [node("Add", "x w", "y"), node("Split", "y", "a b")]
    inputs = [value("x", [4, 6]), value("w", [4, 6])]
    (site,) = scanned(model(nodes, inputs, initializers=(weight,), opsets={"": 13}))
    assert not site.is_overridable


def test_types_declared_inside_a_function_are_used(scanned: Scanned) -> None:
    function = halve()
    function.node.insert(0, node("Mystery", "x", "z", domain="own"))
    function.node[1].input[0] = "z"
    function.value_info.append(value("z", [4, 6]))
    call = node("Halve", "x", "a b", domain="own", at=1)
    (site,) = scanned(model([call], [value("x", [4, 8])], functions=(function,)))
    assert site.state.descriptor.input_tensor.sizes == (4, 6)


def test_names_from_a_file_are_escaped_and_long_ones_are_cut(scanned: Scanned) -> None:
    cut = node("Split", "x", "a b", name="a\n::error::\x1b[31m" + "b" * 1000, num_outputs=2)
    (site,) = scanned(model([cut], [value("x", ["d\ne"])]))
    assert site.node.startswith("a\\n::error::\\x1b[31m")
    assert len(site.node) < 250
    assert site.state.reason == "dimension 0, the axis, is dynamic (d\\ne)"


EXTREMES = st.sampled_from([0, 1, -1, 2, 3, 7, 2**31, 2**62, 2**63 - 1, -(2**63)])
NAMES = st.sampled_from(["x", "w", "s", "c", "y", "z", ""])


@st.composite
def odd_nodes(draw: st.DrawFn) -> Any:
    """A node of a known operator with any inputs, outputs and attributes."""
    operators = ["Split", "SplitToSequence", "Constant", "Identity", *RULES]
    inputs, outputs = (draw(st.lists(NAMES, max_size=4)) for _ in range(2))
    odd_node = helper.make_node(draw(st.sampled_from(operators)), inputs, outputs)
    names = ["axis", "split", "num_outputs", "keepdims", "perm", "to", "pads", "strides", "axes"]
    names += ["kernel_shape", "shape", "value", "value_ints", "dilations", "allowzero", "transA"]
    for name in draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
        content = draw(EXTREMES | st.lists(EXTREMES, min_size=1, max_size=4))
        if name == "value":
            content = numpy_helper.from_array(np.array(content, np.int64))
        odd_node.attribute.append(helper.make_attribute(name, content))
    return odd_node


@settings(settings.get_profile("many"))
@given(
    nodes=st.lists(odd_nodes(), min_size=1, max_size=8),
    shapes=st.lists(st.lists(EXTREMES | st.just("n"), max_size=4), min_size=2, max_size=2),
    opset=st.sampled_from([1, 2, 11, 13, 18, 24]),
)
def test_odd_graphs_give_every_split_a_site_with_at_most_one_line_of_reason(
    tmp_path_factory: pytest.TempPathFactory, nodes: list[Any], shapes: list[Any], opset: int
) -> None:
    inputs = [value("x", shapes[0]), value("w", shapes[1])]
    content = model(nodes, inputs, initializers=(sizes("s", 2, -1, 0),), opsets={"": opset})
    path = tmp_path_factory.getbasetemp() / "odd.onnx"
    path.unlink(missing_ok=True)  # faster than to empty it
    path.write_bytes(content.SerializeToString())
    sites = scan(path)
    assert len(sites) == sum(odd_node.op_type in ("Split", "SplitToSequence") for odd_node in nodes)
    for site in sites:
        assert site.operator.startswith("Split")
        assert len(why(site).splitlines()) <= 1


def test_a_hundred_thousand_splits_are_within_the_field_limit_of_a_scan(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        node("Split", "x", f"a{i} b{i}", name=f"n{i}", axis=1, num_outputs=2) for i in range(1000)
    ]
    monkeypatch.setattr(model_scan, "MAX_FIELDS", model_scan.MAX_FIELDS // 100)
    assert len(scanned(model(nodes, [value("x", [4, 6])]))) == 1000
