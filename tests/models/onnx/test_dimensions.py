"""Sizes that a user gives to dynamic dimensions."""

import re
from typing import Any

import onnx
import pytest
from onnx import helper

import dmlsplit as dml
from dmlsplit.frontends import Unknown
from dmlsplit.frontends.onnx import FixedSizes
from dmlsplit.models.site import Size
from tests.support.onnx_graphs import Scanned, model, node, value

CUT = node("Split", "y", "a b", axis=1, num_outputs=2)


def split_shape(scanned: Scanned, content: Any, dim_sizes: dict[str, int]) -> tuple[Size, ...]:
    """Shape of the input of the only split."""
    dimensions = FixedSizes(dim_sizes)
    (site,) = scanned(content, dimensions=dimensions)
    dimensions.check_all_used()
    return site.shape


def split_after(inner: str, *declarations: Any, inputs: Any = ("batch", 6)) -> Any:
    """A split of y, which an operator makes of x; only Relu is one of ONNX's."""
    nodes = [node(inner, "x", "y", domain="" if inner == "Relu" else "own"), CUT]
    return model(nodes, [value("x", list(inputs))], declared=declarations)


DECLARED = value("y", ["batch", 6])


@pytest.mark.parametrize(
    ("content", "dim_sizes", "expected_shape"),
    [
        (split_after("Relu"), {"batch": 3}, (3, 6)),
        (split_after("Relu"), {"x.0": 3}, (3, 6)),
        (split_after("Relu", inputs=(None, 6)), {"x.0": 3}, (3, 6)),
        (split_after("Relu", inputs=(-1, 6)), {"x.0": 3}, (3, 6)),
        (split_after("Mystery", DECLARED), {"batch": 3}, (3, 6)),
        (split_after("Mystery", DECLARED), {"x.0": 3}, (3, 6)),
        (split_after("Relu", inputs=("n", 6, "h")), {"n": 2, "h": 5}, (2, 6, 5)),
        (split_after("Relu", inputs=("n", 6, "h")), {"h": 5}, ("n", 6, 5)),
    ],
)
def test_a_size_is_given_by_name_or_by_input_and_axis(
    scanned: Scanned, content: Any, dim_sizes: dict[str, int], expected_shape: Any
) -> None:
    assert split_shape(scanned, content, dim_sizes) == expected_shape


