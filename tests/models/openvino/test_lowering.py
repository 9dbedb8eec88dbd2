"""Lowering of OpenVINO's splits."""

from typing import Any

import pytest

from dmlsplit import SplitOperatorDesc, TensorDataType, TensorDesc
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.openvino import Lowering, lower_split, lower_variadic_split
from dmlsplit.models.openvino.lowering import (
    check_axis_shape,
    check_lengths,
    lower_sizes,
    resolve_count,
)

F32 = TensorDataType.FLOAT32
VARIADIC, EQUAL = lower_variadic_split, lower_split


def test_lowerings_of_equivalent_arguments_are_equal_and_have_one_hash() -> None:
    lowering = lower_variadic_split((6, 2), -2, [2, -1, 0], F32)
    assert lowering.sizes == (2, 4, 0)
    text = "SPLIT axis 0: FLOAT32[6,2] -> FLOAT32[2,2], FLOAT32[4,2]"
    assert str(lowering.descriptor) == text
    assert lowering == lower_variadic_split((6, 2), 0, [2, 4, 0], F32)
    assert hash(lowering) == hash(lower_variadic_split((6, 2), 0, [2, 4, 0], F32))


def test_an_error_about_many_lengths_is_cut() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        lower_variadic_split((5,), 0, [1] * 100_000, F32)
    assert len(str(error.value)) < 250


# The function, its shape, axis and lengths or count, and the message.
REFUSED: list[tuple[Any, tuple[int, ...], int, Any, str]] = [
    (VARIADIC, (), 0, [1], "the input has 0 dimensions; it must have at least 1"),
    (VARIADIC, (6, 2), 2, [6], "axis is 2; it must be from -2 to 1 at rank 2"),
    (VARIADIC, (6,), 0, [1, -2, 7], "split_lengths[1] is -2; it must be at least -1"),
    (VARIADIC, (6,), 0, [-1, 2, -1],
     "split_lengths is -1 at 0 and 2; at most one length may be -1"),
    (VARIADIC, (6,), 0, [2, 3],
     "split_lengths [2, 3] add up to 5; they must add up to 6, the size of axis 0"),
    (VARIADIC, (2, 6), 1, [7],
     "split_lengths [7] add up to 7; they must add up to 6, the size of axis 1"),
    (VARIADIC, (6,), 0, [7, -1],
     "split_lengths [7, -1] add up to 7; they must not exceed 6, the size of axis 0"),
    (EQUAL, (), 0, 1, "the input has 0 dimensions; it must have at least 1"),
    (EQUAL, (6, 2), -3, 1, "axis is -3; it must be from -2 to 1 at rank 2"),
    (EQUAL, (6,), 0, 0, "num_splits is 0; it must be at least 1"),
    (EQUAL, (2, 6), 1, 4,
     "num_splits is 4; it must divide 6, the size of axis 1. Fix: use VariadicSplit with the "
     "lengths [2, 2, 1, 1]"),
]  # fmt: skip


@pytest.mark.parametrize(("lower", "shape", "axis", "cut", "message"), REFUSED)
def test_a_split_that_does_not_fit_its_input_is_refused(
    lower: Any, shape: tuple[int, ...], axis: int, cut: Any, message: str
) -> None:
    operator = "VariadicSplit-1" if lower is VARIADIC else "Split-1"
    with pytest.raises(InvalidArgumentError) as error:
        lower(shape, axis, cut, F32)
    assert str(error.value) == f"{operator}: {message}"


def test_lengths_are_checked_without_the_size_of_the_axis() -> None:
    assert check_lengths([2, -1]) == [1]
    assert check_lengths([1, 2]) == []
    with pytest.raises(InvalidArgumentError, match="at least -1"):
        check_lengths([-2])


def test_a_count_below_1_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        resolve_count(0, 0, 4)


@pytest.mark.parametrize(
    ("operator", "shape", "allowed"),
    [("VariadicSplit-1", (2,), "a scalar or of shape [1]"), ("Split-1", (1,), "a scalar")],
)
def test_an_axis_is_one_integer(operator: str, shape: tuple[int, ...], allowed: str) -> None:
    check_axis_shape(operator, ())
    check_axis_shape("VariadicSplit-1", (1,))
    with pytest.raises(InvalidArgumentError) as error:
        check_axis_shape(operator, shape)
    assert str(error.value) == f"axis has shape {list(shape)}; it must be {allowed}"


def test_a_lowering_has_the_shape_axis_sizes_and_descriptor() -> None:
    kind, sizes = TensorDataType.UINT8, (2, 2, 2)
    desc = SplitOperatorDesc.from_sizes(TensorDesc(kind, (4, 6)), axis=1, sizes=sizes)
    lowering = lower_split([4, 6], -1, 3, kind)
    assert lowering == Lowering((4, 6), 1, sizes, desc)


def test_sizes_that_were_resolved_before_lower_as_the_operator_does() -> None:
    assert lower_sizes((4,), 0, (2, 2), F32) == lower_split((4,), 0, 2, F32)


def test_lanes_become_the_innermost_dimension_of_the_descriptor() -> None:
    for lowering in (
        lower_variadic_split((6, 2), 0, [2, 4], TensorDataType.UINT64, 2),
        lower_split((6, 2), 0, 2, TensorDataType.UINT64, 2),
    ):
        assert lowering.shape == (6, 2)
        assert lowering.descriptor is not None
        assert lowering.descriptor.input_tensor.sizes == (6, 2, 2)


def test_strings_have_no_descriptor() -> None:
    lowering = lower_variadic_split((3,), 0, [1, 2], TensorDataType.UNKNOWN)
    assert lowering.descriptor is None
