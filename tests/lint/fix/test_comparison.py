"""A split and its replacement, on the same random inputs."""

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

import dmlsplit as dml
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.frontends import Known, SplitSite
from dmlsplit.lint.fix.comparison import Replacement, _inputs, compare
from dmlsplit.lint.rewritable import compared_shapes

DESC = SplitOperatorDesc.from_sizes(TensorDesc("FLOAT32", (4, 4)), axis=0, sizes=(2, 2))


def site(kind: str | None = "FLOAT", shape: tuple[int | str, ...] = (4, 4)) -> SplitSite:
    state = Known(DESC, (2, 2))
    known: Any = {"element_type": kind, "shape": shape, "axis": 0, "opset": 18}
    return SplitSite("m.onnx", "net", "cut", 0, "Split-18", state, **known)


def split(axis: int = 0, outputs: str = "a b") -> NodeProto:
    return helper.make_node("Split", ["x", "sizes"], outputs.split(), name="cut", axis=axis)


WRONG = r"^net/cut: its replacement gives another result for an input of \(4, 4\)\. This is a bug"


@pytest.mark.parametrize("node", [split(axis=1), split(outputs="b a")], ids=["shape", "values"])
def test_a_replacement_with_a_different_output_is_an_error(node: NodeProto) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=WRONG):
        compare(Replacement(site(), split(), [node]))


def test_a_replacement_with_a_sequence_of_another_length_is_an_error() -> None:
    whole = helper.make_node("SplitToSequence", ["x"], ["s"], name="cut", axis=0)
    less = helper.make_node("SequenceConstruct", ["x"], ["s"])
    with pytest.raises(dml.InvalidArgumentError, match=WRONG):
        compare(Replacement(site(), whole, [less]))


@pytest.mark.parametrize("names", [("n", "m"), ("?", "?0"), (None, None)])
def test_dynamic_dimensions_have_distinct_sizes_in_and_across_inputs(
    names: tuple[Any, Any],
) -> None:
    """In each input the sizes differ, so that two dimensions cannot be mistaken for each other."""
    first, second = names
    shapes = [x.shape for x in _inputs(site(shape=(first, 4, second, first)))]
    assert all(len({shape[axis] for shape in shapes}) == 3 for axis in (0, 2))
    assert all(shape[0] != shape[2] for shape in shapes)
    assert all((shape[0] == shape[3]) == (first is not None) for shape in shapes)


@pytest.mark.parametrize("kind", ["INT8", "UINT64", "BOOL"])
def test_random_integers_span_the_range_of_their_type(kind: str) -> None:
    x = next(_inputs(site(kind, (64, 64))))
    limits = (0, 1) if kind == "BOOL" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    # In 4096 random numbers, each of the 256 of int8 occurs.
    assert np.ptp(x.astype(float)) >= 0.98 * (float(limits[1]) - limits[0])


@pytest.mark.parametrize(
    ("kind", "shape", "sizes"),
    [
        ("UINT8", (8, 2160, 3840, 3), [()] * 3),
        ("UINT8", ("n", 2**27), [(2,), (1,)]),
        ("UINT8", ("n", "m", 3, 2**24), [(2, 1), (1, 3)]),
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
    kind: str, shape: tuple[int | str, ...], sizes: list[tuple[int, ...]]
) -> None:
    found = compared_shapes(site(kind, shape))
    dynamic = [axis for axis, size in enumerate(shape) if isinstance(size, str)]
    assert [tuple(each[axis] for axis in dynamic) for each in found] == sizes


def test_the_inputs_that_were_compared_are_counted() -> None:
    assert compare(Replacement(site(shape=("n", 4)), split(1), [split(1)])).input_count == 3


def test_inputs_are_the_same_in_each_run() -> None:
    np.testing.assert_equal(*(list(_inputs(site(shape=("n", 4)))) for _ in range(2)))
