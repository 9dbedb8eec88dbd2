"""OpenVINO's VariadicSplit-1 and Split-1 on arrays: their rules, and OpenVINO itself as a peer."""

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.openvino import split, variadic_split
from tests.support.arrays import assert_same


def six() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(6, 2)


def test_data_of_size_zero_gives_empty_pieces() -> None:
    data = np.zeros((0, 3), np.int16)
    assert_same(variadic_split(data, 0, [0, 0]), [data, data])
    assert_same(variadic_split(data, 1, [1, 2]), [data[:, :1], data[:, 1:]])
    assert variadic_split(data, 0, []) == []
    assert_same(split(data, 0, 2), [data, data])


@pytest.mark.parametrize("rank", [1, 8, 9, 12])
def test_data_of_any_rank_is_split(rank: int) -> None:
    shape = [1] * rank
    shape[-1], shape[0] = 3, 2 if rank > 1 else 3
    data = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    assert_same(variadic_split(data, -1, [1, 2]), [data[..., :1], data[..., 1:]])


# Refused arguments; tests/test_wrong_arguments.py has values of wrong types.


@pytest.mark.parametrize(
    ("axis", "lengths", "message"),
    [
        ([0, 0], [6], "axis has shape [2]; it must be a scalar or of shape [1]"),
        ([[0]], [6], "axis[0] is [0] (list); it must be an integer"),
        (0, 6, "split_lengths is 6; it must be a sequence of integers"),
        (0, np.full((1, 30), 1000), "split_lengths[0] is [1000, 1000"),
        (0, [], "split_lengths [] add up to 0"),
        # OpenVINO accepts this constant and reads past the end of its input.
        (0, [7, -1], "split_lengths [7, -1] add up to 7; they must not exceed 6"),
        # OpenVINO accepts floats too; its specification does not.
        (0.0, [6], "axis is 0.0 (float); it must be an integer"),
        (0, np.array([6], np.float32), "split_lengths[0] is 6.0 (float); it must be an integer"),
        (0, np.array([True]), "split_lengths[0] is True (bool); it must be an integer"),
        (0, [2**64, 6], "split_lengths [18446744073709551616, 6] add up to"),
        (2**63, [6], "axis is 9223372036854775808"),
    ],
)
def test_axes_and_lengths_that_do_not_fit_are_refused_in_one_line(
    axis: Any, lengths: Any, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)) as error:
        variadic_split(six(), axis, lengths)
    assert "VariadicSplit-1" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_type_that_directml_cannot_carry_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"type .* of 3 bytes"):
        variadic_split(np.zeros(2, "V3"), 0, [2])


# Types and layouts.


@pytest.mark.parametrize("kind", "? i1 u2 f2 f4 i8 f8 c8 c16 >f4 M8[s] V2 U5 S3 O".split())
def test_any_data_type_keeps_its_bytes(kind: str) -> None:
    dtype = np.dtype(kind)
    if dtype.kind in "OSU":
        data = np.array(["a", "bc", "d"] * 4, dtype)
    else:
        data = np.random.default_rng(3).integers(0, 2, 12 * dtype.itemsize, np.uint8).view(dtype)
    data = data.reshape(6, 2).T
    assert_same(variadic_split(data, 1, [1, 0, 5]), [data[:, :1], data[:, :0], data[:, 1:]])


@pytest.mark.parametrize("kind", ["f4", "U5", "S3", "O"])
def test_masked_arrays_are_refused(kind: str) -> None:
    masked = np.ma.masked_array(np.zeros(4, kind), [0, 1, 0, 0])
    with pytest.raises(InvalidArgumentError, match=r"data is masked; .*split \.data and \.mask"):
        split(masked, 0, 2)


def test_a_device_is_given_by_name_and_an_unknown_one_is_refused() -> None:
    assert_same(split(six(), np.array(0), np.int32(2), device="cpu"), np.split(six(), 2))
    with pytest.raises(InvalidArgumentError, match="device is 'tpu'"):
        split(six(), 0, 2, device="tpu")


