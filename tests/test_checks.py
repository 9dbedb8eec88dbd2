"""Numbers from outside: integers, axes and sizes of pieces."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.checks import (
    are_plain_ints,
    axis_from_front,
    instance,
    integer,
    integer_argument,
    integers,
    path_text,
    piece_sizes,
    sequence,
)
from dmlsplit.errors import ArgumentTypeError, InvalidArgumentError


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_anything_with_dunder_index_is_an_integer(value: Any) -> None:
    assert integer("n", value) == 3
    assert type(integer("n", value)) is int
    assert integers("n", [value, 4]) == (3, 4)
    assert {type(entry) for entry in integers("n", [value, 4])} == {int}


@pytest.mark.parametrize(
    ("value", "value_text"),
    [
        (3.0, r"3\.0 \(float\)"),
        (True, r"True \(bool\)"),
        ("3", r"'3' \(str\)"),
        (None, r"None \(NoneType\)"),
    ],
)
def test_a_value_that_is_not_an_integer_is_named_with_its_type(value: Any, value_text: str) -> None:
    with pytest.raises(TypeError, match=f"^n is {value_text}; it must be an integer$"):
        integer("n", value)
    with pytest.raises(TypeError, match=rf"^n\[1\] is {value_text}; it must be an integer$"):
        integers("n", [1, value])
    with pytest.raises(InvalidArgumentError, match=f"^Split-13: n is {value_text}; it must be an"):
        integer_argument("n", value, "Split-13")
    with pytest.raises(TypeError, match=f"^axis is {value_text}; it must be an integer$"):
        axis_from_front(value, 1)


@pytest.mark.parametrize(
    "values", [3, "12", b"12", None, {1, 2}, frozenset([1]), {1: 2}, np.array(3)]
)
def test_a_value_that_is_not_a_sequence_is_refused(values: Any) -> None:
    """A set is refused because it does not keep the order in which it was written."""
    message = f"n is {values!r}; it must be a sequence of integers"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        integers("n", values)


@pytest.mark.parametrize("check", [integer, integers])
def test_a_long_value_is_cut_in_the_middle(check: Any) -> None:
    with pytest.raises(ArgumentTypeError) as error:
        check("n", set(range(5000)))
    start, _, end = str(error.value).partition("...")
    assert start.startswith("n is {0, 1, 2, ")
    assert "4998, 4999}" in end
    assert len(str(error.value)) < 120


def test_an_iterable_becomes_a_tuple_and_a_string_is_refused() -> None:
    assert sequence("n", iter("ab"), "letters") == ("a", "b")
    assert sequence("n", ["a", None], "letters") == ("a", None)
    with pytest.raises(ArgumentTypeError, match=r"^n is 'ab'; it must be a sequence of letters$"):
        sequence("n", "ab", "letters")


def test_a_value_of_another_type_is_refused_with_the_name_of_its_argument() -> None:
    assert instance("n", True, int) is True
    with pytest.raises(ArgumentTypeError, match=r"^n has the type str; it must be int$"):
        instance("n", "3", int)


@pytest.mark.parametrize("path", ["a/b", Path("a") / "b", PurePosixPath("a/b")])
def test_a_file_name_is_the_path_as_text(path: Any) -> None:
    assert path_text(path) == str(path)


def test_integers_are_read_from_any_iterable() -> None:
    assert integers("n", (n for n in (1, 2))) == (1, 2)
    assert integers("n", []) == ()


@given(st.integers(1, 9), st.data())
def test_an_axis_counts_from_either_end(rank: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-rank, rank - 1))
    assert axis_from_front(axis, rank) == range(rank)[axis]


@pytest.mark.parametrize("operator", ["", "Split-18"])
@pytest.mark.parametrize(
    ("axis", "rank", "message"),
    [
        *(
            (axis, 2, f"axis is {axis}; it must be from -2 to 1 at rank 2")
            for axis in (-3, 2, 2**63, -(2**63))
        ),
        *((axis, 0, "the input has 0 dimensions; it must have at least 1") for axis in (0, -1, 5)),
        (0.0, 2, "axis is 0.0 (float); it must be an integer"),
    ],
)
def test_an_axis_that_does_not_exist_is_refused(
    axis: Any, rank: int, message: str, operator: str
) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        axis_from_front(axis, rank, operator)
    assert str(error.value) == (f"{operator}: {message}" if operator else message)


@pytest.mark.parametrize(
    ("cut", "axis", "expected"),
    [
        (3, 1, (1, (2, 2, 2))),
        (np.array(3), -1, (1, (2, 2, 2))),  # Python sees an iterable, but it is a count.
        (1, 0, (0, (2,))),
        ((2, 4), 1, (1, (2, 4))),
        (np.array([6, 0]), -1, (1, (6, 0))),
    ],
)
def test_a_count_or_sizes_give_the_axis_and_the_size_of_each_piece(
    cut: Any, axis: int, expected: object
) -> None:
    assert piece_sizes((2, 6), cut, axis) == expected
    assert {type(size) for size in piece_sizes((2, 6), cut, axis)[1]} == {int}


def test_an_empty_axis_may_be_cut_into_no_pieces() -> None:
    assert piece_sizes((0,), (), 0) == (0, ())
    assert piece_sizes((0,), 3, 0) == (0, (0, 0, 0))


COUNT = "it must be at least 1 and divide 6, the size of axis 1. Fix: give the size"
SIZES = "they must add up to 6, the size of axis 1$"
NEGATIVE = "it must not be negative$"
CUTS = ". Fix: if these are positions of cuts, give"


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (4, rf"^count is 4; {COUNT}s \[2, 2, 1, 1\]$"),
        (7, f"^count is 7; {COUNT} of each piece$"),
        (0, f"^count is 0; {COUNT} of each piece$"),
        (-1, f"^count is -1; {COUNT} of each piece$"),
        (1.5, r"^count is 1\.5 \(float\); it must be an integer$"),
        ((4, 3), rf"^sizes \[4, 3\] add up to 7; {SIZES}"),
        ((7, -1), rf"^sizes\[1\] is -1; {NEGATIVE}"),
        ([-1, 5, 2], rf"^sizes\[0\] is -1; {NEGATIVE}"),
        ((), rf"^sizes \[\] add up to 0; {SIZES}"),
        ([1] * 16, rf"^sizes \[1(, 1){{15}}\] add up to 16; {SIZES}"),
        ([1] * 17, rf"^sizes \[1(, 1){{15}}, \.\.\.\] \(17 values\) add up to 17; {SIZES}"),
        # Positions of cuts, which NumPy would accept.
        ((3, 4), rf"^sizes \[3, 4\] add up to 7; {SIZES[:-1]}{CUTS} \[3, 1, 2\]$"),
        ((5,), rf"^sizes \[5\] add up to 5; {SIZES[:-1]}{CUTS} \[5, 1\]$"),
        *((cut, rf"add up to -?\d+; {SIZES}") for cut in ((0, 2), (2, 2), (2, 7))),
        ((2.0, 4.0), r"^sizes\[0\] is 2\.0 \(float\); it must be an integer$"),
        ("24", "^sizes is '24'; it must be a sequence of integers$"),
    ],
)
def test_sizes_or_a_count_that_do_not_fit_the_axis_are_refused(cut: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        piece_sizes((2, 6), cut, 1)


def test_the_axis_is_checked_before_the_sizes() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"^axis is 2; it must be from -2 to 1 at rank 2$"
    ):
        piece_sizes((2, 6), (9,), 2)


def test_only_plain_ints_and_tuples_of_them_are_cache_keys() -> None:
    """A key with True, 1.0 or NumPy's 1 would find what was made for 1."""
    assert are_plain_ints(-1, 3)
    assert are_plain_ints(0, (2, 1))
    ones: list[Any] = [True, 1.0, np.int64(1)]
    assert not any(
        are_plain_ints(number, 3) or are_plain_ints(0, number) or are_plain_ints(0, (2, number))
        for number in ones
    )
    assert not are_plain_ints(0, [2, 1])


class OnDevice:
    """An array that counts how often it is read."""

    ndim = 1

    def __init__(self, *values: object) -> None:
        self.values, self.reads = list(values), 0

    def tolist(self) -> list[object]:
        self.reads += 1
        return self.values

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("entries are read one by one")


def test_sizes_on_a_device_are_read_once() -> None:
    sizes: Any = OnDevice(1, 2, 3)
    assert piece_sizes((6,), sizes, 0) == (0, (1, 2, 3))
    assert sizes.reads == 1
    for wrong in (2.0, True):
        sizes = OnDevice(1, wrong, 3)
        with pytest.raises(ArgumentTypeError, match=r"sizes\[1\] is"):
            piece_sizes((6,), sizes, 0)


def test_an_axis_of_size_0_has_a_bounded_number_of_pieces() -> None:
    assert piece_sizes((0,), 3, 0) == (0, (0, 0, 0))
    with pytest.raises(dml.OutOfMemoryError):
        piece_sizes((0,), 2**62, 0)
