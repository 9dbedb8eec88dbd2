"""Constants: the ways to store them, files that are never opened, and what exporters compute."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.frontends import Known
from dmlsplit.frontends.onnx import FixedSizes
from dmlsplit.models.onnx import reader
from dmlsplit.models.site import Cause
from tests.support.models import parsed
from tests.support.onnx_graphs import (
    INT64,
    Scanned,
    field,
    model,
    node,
    resized,
    sizes,
    typed,
    value,
    varint,
)


@pytest.mark.parametrize(
    ("source", "initializers", "nodes"),
    [
        ("raw initializer", (sizes("s", 2, 4),), []),
        ("int64_data", (typed("s", [2, 4], int64_data=[2, 4]),), []),
        ("Constant", (), [node("Constant", "", "s", value=sizes("", 2, 4))]),
        ("Constant value_ints", (), [node("Constant", "", "s", value_ints=[2, 4])]),
        ("Identity", (sizes("r", 2, 4),), [node("Identity", "r", "s")]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_lengths_are_read_from_initializers_and_constants(
    scanned: Scanned, source: str, initializers: tuple[Any, ...], nodes: list[Any]
) -> None:
    nodes = [*nodes, node("Split", "x s", "a b")]
    (site,) = scanned(model(nodes, [value("x", [6])], initializers=initializers))
    assert site.state.descriptor.split_sizes == (2, 4)


def test_float_lengths_of_split_1_are_read(scanned: Scanned) -> None:
    for kind in (np.float16, np.float32, np.float64):
        array = np.array([2, 4], kind)
        data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = numpy_helper.from_array(array, "s")
        plain = helper.make_tensor("s", data_type, [2], array.tolist())
        cut, graph_input = node("Split", "x s", "a b", axis=0), value("x", [6], data_type)
        for tensor in (raw, plain):
            (site,) = scanned(model([cut], [graph_input], initializers=(tensor,), opsets={"": 1}))
            assert site.state.descriptor.split_sizes == (2, 4)


@pytest.mark.parametrize("location", ["weights.bin", "/etc/passwd", "../w", "C:\\w", "..\\w"])
def test_external_lengths_are_never_opened(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    tensor = TensorProto(name="s", data_type=INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value="-1")
    tensor.external_data.add(key="length", value=str(2**70))
    opened: list[str] = []
    original = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a, **k: (opened.append(path), original(path, *a))[1]
    )
    content = model([node("Split", "x s", "a b")], [value("x", [6])], initializers=(tensor,))
    (site,) = scanned(content)
    assert [Path(path).name for path in opened if "pytest" in str(path)] == ["model.onnx"]
    assert site.state.reason == "split is in external data, which is not opened"


def test_a_list_of_absurdly_many_sizes_is_not_read(scanned: Scanned) -> None:
    for content in ([0] * 65_537, varint(0) * 65_537):
        cut = node("Split", "x", "a b")
        if isinstance(content, bytes):  # Packed, as other writers do.
            cut.attribute.add().ParseFromString(field(1, b"split") + field(8, content))
        else:
            cut.attribute.append(helper.make_attribute("split", content))
        (site,) = scanned(model([cut], [value("x", [6])], opsets={"": 11}))
        assert "has more than 65,536 integers, the most that are read" in site.state.reason


# ---- constants that exporters compute from sizes, and the shapes that they become ---------------

Shape = tuple[int | str, ...] | None


def written(x: str, constants: str, nodes: str, functions: str = "") -> onnx.ModelProto:
    """A model that splits y, which it computes from x."""
    cut = "k, l = Split <axis = 1, num_outputs = 2> (y)"
    constant_part = f"<{constants}>" if constants else ""
    return parsed(
        f"(float[{x}] x, int64[1] given) => () {constant_part} {{ {nodes} {cut} }}", functions
    )


def reshaped(x: str, constants: str, nodes: str) -> onnx.ModelProto:
    """A model that reshapes x to a tensor s that it computes, perhaps from the shape of x."""
    return written(x, constants, f"whole = Shape (x) {nodes} y = Reshape (x, s)")


# tests/lint/test_sweeps.py has random graphs of more operators.
@pytest.mark.parametrize(
    ("constants", "nodes", "shape"),
    [
        ("int64[3] c = {1, -1, 0}", "s = Add (whole, c)", (5, 5, 2)),
        (
            "int64[1] c = {2}, int64[1] d = {-9}, int64[1] zero = {0}, int64[1] one = {-1}",
            "s = Slice (whole, c, d, zero, one)",
            (2, 6, 4),
        ),
        (
            "float c = {2.5}, int64[1] minus = {-1}",
            """f = Cast <to = 1> (whole) g = Div (f, c) h = Floor (g) t = Cast <to = 7> (h)
            s = Concat <axis = 0> (t, minus)""",
            (1, 2, 2, 12),
        ),
        ("int64[2] c = {-25, -4}, int64[2] d = {-2, 1}", "s = Div (c, d)", None),
        ("int64[2] c = {-25, -96}, int64[2] d = {-2, -24}", "s = Div (c, d)", (12, 4)),
        (
            "int64[2, 2] c = {4, 2, 6, 1}, int64[1] minus = {-1}",
            "t = Transpose <perm = [1, 0]> (c) s = Reshape (t, minus)",
            (4, 6, 2, 1),
        ),
        (
            "int64[1] c = {3}, int64[1] two = {2}",
            "t = Expand (c, two) s = Tile (t, two)",
            (3, 3, 3, 3),
        ),
        ("int64[1] n = {2}", "s = ConstantOfShape <value = int64[1] {6}> (n)", (6, 6)),
    ],
)
def test_a_valid_shape_that_a_graph_computes_is_known(
    scanned: Scanned, constants: str, nodes: str, shape: Shape
) -> None:
    assert [site.shape for site in scanned(reshaped("4, 6, 2", constants, nodes))] == [shape]


@pytest.mark.parametrize(
    ("x", "constants", "nodes", "shape"),
    [
        ("n, 6, 2", "int64[3] at = {2, 0, 1}", "s = Gather <axis = 0> (whole, at)", (2, "n", 6)),
        ("n, 4, 6", "int64[3] s = {0, 2, -1}", "", ("n", 2, 12)),
        (
            "n, 6, 2",
            "int64[3] at = {2, 0, 1}",
            "t = Gather <axis = 0> (whole, at) s = Add (t, t)",
            (4, None, 12),
        ),
        ("n, 6", "", "s = Concat <axis = 0> (whole, given)", ("n", 6, None)),
    ],
)
def test_a_dynamic_size_keeps_its_name_until_it_is_computed_with(
    scanned: Scanned, x: str, constants: str, nodes: str, shape: Shape
) -> None:
    (site,) = scanned(reshaped(x, constants, nodes))
    assert (site.shape, site.state.cause) == (shape, Cause.DYNAMIC)


@pytest.mark.parametrize(
    ("x", "node", "shape"),
    [
        ("2, 6", "Reshape <allowzero = 1> (x, s)", (2, 0)),
        ("2, 6", "Reshape (x, s)", (2, 6)),
        ("4, 6", "Unsqueeze (x, s)", (1, 4, 1, 6)),
    ],
)
def test_zeros_of_reshape_and_unordered_axes_of_unsqueeze_are_read_as_onnx_says(
    scanned: Scanned, x: str, node: str, shape: Shape
) -> None:
    content = written(x, "int64[2] s = {2, 0}", f"y = {node}")
    assert [site.shape for site in scanned(content)] == [shape]


@pytest.mark.parametrize("limit", [4, 2**17, 2**40, 2**62])
def test_a_large_constant_has_a_shape_but_takes_no_memory(scanned: Scanned, limit: int) -> None:
    constants = f"int64 zero = {{0}}, int64 one = {{1}}, int64 minus = {{{-limit}}}"
    nodes = "end = Abs (minus) at = Range (zero, end, one) y = Gather <axis = 1> (x, at)"
    (site,) = scanned(written("2, 9", constants, nodes))
    assert (type(site.state), site.shape) == (Known, (2, limit))


def test_an_empty_constant_with_a_large_size_takes_no_memory(scanned: Scanned) -> None:
    nothing = numpy_helper.from_array(np.empty((0, 1), np.int64), "nothing")
    nodes = [node("Tile", "nothing times", "x"), node("Split", "x", "a b", axis=1, num_outputs=2)]
    (site,) = scanned(model(nodes, [], initializers=(nothing, sizes("times", 1, 2**50))))
    assert site.shape == (0, 2**50)


def test_a_model_that_computes_too_many_elements_has_unknown_sizes(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = " ".join(f"v{index + 1} = Add (v{index}, v0)" for index in range(9))
    content = written("3", "int64[2] v0 = {1, 2}", f"{nodes} y = ConstantOfShape (v9)")
    assert [site.shape for site in scanned(content)] == [(10, 20)]
    monkeypatch.setattr(reader, "MAX_COMPUTED", 20)
    assert [site.shape for site in scanned(content)] == [(None, None)]


def test_computed_lengths_are_read(scanned: Scanned) -> None:
    graph = """(float[3,6] x, float[3,n] z) => () <float[2] squares = {4, 16}> {
        roots = Sqrt (squares)
        lengths = Cast <to = 7> (roots)
        p, q = Split <axis = 1> (x, lengths)
        whole = Shape <start = 1> (z)
        r = Split <axis = 1> (z, whole)
    }"""
    static_site, dynamic_site = scanned(parsed(graph))
    assert isinstance(static_site.state, Known)
    assert (static_site.state.pieces, static_site.index) == ((2, 4), 2)
    assert dynamic_site.state.cause is Cause.LENGTHS


@pytest.mark.parametrize(
    ("kind", "number"),
    [(TensorProto.INT64, 2**64), (TensorProto.INT32, 2**31), (TensorProto.INT8, 1)],
    ids=["INT64", "INT32", "a type that is not computed"],
)
def test_a_number_that_its_type_may_not_hold_is_not_computed(
    scanned: Scanned, kind: int, number: int
) -> None:
    constants = f"double[2] c = {{1.0, {number}.0}}"
    nodes = f"s = Cast <to = {kind}> (c) y = ConstantOfShape (s)"
    assert [site.shape for site in scanned(written("3", constants, nodes))] == [(None, None)]


def test_sizes_that_the_user_gives_are_used(scanned: Scanned) -> None:
    for name in ("n", "x.0"):
        (site,) = scanned(resized(["n", 4, 8, 8]), dimensions=FixedSizes({name: 3}))
        assert site.shape == (3, 4, 16, 16)


def test_a_function_of_the_model_passes_its_attributes_on(scanned: Scanned) -> None:
    function = """<domain: "local", opset_import: ["" : 18]> F <sizes, order> (x) => (p) {
        s = Constant <value_ints : ints = @sizes> ()
        t = Reshape (x, s)
        y = Transpose <perm : ints = @order> (t)
        [cut] p = Split <num_outputs = 1> (y)
    }"""
    call = "z = local.F <sizes = [2, 3, 4], order = [2, 0, 1]> (x)"
    (site,) = scanned(parsed(f"(float[24] x) => () {{ {call} }}", function))
    assert site.shape == (4, 2, 3)
    (site,) = scanned(parsed("(float[24] x) => () { y = Relu (x) }", function))
    assert (
        site.state.reason
        == "the shape of its input is unknown after Constant #0 of function local.F"
    )


@pytest.mark.parametrize(
    ("else_node", "shape"),
    [
        ("Neg (x)", (2, 6)),
        ("Concat <axis = 0> (x)", (2, 6)),
        ("ReduceSum <keepdims = 1> (x)", (None, None)),
        ("ReduceSum <keepdims = 0> (x)", None),
    ],
)
def test_the_shape_of_an_if_has_the_sizes_on_which_both_branches_agree(
    scanned: Scanned, else_node: str, shape: Any
) -> None:
    branches = [
        f"{name}_branch = {name} () => (float[] {name}_0) {{ {name}_0 = {node} }}"
        for name, node in (("then", "Relu (x)"), ("else", else_node))
    ]
    nodes = f"c = Cast <to = 9> (given) y = If <{', '.join(branches)}> (c)"
    assert [site.shape for site in scanned(written("2, 6", "", nodes))] == [shape]
