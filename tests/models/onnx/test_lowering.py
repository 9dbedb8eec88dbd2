"""Lowering of ONNX's splits: every case in which implementations disagree, and the descriptors."""

import pickle
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.frontends.onnx import Lowering, operator_version
from dmlsplit.models.limits import MAX_SPLIT_OUTPUTS
from tests.support.onnx_splits import lowered, refused

# --- the size rule of num_outputs -------------------------------------------------------------


# By the size of an axis: the counts up to size + 1 that are refused, because the pieces before the
# last one, each as long as the axis over the count, rounded up, are together longer than the axis:
# 4 pieces of 5 would be 2 + 2 + 2 - 1. Higher counts are refused too, unless the axis is empty.
OVERSHOOT = {5: {4}, 6: {5}, 7: {5, 6}, 8: {6, 7}, 9: {8, 6, 7}}
OVERSHOOT |= {10: {8, 9, 7}, 11: {5, 7, 8, 9, 10}, 12: {8, 9, 10, 11}}


def test_num_outputs_is_accepted_unless_the_other_pieces_are_larger_than_the_axis() -> None:
    for size in range(13):
        for count in range(1, 17):
            piece = -(-size // count)
            sizes = [piece] * (count - 1) + [size - piece * (count - 1)]
            if size == 0 or (count <= size + 1 and count not in OVERSHOOT.get(size, ())):
                assert list(lowered("Split", 18, (size,), num_outputs=count).sizes) == sizes
            else:
                assert str(sizes) in refused("Split", 18, (size,), num_outputs=count)


# --- where inference, reference and runtime disagree ------------------------------------------


@pytest.mark.parametrize("opset", [2, 11, 13, 18])
def test_empty_pieces_are_legal(opset: int) -> None:
    lowering = lowered("Split", opset, (6,), split=[0, 6, 0])
    assert lowering.sizes == (0, 6, 0)
    assert str(lowering.descriptor) == "SPLIT axis 0: FLOAT32[6] -> FLOAT32[6]"


@pytest.mark.parametrize("opset", [11, 24])
class TestSplitToSequence:
    @pytest.mark.parametrize(
        ("chunk", "sizes"), [(1, (1,) * 5), (2, (2, 2, 1)), (5, (5,)), (9, (5,))]
    )
    def test_a_chunk_size_keeps_the_axis_whatever_keepdims_says(
        self, opset: int, chunk: int, sizes: tuple[int, ...]
    ) -> None:
        lowering = lowered("SplitToSequence", opset, (5, 2), split=chunk, keepdims=0)
        assert (lowering.sizes, lowering.squeeze) == (sizes, False)
        assert "keepdims=0 is ignored" in lowering.warnings[0]

    def test_keepdims_0_is_ignored_for_a_list_of_ones(self, opset: int) -> None:
        lowering = lowered("SplitToSequence", opset, (2, 2), split=[1, 1], keepdims=0)
        assert (lowering.sizes, lowering.squeeze) == ((1, 1), False)

    @pytest.mark.parametrize("attributes", [{}, {"split": 3}, {"split": []}])
    def test_an_empty_axis_gives_an_empty_sequence(
        self, opset: int, attributes: dict[str, Any]
    ) -> None:
        lowering = lowered("SplitToSequence", opset, (0, 3), **attributes)
        assert lowering.sizes == ()
        assert lowering.descriptor is None

    def test_without_sizes_keepdims_0_drops_the_axis(self, opset: int) -> None:
        lowering = lowered("SplitToSequence", opset, (2,), keepdims=0)
        assert (lowering.sizes, lowering.squeeze) == ((1, 1), True)
        assert str(lowering.descriptor) == "SPLIT axis 0: FLOAT32[2] -> FLOAT32[1], FLOAT32[1]"

    @pytest.mark.parametrize("keepdims", [2, -1])
    def test_keepdims_is_ignored_if_sizes_are_given(self, opset: int, keepdims: int) -> None:
        for split in (1, [1, 1]):
            lowering = lowered("SplitToSequence", opset, (2,), split=split, keepdims=keepdims)
            assert (lowering.sizes, lowering.squeeze) == ((1, 1), False)
            assert not lowering.warnings


# --- descriptors ------------------------------------------------------------------------------


def test_complex128_is_described_as_pairs_of_uint64() -> None:
    lowering = lowered("Split", 18, (2, 3), "COMPLEX128", axis=1, split=[1, 2])
    assert str(lowering.descriptor) == "SPLIT axis 1: UINT64[2,3,2] -> UINT64[2,1,2], UINT64[2,2,2]"


def test_strings_have_no_descriptor() -> None:
    assert lowered("Split", 18, (3,), "STRING", split=[1, 2]).descriptor is None


@pytest.mark.parametrize("axis", range(9))
def test_ranks_above_8_collapse_around_the_axis(axis: int) -> None:
    shape = (2,) * 9
    lowering = lowered("Split", 18, shape, axis=axis, split=[1, 1])
    assert lowering.descriptor is not None
    assert lowering.descriptor.input_tensor.sizes == (2**axis, 2, 2 ** (8 - axis))
    assert lowering.descriptor.axis == 1
    assert dml.validate(lowering.descriptor).ok
    assert (lowering.shape, lowering.axis) == (shape, axis)


def test_rank_8_stays_and_rank_8_of_complex128_collapses() -> None:
    for kind, rank in (("FLOAT", 8), ("COMPLEX128", 3)):
        lowering = lowered("Split", 18, (2,) * 8, kind, axis=3, split=[1, 1])
        assert lowering.descriptor is not None
        assert lowering.descriptor.input_tensor.dimension_count == rank


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_is_dispatched_for_an_empty_tensor(shape: tuple[int, ...]) -> None:
    lowering = lowered("Split", 18, shape, split=[0, shape[0]])
    assert lowering.descriptor is None
    assert not lowering.warnings


SCALAR = "the input has 0 dimensions; it must have at least 1"
UNEVEN = "without sizes, the number of outputs, 3, must divide it. Fix: give the size of each piece"
RANGE = "it must be from -{0} to {1} at rank {0}"
REFUSED: list[tuple[str, int, tuple[int, ...], dict[str, Any], str]] = [
    ("Split", 13, (7,), {"output_count": 3}, f"the axis has size 7; {UNEVEN}"),
    (
        "Split",
        18,
        (6,),
        {"axis": -2, "split": [6]},
        "axis is -2; it must be from -1 to 0 at rank 1",
    ),
    ("Split", 13, (), {"split": [1]}, SCALAR),
    (
        "Split",
        13,
        (2, 2),
        {"split": [2], "axis": 2},
        "axis is 2; it must be from -2 to 1 at rank 2",
    ),
    (
        *("Split", 18, (5,), {"num_outputs": 4}),
        "num_outputs is 4 on an axis of size 5; pieces of 2 leave -1 for the last one: "
        "[2, 2, 2, -1]. Fix: give the size of each piece as 'split'",
    ),
    (
        *("Split", 13, (7,), {"split": [1, 2]}),
        "split is [1, 2], which adds up to 3; it must add up to 7, the size of the axis",
    ),
    (
        *("SplitToSequence", 24, (6,), {"split": [4]}),
        "split is [4], which adds up to 4; it must add up to 6, the size of the axis",
    ),
]


@pytest.mark.parametrize(("name", "opset", "shape", "attributes", "message"), REFUSED)
def test_an_error_names_the_operator_and_the_broken_requirement(
    name: str, opset: int, shape: tuple[int, ...], attributes: dict[str, Any], message: str
) -> None:
    text = refused(name, opset, shape, **attributes)
    assert text == f"{operator_version(name, opset)}: {message}"


def test_an_error_about_a_type_names_the_allowed_types() -> None:
    allowed = "it must be one of DOUBLE, FLOAT, FLOAT16"
    assert refused("Split", 1, (2,), data_type="INT8", split=[2]) == (
        f"Split-1: the data type is INT8; {allowed}"
    )
    assert refused("Split", 1, (2,), data_type="BFLOAT16", split=[2]) == (
        f"Split-1: the data type is BFLOAT16; {allowed}. "
        "Fix: raise the opset: BFLOAT16 needs 13 for Split, 24 for SplitToSequence"
    )


def test_a_split_may_have_as_many_pieces_as_the_limit_and_no_more() -> None:
    """More must be a mistake, and each takes memory."""
    assert len(lowered("SplitToSequence", 11, (MAX_SPLIT_OUTPUTS, 0)).sizes) == MAX_SPLIT_OUTPUTS
    assert refused("SplitToSequence", 11, (MAX_SPLIT_OUTPUTS + 1, 0)).endswith(
        "there are 1,048,577 pieces; at most 1,048,576 are supported. "
        "Fix: use a larger chunk size, or fewer outputs"
    )


def test_the_limit_of_pieces_does_not_limit_their_sizes() -> None:
    chunk = 2 * MAX_SPLIT_OUTPUTS
    assert lowered("SplitToSequence", 11, (2 * chunk,), split=chunk).sizes == (chunk, chunk)


def test_warnings_name_the_piece_or_attribute_and_the_consequence() -> None:
    (text,) = lowered("Split", 18, (6,), split=[3, 0, 3]).warnings
    assert text == (
        "piece 1 is empty; ONNX Runtime's DirectML provider appears to skip the whole node "
        "and to leave the other pieces unwritten"
    )
    assert pickle.loads(pickle.dumps(text)).rule == "ORT-EMPTY-PIECE"
    (text,) = lowered("SplitToSequence", 11, (6,), split=2, keepdims=0).warnings
    assert text == (
        "keepdims=0 is ignored because split is given, as ONNX specifies; ONNX Runtime squeezes "
        "pieces of chunk size 1 and refuses other chunk sizes"
    )
    assert not lowered("SplitToSequence", 11, (6,), split=[0, 6]).warnings
    assert not lowered("SplitToSequence", 11, (6,), keepdims=0).warnings
    assert not lowered("Split", 18, (6,), "STRING", split=[0, 6]).warnings


def test_a_lowering_has_the_shape_sizes_and_descriptor() -> None:
    lowering = lowered("Split", 1, (2, 3), "FLOAT16", axis=None, split=[1, 1])
    x = dml.TensorDesc("FLOAT16", (2, 3))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(1, 1))
    assert lowering == Lowering((2, 3), 0, (1, 1), desc, squeeze=False)
    assert not lowered("SplitToSequence", 11, (2,), keepdims=1).squeeze
    assert not lowered("SplitToSequence", 11, (2,), keepdims=0, split=1).squeeze