@pytest.mark.parametrize(
    ("dim_sizes", "message"),
    [
        ({"other": 1}, "dimension other is given the size 1; no input of an .onnx"),
        ({"x.1": 1}, "x.1 is 1; the model fixes it to 6"),
        ({"x.2": 1}, "dimension x.2 is given the size 1; no input of an .onnx"),
        (
            {"batch": 1, "x.0": 2},
            "dimension batch is 1, but x.0, the same dimension, is 2; the two must be equal",
        ),
    ],
)
def test_given_sizes_of_unknown_fixed_or_contradictory_dimensions_are_refused(
    scanned: Scanned, dim_sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        split_shape(scanned, split_after("Relu"), dim_sizes)


def doubled(*declarations: Any) -> Any:
    """A split of y, which is x twice, one after the other."""
    nodes = [node("Concat", "x x", "y", name="twice", axis=0), node("Relu", "y", "z"), CUT]
    return model(nodes, [value("x", ["n", 6])], declared=declarations)


@pytest.mark.parametrize("dim_name", ["2*n", "y.0"])
def test_the_size_of_a_value_in_the_middle_is_not_given_but_declared(
    scanned: Scanned, dim_name: str
) -> None:
    names = value("y", ["2*n", 6])
    message = (
        f"{re.escape(dim_name)} is given the size 6; no input .* has a dynamic .* Fix: give n; "
    )
    with pytest.raises(dml.InvalidArgumentError, match=f"{message}declare sizes of other values"):
        split_shape(scanned, doubled(names), {dim_name: 6})
    assert split_shape(scanned, doubled(names), {"n": 3}) == (6, 6)
    opaque_model = split_after("Mystery", names, inputs=("n", 6))
    assert split_shape(scanned, opaque_model, {"n": 3}) == ("2*n", 6)
    assert split_shape(scanned, split_after("Mystery", value("y", [6, 6])), {}) == (6, 6)


@pytest.mark.parametrize("middle", [None, "k"])
def test_sizes_that_no_option_gives_are_not_listed_but_have_examples(
    scanned: Scanned, middle: str | None
) -> None:
    declaration = value("y", ["n", middle])
    (site,) = scanned(split_after("Mystery", declaration, inputs=("n", 6)))
    assert isinstance(site.state, Unknown)
    assert (site.state.missing, site.state.example_shape) == ((), (1, 2))
    (site,) = scanned(split_after("Mystery", value("y", ["n", 6]), inputs=("n", 6)))
    assert isinstance(site.state, Unknown)
    assert (site.state.missing, site.state.example_shape) == ((("n", 1),), (1, 6))


def test_a_dimension_of_a_body_has_no_option(scanned: Scanned) -> None:
    inputs = [value("i", [], 7), value("go", [], 9), value("p", ["k", 6])]
    nodes = [node("Concat", "p p", "q", axis=0), node("Split", "q", "a b", num_outputs=2)]
    body = helper.make_graph(nodes, "body", inputs, [])
    loop = node("Loop", "count go x", "y", body=body)
    content = model([loop], [value("x", ["n", 6])])
    (site,) = scanned(content)
    assert isinstance(site.state, Unknown)
    assert site.state.missing == ()
    with pytest.raises(dml.InvalidArgumentError, match="dimension k is given the size 3"):
        split_shape(scanned, content, {"k": 3})


@pytest.mark.parametrize("declared_shape", [["n", 6], [4, 6], ["n"]])
def test_a_wrong_declaration_of_the_model_is_ignored(scanned: Scanned, declared_shape: Any) -> None:
    """Exporters give outputs the names of inputs' dimensions, or sizes of an example."""
    (site,) = scanned(doubled(value("y", declared_shape)), dimensions=FixedSizes({"n": 3}))
    assert site.shape == (6, 6)


def test_a_rank_is_declared_and_not_given(scanned: Scanned) -> None:
    content = model([node("Relu", "x", "y"), CUT], [value("x")])
    (site,) = scanned(content)
    assert isinstance(site.state, Unknown)
    assert (site.state.missing, site.state.example_shape) == ((), None)
    with pytest.raises(dml.InvalidArgumentError, match="Fix: remove it, as no input has a dynamic"):
        split_shape(scanned, content, {"x.0": 2})


@pytest.mark.parametrize("name", ["?", "None", "", "0", "-1", "x.2"])
def test_a_size_that_is_given_by_name_sets_no_size_that_is_unknown(
    scanned: Scanned, name: str
) -> None:
    """Paddle calls dimensions ``?``; those of NonZero's output have no name."""
    nodes = [node("NonZero", "x", "p"), node("Cast", "p", "y", to=1), CUT]
    content = model(nodes, [value("x", [1, 3, name, name])])
    dimensions = FixedSizes({name or "x.2": 8, "x.3": 8})
    (cut,) = scanned(content, dimensions=dimensions)
    assert cut.shape == (4, None)
    assert isinstance(cut.state, Unknown)
    assert (cut.state.missing, cut.state.example_shape) == ((), (4, 2))


def test_dimensions_that_paddle_calls_by_one_name_are_one_dimension(scanned: Scanned) -> None:
    content = split_after("Relu", inputs=("?", 6, "?"))
    assert split_shape(scanned, content, {}) == ("?", 6, "?")
    assert split_shape(scanned, content, {"?": 8}) == (8, 6, 8)


def test_an_unknown_axis_is_not_the_last_one(scanned: Scanned) -> None:
    """The caller of a function gives the axis; a scan of the function alone does not know it."""
    cut = node("Split", "x", "a b")
    cut.attribute.add(name="axis", ref_attr_name="at", type=onnx.AttributeProto.INT)
    imports = [helper.make_opsetid("", 13)]
    lone = helper.make_function("own", "Cut", ["x"], ["a", "b"], [cut], imports, ["at"])
    (site,) = scanned(model([], [], functions=(lone,)))
    assert site.axis is None


def test_a_name_that_shape_inference_invented_is_the_name_of_a_dimension(scanned: Scanned) -> None:
    """Netron and ONNX Runtime show it; exporters, such as tf2onnx, keep it in the model."""
    assert split_shape(scanned, split_after("Relu", inputs=("unk__6", 6)), {"unk__6": 4}) == (4, 6)


@pytest.mark.parametrize(
    ("dim_name", "fix"), [("bach", "give batch; declare"), ("q", "give batch or x.1; declare")]
)
def test_an_unknown_name_gets_similar_ones_or_all_that_there_are(
    scanned: Scanned, dim_name: str, fix: str
) -> None:
    content = split_after("Mystery", value("y", ["height", 6]), inputs=("batch", None))
    with pytest.raises(dml.InvalidArgumentError, match=f"of that name. Fix: {fix}"):
        split_shape(scanned, content, {dim_name: 3})


def test_a_name_that_is_also_an_axis_of_an_input_means_the_axis(scanned: Scanned) -> None:
    """Here, x.0 is the first axis of x, and the name of its third."""
    content = model([node("Relu", "x", "y"), CUT], [value("x", ["n", 6, "x.0"])])
    assert split_shape(scanned, content, {"x.0": 2}) == (2, 6, "x.2")
    assert split_shape(scanned, content, {"x.2": 2}) == ("n", 6, 2)
