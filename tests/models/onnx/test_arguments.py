"""Arguments of ONNX splits, checked without a shape."""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.frontends.onnx import (
    Arguments,
    ElementType,
    Lengths,
    OperatorVersion,
    node_arguments,
    operator_version,
    read_arguments,
)


def version(text: str) -> OperatorVersion:
    name, opset = text.split("-")
    return operator_version(name, int(opset))


def rows(table: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    return [(version(operator), *row) for operator, rows in table.items() for row in rows]


SPLIT, SEQUENCE = version("Split-18"), version("SplitToSequence-11")
# What is read if nothing else is given.
DEFAULTS = {"axis": 0, "split": None, "num_outputs": None, "keepdims": True, "output_count": None}


@pytest.mark.parametrize(
    ("operator", "given_arguments", "expected"),
    [
        (SPLIT, {"axis": -1, "split": [2, 4]}, {"axis": -1, "split": (2, 4), "output_count": 2}),
        (SPLIT, {"num_outputs": 3}, {"num_outputs": 3, "output_count": 3}),
        (
            SPLIT,
            {"split": Lengths.AT_RUN_TIME, "output_count": 2},
            {"split": Lengths.AT_RUN_TIME, "output_count": 2},
        ),
        (
            SEQUENCE,
            {"split": np.array(2, np.int32), "keepdims": 0},
            {"split": 2, "keepdims": False, "split_type": ElementType.INT32},
        ),
        (SEQUENCE, {"split": [], "axis": 1}, {"split": (), "axis": 1}),
    ],
)
def test_arguments_are_normalised_when_they_are_read(
    operator: OperatorVersion, given_arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    read = read_arguments(operator, **given_arguments)
    assert read == Arguments(operator, assumed=(), **DEFAULTS | expected)


# By operator: the arguments, and the whole message.
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "Split-1": [
        ({"split": [2.0, wrong]}, f"split[1] is {wrong} (float); it must be an integer")
        for wrong in (0.5, np.nan, np.inf)
    ]
    + [({"split": 2}, "split is 2; it must be a sequence of integers")],
    "Split-2": [
        ({"split": [2.0]}, "split[0] is 2.0 (float); it must be an integer"),
        ({"split": "2,4"}, "split is '2,4'; it must be a sequence of integers"),
        ({"split": np.ones((2, 9), int)}, f"split[0] is {[1] * 9} (list); it must be an integer"),
    ],
    "Split-13": [
        ({"split": np.array([2], np.int32)}, "split has data type INT32; it must be INT64"),
        ({"num_outputs": 2}, "num_outputs is 2; it exists since opset 18. Fix: give output_count"),
        (
            {"split": [1, 2], "output_count": 3},
            "split has 2 sizes for 3 outputs; the two must be equal",
        ),
        ({}, "the number of pieces is not given; give num_outputs, output_count or split"),
        ({"output_count": 0}, "there are 0 outputs; there must be at least 1"),
        ({"split": 2}, "split is 2; it must be a sequence of integers"),
        (
            {"split": [1, 0, -3]},
            "split[2] is -3; it must be at least 0. Fix: write out the size that -1 stands for",
        ),
    ],
    "Split-18": [
        (
            {"num_outputs": 2, "split": [1]},
            "num_outputs is 2 and sizes are given; give only one of them",
        ),
        ({"split": [], "output_count": 1}, "split has 0 sizes for 1 output; the two must be equal"),
        ({"split": []}, "there are 0 outputs; there must be at least 1"),
        ({"split": [[2, 4]]}, "split[0] is [2, 4] (list); it must be an integer"),
        ({"num_outputs": 0}, "num_outputs is 0; it must be at least 1"),
        ({"num_outputs": 1, "axis": "0"}, "axis is '0' (str); it must be an integer"),
        (
            {"num_outputs": 2, "output_count": 3},
            "num_outputs is 2 for 3 outputs; the two must be equal; loading such a model aborts "
            "the process of ONNX Runtime 1.32",
        ),
        (
            {"num_outputs": 3, "output_count": 2},
            "num_outputs is 3 for 2 outputs; the two must be equal",
        ),
    ],
    "SplitToSequence-11": [
        ({"keepdims": -1}, "keepdims is -1; it must be 0 or 1"),
        ({"keepdims": 2}, "keepdims is 2; it must be 0 or 1"),
        ({"split": 0}, "the chunk size, a scalar split, is 0; it must be at least 1"),
        ({"split": [[1]]}, "split[0] is [1] (list); it must be an integer"),
    ],
}


@pytest.mark.parametrize(("operator", "arguments", "message"), rows(REFUSED))
def test_a_refused_argument_is_named_with_the_broken_requirement(
    operator: OperatorVersion, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError) as error:
        read_arguments(operator, **arguments)
    assert str(error.value) == f"{operator}: {message}"


NODES: dict[str, list[tuple[dict[str, Any], list[Any], str]]] = {
    "Split-1": [
        (
            {"split": [1]},
            [np.ones(1, np.float32)],
            "sizes are given both as input and as attribute; give only one",
        )
    ],
    "Split-2": [
        (
            {},
            [None],
            "the node has 2 inputs; at most 1 allowed. "
            "Fix: give the sizes as the attribute 'split', as opsets before 13 want them",
        )
    ],
    "Split-13": [
        (
            {"split": [1]},
            [],
            "attribute 'split' is set; allowed attributes: axis. "
            "Fix: give the sizes as the second input, as opset 13 and later want them",
        ),
        (
            {},
            [None, None],
            "the node has 3 inputs; at most 2 allowed. Fix: remove the others",
        ),
    ],
    "Split-18": [
        (
            {"colour": 1},
            [],
            "attribute 'colour' is set; allowed attributes: axis, num_outputs. Fix: remove it",
        )
    ],
    "SplitToSequence-11": [
        ({}, [np.ones(1, np.int16)], "split has data type INT16; it must be INT32 or INT64")
    ],
}


@pytest.mark.parametrize(("operator", "attributes", "inputs", "message"), rows(NODES))
def test_an_error_about_a_node_names_the_requirement_of_its_version(
    operator: OperatorVersion, attributes: dict[str, Any], inputs: list[Any], message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError) as error:
        node_arguments(operator, attributes, inputs, 1)
    assert str(error.value) == f"{operator}: {message}"


def test_every_assumption_is_reported() -> None:
    (text,) = read_arguments(version("Split-1"), split=[1]).assumed
    assert text == "Split-1 has no default axis; 0 is assumed, as in later versions"
    (text,) = read_arguments(version("Split-19"), output_count=3).assumed
    assert text == (
        "Split-18 has neither sizes nor num_outputs, which ONNX forbids; assuming 3 equal "
        "pieces, one per output. Fix: set num_outputs, or give the sizes as "
        "split"
    )
    assert read_arguments(version("Split-17"), output_count=3).assumed == ()


@pytest.mark.parametrize(
    ("inputs", "attributes", "opset", "source_name"),
    [
        ([np.array([2, 4])], {}, 13, "split"),
        ([None], {"num_outputs": 2}, 18, "num_outputs"),
        ([None], {}, 13, "outputs"),
    ],
)
def test_split_num_outputs_or_the_outputs_give_the_number_of_pieces(
    inputs: list[Any], attributes: dict[str, Any], opset: int, source_name: str
) -> None:
    operator = operator_version("Split", opset)
    assert node_arguments(operator, attributes, inputs, 2).sized_by == source_name


def test_a_chunk_size_gives_the_number_of_pieces_and_may_keep_the_axis_or_not() -> None:
    """ONNX keeps the axis beside a scalar split, whatever keepdims is; ONNX Runtime drops it."""
    sequence = version("SplitToSequence-11")
    chunk = read_arguments(sequence, split=2, keepdims=0)
    assert (chunk.sized_by, chunk.keeps_axis) == ("chunk", None)
    assert read_arguments(sequence, split=2).keeps_axis is True
    assert read_arguments(sequence, split=(2, 4), keepdims=0).keeps_axis is True
    assert read_arguments(sequence, keepdims=0).keeps_axis is False
