"""Constants that exporters compute from sizes, and the shapes that they become."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.frontends import Known
from dmlsplit.frontends.onnx import FixedSizes, reader
from dmlsplit.frontends.site import Cause
from tests.support.onnx_graphs import FLOAT, INT64, Scanned, model, node, resized, sizes, value

CUT = node("Split", "y", "a b", name="cut", axis=1, num_outputs=2)


def array(name: str, content: Any, kind: type = np.int64) -> Any:
    return numpy_helper.from_array(np.array(content, kind), name)


def reshaped(scanned: Scanned, shape: list[Any], *nodes: Any, tensors: tuple[Any, ...] = ()) -> Any:
    """The shape that x gets from the computed tensor s; its Shape is `whole`."""
    made = [node("Shape", "x", "whole"), *nodes, node("Reshape", "x s", "y"), CUT]
    (site,) = scanned(model(made, [value("x", shape)], initializers=tensors))
    return site.shape


@pytest.mark.parametrize(
    ("nodes", "tensors", "shape"),
    [
        ([node("Add", "whole c", "s")], [array("c", [1, -1, 0])], (5, 5, 2)),
        ([node("Slice", "whole c d zero one", "s")], [array("c", [2]), array("d", [-9]),
                                                      array("zero", [0]), array("one", [-1])],
         (2, 6, 4)),
        ([node("Slice", "whole c d", "t"), node("Concat", "t minus", "s", axis=0)],
         [array("c", [0]), array("d", [1]), array("minus", [-1])], (4, 12)),
        ([node("Cast", "whole", "f", to=FLOAT), node("Div", "f c", "g"), node("Floor", "g", "h"),
          node("Cast", "h", "t", to=INT64), node("Concat", "t minus", "s", axis=0)],
         [array("c", 2.5, np.float32), array("minus", [-1])], (1, 2, 2, 12)),
        ([node("Div", "c d", "s")], [array("c", [-25, -4]), array("d", [-2, 1])], (12, -4)),
        ([node("ReduceProd", "whole", "t"), node("Concat", "one t", "s", axis=0)],
         [array("one", [1])], (1, 48)),
        ([node("Equal", "c minus", "e"), node("Where", "e whole c", "s")],
         [array("c", [-1, 3, 4]), array("minus", -1)], (4, 3, 4)),
        ([node("Transpose", "c", "t", perm=[1, 0]), node("Reshape", "t minus", "s")],
         [array("c", [[4, 2], [6, 1]]), array("minus", [-1])], (4, 6, 2, 1)),
        ([node("Range", "two nine four", "s")],
         [array("two", 2), array("nine", 9), array("four", 4)], (2, 6)),
        ([node("NonZero", "c", "t"), node("Flatten", "t", "u"), node("Squeeze", "u zero", "s")],
         [array("c", [0, 0, 1, 1]), array("zero", [0])], (2, 3)),
        ([node("Expand", "c two", "t"), node("Tile", "t two", "s")],
         [array("c", [3]), array("two", [2])], (3, 3, 3, 3)),
        ([node("ConstantOfShape", "two", "s", value=array("", [6]))], [array("two", [2])], (6, 6)),
    ],
    ids=lambda v: v[-1].op_type + "-" + v[0].op_type if isinstance(v, list) and hasattr(
        v[0], "op_type") else "",
)  # fmt: skip
def test_a_shape_is_computed(
    scanned: Scanned, nodes: list[Any], tensors: list[Any], shape: tuple[int, ...]
) -> None:
    found = reshaped(scanned, [4, 6, 2], *nodes, tensors=tuple(tensors))
    assert found == (shape if min(shape) > 0 else None)


def test_a_dynamic_size_keeps_its_name_until_it_is_computed_with(scanned: Scanned) -> None:
    back = node("Gather", "whole at", "s", axis=0)
    at = sizes("at", 2, 0, 1)
    assert reshaped(scanned, ["n", 6, 2], back, tensors=(at,)) == (2, "n", 6)
    kept = (sizes("s", 0, 2, -1),)
    assert reshaped(scanned, ["n", 4, 6], tensors=kept) == ("n", 2, 12)
    more = [node("Gather", "whole at", "t", axis=0), node("Add", "t t", "s")]
    assert reshaped(scanned, ["n", 6, 2], *more, tensors=(at,)) == (4, "?", 12)
    run = node("Concat", "whole given", "s", axis=0)
    content = [node("Shape", "x", "whole"), run, node("Reshape", "x s", "y"), CUT]
    given = [value("x", ["n", 6]), value("given", [1], INT64)]
    (site,) = scanned(model(content, given))
    assert (site.shape, site.state.cause) == (("n", 6, "?"), Cause.DYNAMIC)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (node("Reshape", "x s", "y", allowzero=1), (2, 0)),
        (node("Reshape", "x s", "y"), (2, 6)),
        (node("Unsqueeze", "x s", "y"), (1, 4, 1, 6)),
    ],
)
def test_zeros_and_axes_in_any_order_are_read_as_onnx_says(
    scanned: Scanned, made: Any, shape: tuple[int, ...]
) -> None:
    given = [4, 6] if made.op_type == "Unsqueeze" else [2, 6]
    content = model([made, CUT], [value("x", given)], initializers=(sizes("s", 2, 0),))
    assert [site.shape for site in scanned(content)] == [shape]


def ranged(limit: int) -> Any:
    """A split of what a Range up to a computed end gathers."""
    nodes = [
        node("Abs", "minus", "end"),
        node("Range", "zero end one", "at", name="r"),
        node("Gather", "x at", "y", axis=1),
        CUT,
    ]
    tensors = (array("zero", 0), array("minus", -limit), array("one", 1))
    return model(nodes, [value("x", [2, 9])], initializers=tensors)


@pytest.mark.parametrize("limit", [4, 2**17, 2**40, 2**62])
def test_a_large_constant_has_a_shape_but_takes_no_memory(scanned: Scanned, limit: int) -> None:
    (found,) = scanned(ranged(limit))
    assert (type(found.state), found.shape) == (Known, (2, limit))


def test_the_work_of_one_model_is_limited(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node("Add", f"v{at} v0", f"v{at + 1}") for at in range(9)]
    nodes += [node("ConstantOfShape", "v9", "y"), CUT]
    content = model(nodes, [value("x", [3])], initializers=(array("v0", [1, 2]),))
    assert [site.shape for site in scanned(content)] == [(10, 20)]
    monkeypatch.setattr(reader, "MAXIMUM_COMPUTED", 20)
    assert [site.shape for site in scanned(content)] == [("?", "?")]


def test_computed_lengths_are_read(scanned: Scanned) -> None:
    nodes = [
        node("Sqrt", "squares", "roots"),
        node("Cast", "roots", "lengths", to=INT64),
        node("Split", "x lengths", "p q", axis=1),
    ]
    squares = array("squares", [4, 16], np.float32)
    (found,) = scanned(model(nodes, [value("x", [3, 6])], initializers=(squares,)))
    assert (type(found.state), found.state.pieces, found.index) == (Known, (2, 4), 2)
    nodes = [node("Shape", "x", "lengths", start=1), node("Split", "x lengths", "p", axis=1)]
    (found,) = scanned(model(nodes, [value("x", [3, "n"])]))
    assert found.state.cause is Cause.LENGTHS


@pytest.mark.parametrize(
    ("kind", "number"), [(INT64, 2**64), (TensorProto.INT32, 2**31), (TensorProto.INT8, 1)]
)
def test_a_number_that_its_type_may_not_hold_is_not_computed(
    scanned: Scanned, kind: int, number: int
) -> None:
    nodes = [node("Cast", "c", "s", to=kind), node("ConstantOfShape", "s", "y"), CUT]
    constant = array("c", [1.0, number], np.float64)
    (found,) = scanned(model(nodes, [value("x", [3])], initializers=(constant,)))
    assert found.shape == ("?", "?")


def test_sizes_that_the_user_gives_count(scanned: Scanned) -> None:
    for name in ("n", "x.0"):
        (found,) = scanned(resized(["n", 4, 8, 8]), dimensions=FixedSizes({name: 3}))
        assert found.shape == (3, 4, 16, 16)
    nodes = [
        node("NonZero", "x", "z", name="nz"),
        node("OneHot", "z depth values", "hot"),
        node("Transpose", "hot", "y", perm=[0, 2, 1]),
        CUT,
    ]
    tensors = (array("depth", 4), array("values", [0, 1], np.float32))
    content = model(nodes, [value("x", [2, 3])], initializers=tensors)
    (found,) = scanned(content)
    assert found.state.reason == "dimension 2 is dynamic" or "NonZero 'nz'" in found.state.reason
    (found,) = scanned(content, dimensions=FixedSizes({"z.1": 6}))
    assert found.shape == (2, 4, 6)


def test_a_function_of_the_model_passes_its_attributes_on(scanned: Scanned) -> None:
    nodes = [
        node("Constant", "", "s"),
        node("Reshape", "x s", "t"),
        node("Transpose", "t", "y"),
        node("Split", "y", "p", name="cut", num_outputs=1),
    ]
    for made, name, own in ((nodes[0], "sizes", "value_ints"), (nodes[2], "order", "perm")):
        made.attribute.add(name=own, ref_attr_name=name, type=onnx.AttributeProto.INTS)
    imports = [helper.make_opsetid("", 18)]
    body = helper.make_function("own", "F", ["x"], ["p"], nodes, imports, ["sizes", "order"])
    call = node("F", "x", "z", domain="own", sizes=[2, 3, 4], order=[2, 0, 1])
    (found,) = scanned(model([call], [value("x", [24])], functions=(body,)))
    assert found.shape == (4, 2, 3)
    (found,) = scanned(model([], [value("x", [24])], functions=(body,)))
    assert found.state.reason == "its shape is unknown after Constant[0] of function own.F"


def test_both_branches_of_an_if_give_the_shape(scanned: Scanned) -> None:
    def branch(name: str, operator: str, **attributes: Any) -> Any:
        made = node(operator, "x", name, **attributes)
        return helper.make_graph([made], name, [], [value(name)])

    one = branch("p", "Relu")
    for other, shape in (
        (branch("q", "Neg"), (2, 6)),
        (branch("q", "Concat", axis=0), (2, 6)),
        (branch("q", "ReduceSum", keepdims=1), ("?", "?")),
        (branch("q", "ReduceSum", keepdims=0), None),
    ):
        nodes = [node("If", "c", "y", then_branch=one, else_branch=other), CUT]
        (found,) = scanned(model(nodes, [value("x", [2, 6]), value("c", [], TensorProto.BOOL)]))
        assert found.shape == shape
