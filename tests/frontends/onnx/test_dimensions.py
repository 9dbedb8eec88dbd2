"""Sizes that a user gives to dynamic dimensions."""

from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.frontends.onnx import FixedSizes
from tests.support.onnx_graphs import Scanned, model, node, value

CUT = node("Split", "y", "a b", axis=1, num_outputs=2)


def shape(scanned: Scanned, content: Any, given: dict[str, int]) -> tuple[int | str, ...]:
    """Shape of the input of the only split."""
    sizes = FixedSizes(given)
    (found,) = scanned(content, dimensions=sizes)
    sizes.check_all_used()
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
