"""Sizes that a user gives to dynamic dimensions."""

from typing import Any

import onnx
import pytest
from onnx import helper

import dmlsplit as dml
from dmlsplit.frontends import Invalid, Known, Unknown
from dmlsplit.frontends.onnx import FixedSizes
from dmlsplit.models.site import Size
from tests.support.onnx_graphs import Scanned, model, node, value
from tests.support.onnx_graphs import sizes as lengths

CUT = node("Split", "y", "a b", axis=1, num_outputs=2)


def shape(scanned: Scanned, content: Any, given: dict[str, int]) -> tuple[Size, ...]:
    """Shape of the input of the only split."""
    dimensions = FixedSizes(given)
    (found,) = scanned(content, dimensions=dimensions)
    dimensions.check_all_used()
    return found.shape


def through(inner: str, *declared: Any, inputs: Any = ("batch", 6)) -> Any:
    nodes = [node(inner, "x", "y", domain="" if inner == "Relu" else "own"), CUT]
    return model(nodes, [value("x", list(inputs))], declared=declared)


DECLARED = value("y", ["batch", 6])


@pytest.mark.parametrize(
    ("content", "given", "found"),
    [
        (through("Relu"), {"batch": 3}, (3, 6)),
        (through("Relu"), {"x.0": 3}, (3, 6)),
        (through("Relu", inputs=(None, 6)), {"x.0": 3}, (3, 6)),
        (through("Relu", inputs=(-1, 6)), {"x.0": 3}, (3, 6)),
        (through("Mystery", DECLARED), {"batch": 3}, (3, 6)),
        (through("Mystery", DECLARED), {"x.0": 3}, (3, 6)),
        (through("Relu", inputs=("n", 6, "h")), {"n": 2, "h": 5}, (2, 6, 5)),
        (through("Relu", inputs=("n", 6, "h")), {"h": 5}, ("n", 6, 5)),
    ],
)
def test_a_size_is_given_by_name_or_by_input_and_axis(
    scanned: Scanned, content: Any, given: dict[str, int], found: Any
) -> None:
    assert shape(scanned, content, given) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"other": 1}, "dimension other is given the size 1; no .onnx model here has"),
        ({"x.1": 1}, "x.1 is 1; the model fixes it to 6"),
        ({"x.2": 1}, "dimension x.2 is given the size 1; no .onnx model here has"),
        (
            {"batch": 1, "x.0": 2},
            "dimension batch is 1, but x.0, the same dimension, is 2; the two must be equal",
        ),
    ],
)
def test_given_sizes_of_unknown_fixed_or_contradictory_dimensions_are_refused(
    scanned: Scanned, given: dict[str, int], message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        shape(scanned, through("Relu"), given)


def doubled(*declared: Any) -> Any:
    """A split of y, which is x twice, one after the other."""
    nodes = [node("Concat", "x x", "y", name="twice", axis=0), node("Relu", "y", "z"), CUT]
    return model(nodes, [value("x", ["n", 6])], declared=declared)


TWICE = value("y", ["2*n", 6])


@pytest.mark.parametrize("given", [{"n": 3, "2*n": 5}, {"x.0": 3, "2*n": 5}])
def test_a_size_other_than_the_computed_one_is_refused(
    scanned: Scanned, given: dict[str, int]
) -> None:
    message = (
        r"model\.onnx: dimension 2\*n is 5; at the other given sizes, it must be 6, the size of "
        r"y\.0 after Concat 'twice' of main\. Fix: give 6, or omit it"
    )
    with pytest.raises(dml.InvalidArgumentError, match=message):
        shape(scanned, doubled(TWICE), given)


def test_a_given_size_that_equals_the_computed_one_or_cannot_be_computed_is_used(
    scanned: Scanned,
) -> None:
    assert shape(scanned, doubled(TWICE), {"n": 3, "2*n": 6}) == (6, 6)
    assert shape(scanned, doubled(TWICE), {"2*n": 5}) == (5, 6)
    unknown = through("Mystery", TWICE, inputs=("n", 6))
    assert shape(scanned, unknown, {"n": 3, "2*n": 5}) == (5, 6)


def test_a_name_in_a_function_may_have_several_sizes(scanned: Scanned) -> None:
    """Each call of a function gives its dimensions other sizes."""
    body = [node("Concat", "p p", "q", axis=0)]
    imports = [helper.make_opsetid("", 18)]
    twice = helper.make_function("own", "Twice", ["p"], ["q"], body, imports)
    twice.value_info.append(value("q", ["2*n", 6]))
    nodes = [node("Twice", "x", "y", domain="own"), node("Twice", "y", "z", domain="own"), CUT]
    content = model(nodes, [value("x", ["n", 6])], functions=(twice,))
    assert shape(scanned, content, {"n": 3, "2*n": 6}) == (6, 6)


def test_a_contradiction_inside_a_loop_body_does_not_refuse_the_given_size(
    scanned: Scanned,
) -> None:
    inputs = [value("i", [], 7), value("go", [], 9), value("p", ["k", 6])]
    nodes = [node("Concat", "p p", "q", axis=0), node("Split", "q", "a b", num_outputs=2)]
    body = helper.make_graph(nodes, "body", inputs, [], value_info=[value("q", ["k", 6])])
    loop = node("Loop", "count go x", "y", body=body)
    assert shape(scanned, model([loop], [value("x", ["n", 6])]), {"k": 3}) == (6, 6)


@pytest.mark.parametrize("declared", [["n", 6], [4, 6], ["n"]])
def test_a_wrong_declaration_of_the_model_is_ignored(scanned: Scanned, declared: Any) -> None:
    """Exporters give outputs the names of inputs' dimensions, or sizes of an example."""
    given = FixedSizes({"n": 3})
    (found,) = scanned(doubled(value("y", declared)), dimensions=given)
    assert found.shape == (6, 6)
    assert given.contradicted == {((), "y"): (6, 6)}


def unranked(*nodes: Any, **split: Any) -> Any:
    """A split of y, whose rank is unknown, after more nodes that use y."""
    lost = node("Mystery", "x", "y", domain="own")
    cut = node("Split", "y s", "a b", **split)
    inputs, declared = [value("x", ["n", 6])], (value("y"),)
    constants = (lengths("s", 2, 4),)
    return model([lost, cut, *nodes], inputs, initializers=constants, declared=declared)


LOST = "the shape of its input is unknown after Mystery #0 of main"


@pytest.mark.parametrize(
    ("axis", "given", "problem"),
    [
        (2, {"y.0": 2}, "axis is 2; it must be from -1 to 0 at rank 1"),
        (-1, {"y.0": 2}, "split is [2, 4], which adds up to 6; it must add up to 2"),
        (1, {"y.0": 2, "y.2": 5}, ""),
        (1, {"y.1": 6}, ""),
    ],
)
def test_sizes_of_some_dimensions_of_an_unknown_rank_leave_a_split_unknown(
    scanned: Scanned, axis: int, given: dict[str, int], problem: str
) -> None:
    sizes = FixedSizes(given)
    (found,) = scanned(unranked(axis=axis), dimensions=sizes)
    sizes.check_all_used()
    assert isinstance(found.state, Unknown)
    assert found.shape is None
    assert found.state.reason.startswith(LOST + ("; with the given sizes, " if problem else ""))
    assert problem in found.state.reason


def test_a_split_that_is_valid_at_the_rank_that_is_given_is_known(scanned: Scanned) -> None:
    given = {"y.0": 2, "y.1": 6, "y.rows": 7}
    (found,) = scanned(unranked(axis=1), dimensions=FixedSizes(given))
    assert isinstance(found.state, Known)
    assert found.shape == (2, 6)


def test_a_node_that_is_invalid_whatever_the_rank_stays_invalid(scanned: Scanned) -> None:
    wrong = node("Split", "x s", "c d", name="wrong", axis=1, num_outputs=2)
    found = scanned(unranked(wrong, axis=1), dimensions=FixedSizes({"y.0": 2, "n": 3}))
    assert [type(site.state) for site in found] == [Unknown, Invalid]


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
    assert cut.state.missing == (("y.1", 2),)


def test_dimensions_that_paddle_calls_by_one_name_are_one_dimension(scanned: Scanned) -> None:
    content = through("Relu", inputs=("?", 6, "?"))
    assert shape(scanned, content, {}) == ("?", 6, "?")
    assert shape(scanned, content, {"?": 8}) == (8, 6, 8)


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
    assert shape(scanned, through("Relu", inputs=("unk__6", 6)), {"unk__6": 4}) == (4, 6)


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("bach", "give batch, or VALUE"),
        ("q", "give batch or x.1 or height, or VALUE"),
    ],
)
def test_an_unknown_name_gets_similar_ones_or_all_that_there_are(
    scanned: Scanned, given: str, fix: str
) -> None:
    content = through("Mystery", value("y", ["height", 6]), inputs=("batch", None))
    with pytest.raises(dml.InvalidArgumentError, match=f"of that name. Fix: {fix}"):
        shape(scanned, content, {given: 3})


def test_a_name_with_two_meanings_is_refused(scanned: Scanned) -> None:
    """Here, y.0 is the first axis of y, and the name of its third."""
    content = model([node("Relu", "x", "y"), CUT], [value("x", ["n", 6, "y.0"])])
    with pytest.raises(dml.InvalidArgumentError, match=r"y\.0 has two meanings: a dimension"):
        scanned(content, dimensions=FixedSizes({"y.0": 2}))
    assert shape(scanned, content, {"x.2": 2}) == ("n", 6, 2)