# OpenVINO itself. Its CPU plugin is exact only for these types.

EXACT = ["f4", "i1", "u2", "?"]


@cache
def openvino_model(kind: str, outputs: int, variadic: bool) -> Any:
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as op

    data = op.parameter(ov.PartialShape([-1, -1, -1]), np.dtype(kind).type)
    inputs = [data, op.parameter([], np.int64)]
    inputs += [op.parameter([outputs], np.int64)] * variadic
    node = op.variadic_split(*inputs) if variadic else op.split(*inputs, outputs)
    model = ov.Model([node.output(i) for i in range(outputs)], inputs)
    return ov.Core().compile_model(model, "CPU")


def outcome(run: Any) -> list[np.ndarray] | None:
    try:
        return run()
    except (InvalidArgumentError, RuntimeError):
        return None


def assert_agree(our_call: Any, openvino_call: Any) -> None:
    """Assert that both refuse, or that their pieces are the same."""
    pieces, expected_pieces = outcome(our_call), outcome(openvino_call)
    assert (pieces is None) == (expected_pieces is None)
    if pieces is not None and expected_pieces is not None:
        assert_same(pieces, expected_pieces)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(EXACT),
    shape=st.tuples(*[st.integers(1, 5)] * 3),
    axis=st.integers(-3, 2),
    data=st.data(),
)
def test_variadic_split_agrees_with_openvino(
    kind: str, shape: tuple[int, int, int], axis: int, data: st.DataObject
) -> None:
    whole = shape[axis]
    cuts = sorted(data.draw(st.tuples(st.integers(0, whole), st.integers(0, whole))))
    lengths = [cuts[0], cuts[1] - cuts[0], whole - cuts[1]]
    change = data.draw(st.sampled_from(["none", "rest", "wrong"]))
    index = data.draw(st.integers(0, 2))
    if change == "rest":
        lengths[index] = -1
    elif change == "wrong":
        lengths[index] += data.draw(st.sampled_from([-3, -2, -1, 1]))
    model = openvino_model(kind, 3, variadic=True)
    array = np.random.default_rng(0).integers(0, 2 if kind == "?" else 100, shape).astype(kind)
    inputs = [array, np.int64(axis), np.array(lengths, np.int64)]
    assert_agree(lambda: variadic_split(array, axis, lengths), lambda: [*model(inputs).values()])


@settings(max_examples=25, deadline=None)
@given(shape=st.tuples(*[st.integers(1, 6)] * 3), axis=st.integers(-3, 2))
def test_split_agrees_with_openvino(shape: tuple[int, int, int], axis: int) -> None:
    array = np.random.default_rng(0).random(shape, np.float32)
    model = openvino_model("f4", 3, variadic=False)
    inputs = [array, np.int64(axis)]
    assert_agree(lambda: split(array, axis, 3), lambda: [*model(inputs).values()])


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float8_e4m3fn", "bool", "complex128"])
def test_tensors_of_torch_come_back_as_tensors_of_torch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12).reshape(2, 6).to(getattr(torch, kind))
    for array in (tensor, tensor.T.contiguous().T):
        empty, pair, rest = variadic_split(array, 1, [0, 2, -1])
        assert (empty.shape, empty.dtype) == ((2, 0), tensor.dtype)
        for piece, expected in ((pair, tensor[:, :2]), (rest, tensor[:, 2:])):
            assert (type(piece), piece.dtype) == (torch.Tensor, tensor.dtype)
            assert piece.contiguous().view(torch.uint8).tolist() == (
                expected.contiguous().view(torch.uint8).tolist()
            )


@pytest.mark.parametrize("data", [np.array(["a", "b"]), np.zeros((2, 0), np.float32)])
def test_an_unknown_device_is_refused_even_if_nothing_is_dispatched(data: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentError, match="tpu"):
        variadic_split(data, 0, [1, 1], device="tpu")
