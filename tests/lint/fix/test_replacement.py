"""A split and its replacement, and the inputs that they are compared on."""

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import dmlsplit as dml
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.frontends import Known, SplitSite
from dmlsplit.lint.fix.comparison import random_input
from dmlsplit.lint.fix.replacement import Replacement, compared_replacement
from dmlsplit.lint.fix.split_forms import compared_shapes
from dmlsplit.models.site import Size
from tests.support.sites import split_site

DESC = SplitOperatorDesc.from_sizes(TensorDesc("FLOAT32", (4, 4)), axis=0, sizes=(2, 2))


def site(kind: str | None = "FLOAT", shape: tuple[Size, ...] = (4, 4)) -> SplitSite:
    state = Known(DESC, (2, 2))
    return split_site(state=state, element_type=kind, shape=shape, axis=0, opset=18)


def split(axis: int = 0, outputs: str = "a b") -> NodeProto:
    return helper.make_node("Split", ["x", "sizes"], outputs.split(), name="cut", axis=axis)


WRONG = (
    r"^net/cut: its replacement gives another result for an input of shape \(4, 4\)\. This is a bug"
)


@pytest.mark.parametrize("node", [split(axis=1), split(outputs="b a")], ids=["shape", "values"])
def test_a_replacement_with_a_different_output_is_an_error(node: NodeProto) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=WRONG):
        compared_replacement(Replacement(site(), split(), [node]))


def test_a_replacement_with_a_sequence_of_another_length_is_an_error() -> None:
    whole = helper.make_node("SplitToSequence", ["x"], ["s"], name="cut", axis=0)
    less = helper.make_node("SequenceConstruct", ["x"], ["s"])
    with pytest.raises(dml.InvalidArgumentError, match=WRONG):
        compared_replacement(Replacement(site(), whole, [less]))


@pytest.mark.parametrize("names", [("n", "m"), ("?", "?0"), (None, None)])
def test_dynamic_dimensions_have_distinct_sizes_in_and_across_inputs(
    names: tuple[Any, Any],
) -> None:
    """In each input the sizes differ, so that two dimensions cannot be mistaken for each other."""
    first, second = names
    shapes = compared_shapes(site(shape=(first, 4, second, first)))[:3]
    assert all(len({shape[axis] for shape in shapes}) == 3 for axis in (0, 2))
    assert all(shape[0] != shape[2] for shape in shapes)
    assert all((shape[0] == shape[3]) == (first is not None) for shape in shapes)


def test_dynamic_dimensions_are_0_and_1_alone_and_together() -> None:
    shapes = compared_shapes(site(shape=("n", 4, None)))
    assert {(1, 4, 1), (0, 4, 3), (2, 4, 0), (0, 4, 0)} <= set(shapes)
    assert len(set(compared_shapes(site(shape=(3, 4))))) == 1


@pytest.mark.parametrize("kind", ["INT8", "UINT64", "BOOL"])
def test_random_integers_span_the_range_of_their_type(kind: str) -> None:
    x = random_input(TensorProto.DataType.Value(kind), (64, 64), 0)
    limits = (0, 1) if kind == "BOOL" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    # In 4096 random numbers, each of the 256 of int8 occurs.
    assert np.ptp(x.astype(float)) >= 0.98 * (float(limits[1]) - limits[0])


def test_inputs_are_the_same_in_each_run() -> None:
    first_input, same_input, other_input = (
        random_input(TensorProto.FLOAT, (3, 4), n) for n in (0, 0, 1)
    )
    assert first_input.tobytes() == same_input.tobytes() != other_input.tobytes()


@pytest.mark.parametrize(
    ("kind", "shape", "sizes"),
    [
        ("UINT8", (8, 2160, 3840, 3), [()] * 3),
        ("UINT8", ("n", 2**27), [(2,), (1,)]),
        ("UINT8", ("n", "m", 3, 2**24), [(2, 1), (1, 3), (1, 1)]),
        ("UINT8", ("n", "m", 9, 2**24), []),
        ("INT64", ("n", 2**24), [(2,), (1,)]),
        ("INT64", (2**25,), [()] * 3),
        ("INT64", (2**25 + 1,), []),
        ("BOOL", (2**28 + 1,), []),
        ("FLOAT", ("n", 2**26), []),
        ("COMPLEX128", (2**24,), [()] * 3),
        ("COMPLEX128", (2**24 + 1,), []),
    ],
)
def test_shapes_that_would_take_too_much_memory_are_left_out_if_two_sizes_remain(
    kind: str, shape: tuple[Size, ...], sizes: list[tuple[int, ...]]
) -> None:
    """Of 2, 1 and 3 for a dynamic dimension, those whose input has 2^28 bytes or fewer."""
    dynamic = [axis for axis, size in enumerate(shape) if isinstance(size, str)]
    sizes_compared = [
        tuple(compared_shape[axis] for axis in dynamic)
        for compared_shape in compared_shapes(site(kind, shape))
        if 0 not in compared_shape
    ]
    assert list(dict.fromkeys(sizes_compared)) == list(dict.fromkeys(sizes))


@pytest.mark.parametrize("shape", [(4, 4), ("n", 4)], ids=["static", "dynamic"])
def test_the_inputs_that_were_compared_are_counted(shape: tuple[Size, ...]) -> None:
    replacement = Replacement(site(shape=shape), split(1), [split(1)])
    comparison = compared_replacement(replacement)
    assert comparison.input_count == len(compared_shapes(site(shape=shape)))
    assert comparison.runtime.startswith("ONNX Runtime 1.")


def test_the_smallest_size_is_the_least_at_which_both_were_equal() -> None:
    assert compared_replacement(Replacement(site(), split(1), [split(1)])).smallest_size is None
    dynamic = Replacement(site(shape=("n", 4)), split(1), [split(1)])
    assert compared_replacement(dynamic).smallest_size == 0


# Without num_outputs, ONNX Runtime ends its process if an output has no name.
UNNAMED = helper.make_node("Split", ["x", "sizes"], ["a", ""], name="cut")


def test_a_split_that_onnx_runtime_does_not_run_is_compared_in_onnx_s_reference() -> None:
    comparison = compared_replacement(Replacement(site("BFLOAT16"), split(), [split()]))
    assert comparison.runtime.startswith("ONNX's reference evaluator 1.")
    named_split = split(outputs="a b")
    comparison = compared_replacement(Replacement(site(), UNNAMED, [named_split]))
    assert comparison.runtime.startswith("ONNX's reference evaluator 1.")


def test_a_replacement_that_onnx_runtime_does_not_run_is_not_one() -> None:
    with pytest.raises(
        dml.UnsupportedError, match="the split and its replacement cannot be compared"
    ):
        compared_replacement(Replacement(site(), split(outputs="a b"), [UNNAMED]))


def test_what_differs_in_onnx_runtime_is_compared_there_only() -> None:
    node = helper.make_node("SplitToSequence", ["x", "n"], ["s"], keepdims=0)
    cut = split_site(
        operator="SplitToSequence-24",
        state=Known(DESC, (1, 1)),
        element_type="BFLOAT16",
        shape=(2, 4),
        axis=0,
        opset=24,
        sized_by="chunk",
        keeps_axis=None,
    )
    with pytest.raises(
        dml.UnsupportedError, match="the split and its replacement cannot be compared"
    ):
        compared_replacement(Replacement(cut, node, [node]))
