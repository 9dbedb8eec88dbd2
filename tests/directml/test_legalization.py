"""Legalizing: another descriptor for a lower level moves the same bytes on the same buffers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit import InvalidArgumentError, SplitOperatorDesc, TensorDesc
from dmlsplit.directml import legalization
from dmlsplit.directml.levels import FeatureLevel, support_table
from dmlsplit.directml.operator import descriptor_geometry, named_tensors
from dmlsplit.errors import NoEquivalentError
from tests.support.descriptors import Memory, expected_buffers
from tests.support.each import each

TYPES = [kind for kind in dml.TensorDataType if kind.bits >= 8]
LEVELS = list(FeatureLevel)
# The levels at which Split changes, and the last; every other level equals the one before.
DIFFERENT = {"1_0", "2_1", "3_0", "4_1", str(max(LEVELS))}
EVERY_LEVEL = [
    pytest.param(level, marks=[] if str(level) in DIFFERENT else [pytest.mark.slow], id=str(level))
    for level in LEVELS
]


def memory_of(desc: SplitOperatorDesc) -> Memory:
    """Equal bytes for descriptors of equal sizes; no offsets, as tensors may promise alignment."""
    memory = Memory.of(desc)
    memory.offset = 0
    return memory


def all_bytes(buffers: list[np.ndarray]) -> list[bytes]:
    return [buffer.tobytes() for buffer in buffers]


def dispatched(desc: SplitOperatorDesc, level: object) -> list[bytes]:
    memory = memory_of(desc)
    dml.Device("cpu", level).compile(desc).dispatch(memory.input_binding, memory.output_bindings)
    return all_bytes(memory.targets)


def assert_equivalent(desc: SplitOperatorDesc, legal: SplitOperatorDesc, level: object) -> None:
    assert dml.validate(legal, level).ok
    for (_, before), (_, after) in zip(named_tensors(desc), named_tensors(legal), strict=True):
        assert after.total_tensor_size_in_bytes == before.total_tensor_size_in_bytes
        assert after.flags == before.flags
        is_aligned = (tensor.guaranteed_base_offset_alignment > 0 for tensor in (before, after))
        assert len(set(is_aligned)) == 1
    expected = all_bytes(expected_buffers(desc, memory_of(desc)))
    assert all_bytes(expected_buffers(legal, memory_of(legal))) == expected
    assert dispatched(legal, level) == expected
    if dml.validate(desc).ok:
        assert dispatched(desc, "6_4") == expected
    assert descriptor_geometry(legal).total_bytes == descriptor_geometry(desc).total_bytes


SHAPES = [(6,), (4, 6), (2, 6, 4), (2, 2, 6, 2), (2, 1, 6, 2, 2), (1, 2, 2, 6, 2, 2)]
SHAPES += [(2, 1, 2, 6, 1, 2, 2), (2, 1, 2, 1, 6, 2, 1, 2), (2, 1, 6, 1, 2, 1, 2, 1, 2, 1)]


@pytest.mark.parametrize("level", EVERY_LEVEL)
@each(kind=TYPES, shape=SHAPES)
def test_every_level_type_and_rank_has_an_equivalent_with_equal_bytes(
    level: FeatureLevel, kind: dml.TensorDataType, shape: tuple[int, ...]
) -> None:
    tensor = TensorDesc(kind, shape)
    desc = SplitOperatorDesc.from_sizes(tensor, axis=shape.index(6), sizes=(2, 4))
    assert_equivalent(desc, dml.legalize(desc, level), level)


def test_a_valid_descriptor_comes_back_unchanged() -> None:
    desc = SplitOperatorDesc.from_sizes(TensorDesc("FLOAT32", (1, 1, 6, 2)), axis=2, sizes=(2, 4))
    assert dml.legalize(desc, "1_0") is desc


@pytest.mark.parametrize(
    ("tensor", "axis", "sizes", "level", "expected"),
    [
        (("FLOAT32", (6,)), 0, (2, 4), "1_0", "axis 3: FLOAT32[1,1,1,6]"),
        (("INT64", (2, 3)), 1, (1, 2), "3_0", "axis 1: UINT32[2,6]"),
        (("FLOAT64", (2, 3, 4, 5)), 1, (1, 2), "2_0", "axis 1: UINT32[2,3,4,10]"),
        (("FLOAT16", (2, 3, 4, 5, 6)), 2, (1, 3), "1_0", "axis 2: FLOAT16[2,3,4,30]"),
        (("FLOAT32", (2, 1, 3, 4, 5)), 2, (1, 2), "1_0", "axis 1: FLOAT32[2,3,4,5]"),
        (("UINT8", (3, 4)), 1, (2, 2), "1_0", "axis 3: UINT16[1,1,3,2]"),
        (("INT8", (4, 3, 2)), 0, (1, 3), "2_0", "axis 1: UINT16[1,4,3,1]"),
        (("UINT8", (2, 2, 3)), 0, (2,), "1_0", "axis 3: UINT16[1,1,1,6]"),
        (("FLOAT32", (2,) * 5), 4, (2,), "1_0", "axis 3: FLOAT32[2,2,2,4]"),
        (("FLOAT32", (2,) * 5), 4, (1, 1), "1_0", "axis 3: FLOAT32[2,2,4,2]"),
        (("FLOAT32", (2,) * 9), 4, (1, 1), "6_4", "axis 4: FLOAT32[2,2,2,2,2,2,2,4]"),
    ],
)
def test_a_refused_descriptor_becomes_the_expected_type_and_sizes(
    tensor: Any, axis: int, sizes: tuple[int, ...], level: str, expected: str
) -> None:
    desc = SplitOperatorDesc.from_sizes(TensorDesc(*tensor), axis=axis, sizes=sizes)
    legal = dml.legalize(desc, level)
    assert str(legal).startswith(f"SPLIT {expected}")
    assert_equivalent(desc, legal, level)


LANES = [TensorDesc("INT64", (2, size), strides=(1, 2)) for size in (1, 2)]
PADDED = [TensorDesc("INT64", (2, 1)), TensorDesc("INT64", (2, 2), strides=(5, 2))]


@pytest.mark.parametrize(
    ("x", "outputs", "level", "expected"),
    [
        # Lanes get a dimension of their own, or extend the innermost loop.
        (("INT64", (2, 3), (1, 2)), PADDED, "1_0",
         "axis 2: UINT32[1,2,3,2] strides [0,2,4,1] -> "
         "UINT32[1,2,1,2], UINT32[1,2,2,2] strides [0,10,4,1]"),
        (("INT64", (2, 3), (1, 2)), LANES, "3_0",
         "axis 1: UINT32[4,3] strides [1,4] -> UINT32[4,1], UINT32[4,2] strides [1,4]"),
        (("UINT8", (2, 4), (6, 1)), [TensorDesc("UINT8", (2, 2), strides=(4, 1))] * 2, "1_0",
         "axis 3: UINT16[1,1,2,2] strides [0,0,3,1] -> "
         "UINT16[1,1,2,1] strides [0,0,2,0], UINT16[1,1,2,1] strides [0,0,2,0]"),
        # A dimension of 1 may have any stride.
        (("UINT8", (1, 4), (7, 1)), [TensorDesc("UINT8", (1, 2), strides=(3, 1))] * 2, "1_0",
         "axis 3: UINT16[1,1,1,2] -> UINT16[1,1,1,1], UINT16[1,1,1,1]"),
        # Even one that is too large for narrower elements.
        (("INT64", (1, 2, 2), None), [TensorDesc("INT64", (1, 1, 2), strides=(2**31, 1, 3))] * 2,
         "1_0", "axis 2: UINT32[1,2,2,2] strides [0,1,4,2] -> "
         "UINT32[1,2,1,2] strides [0,1,0,6], UINT32[1,2,1,2] strides [0,1,0,6]"),
    ],
)  # fmt: skip
def test_strides_are_rewritten_with_the_elements(
    x: Any, outputs: list[TensorDesc], level: str, expected: str
) -> None:
    kind, sizes, strides = x
    desc = SplitOperatorDesc(TensorDesc(kind, sizes, strides=strides), outputs, 1)
    legal = dml.legalize(desc, level)
    assert str(legal) == f"SPLIT {expected}"
    assert_equivalent(desc, legal, level)


def test_flags_and_total_size_are_kept_and_alignment_covers_an_element() -> None:
    promises = {"total_tensor_size_in_bytes": 64, "guaranteed_base_offset_alignment": 1}
    source = TensorDesc("UINT8", (4, 4), flags="OWNED_BY_DML", **promises)
    outputs = [TensorDesc("UINT8", (2, 4), guaranteed_base_offset_alignment=64)] * 2
    legal = dml.legalize(SplitOperatorDesc(source, outputs, 0), "1_0")
    assert legal.input_tensor.flags is dml.TensorFlags.OWNED_BY_DML
    assert legal.input_tensor.total_tensor_size_in_bytes == 64
    assert legal.input_tensor.guaranteed_base_offset_alignment == 2
    assert legal.output_tensors[0].guaranteed_base_offset_alignment == 64


def test_a_tensor_of_too_many_elements_gets_fewer_wider_ones() -> None:
    desc = SplitOperatorDesc.from_sizes(TensorDesc("UINT8", (3, 2**31)), axis=0, sizes=(1, 2))
    assert "DML-TENSOR-ELEMENT-COUNT" in dml.validate(desc).rule_ids
    legal = dml.legalize(desc, "6_4")
    assert str(legal.input_tensor) == "UINT16[3,1073741824]"
    assert dml.validate(legal).ok


def bytes_split(*sizes: int, shape: tuple[int, ...] = ()) -> SplitOperatorDesc:
    x = TensorDesc("INT8", (*shape, sum(sizes)))
    return SplitOperatorDesc.from_sizes(x, axis=len(shape), sizes=sizes)


def copied(index: int, runs: str) -> str:
    parts = f"the contiguous parts of OutputTensors[{index}] have {runs}"
    return f"{parts}, and UINT16, the smallest type of the level, has 2"


@pytest.mark.parametrize(
    ("desc", "level", "reason"),
    [
        (bytes_split(1, 3, shape=(3,)), "1_0", copied(0, "1 byte")),
        (bytes_split(5), "2_0", copied(0, "5 bytes")),
        # Runs of 2 bytes would be possible, but in the input they are 9 bytes apart.
        (bytes_split(2, 4, 3, shape=(2,)), "1_0",
         copied(0, "2 bytes, at offsets or strides that are not multiples of 2")),
        (bytes_split(2, 4, 3), "1_0", copied(2, "3 bytes")),
        (SplitOperatorDesc(TensorDesc("FLOAT32", (2,) * 5, strides=(625, 125, 25, 5, 1)),
                           [TensorDesc("FLOAT32", (2, 2, 1, 2, 2))] * 2, 2), "1_0",
         "as FLOAT32 it needs 5 dimensions, because their strides cannot be merged; at most 4 "
         "are accepted"),
        (SplitOperatorDesc.from_sizes(TensorDesc("INT64", (2**31, 1)), axis=0, sizes=(2**31,)),
         "1_0",
         "as UINT32, DML-TENSOR-ELEMENT-COUNT: InputTensor.Sizes has 4294967296 elements; it must"
         " have at most 4294967295. Fix: split the tensor along an outer dimension first"),
        (SplitOperatorDesc.from_sizes(TensorDesc("UINT4", (8,)), axis=0, sizes=(3, 5)), "6_4",
         "its 4-bit elements are not copied in runs of whole UINT8s"),
    ],
)  # fmt: skip
def test_an_error_says_why_no_equivalent_exists(
    desc: SplitOperatorDesc, level: str, reason: str
) -> None:
    with pytest.raises(NoEquivalentError) as error:
        dml.legalize(desc, level)
    assert error.value.reason == reason
    assert str(error.value) == f"{desc}: no equivalent at feature level {level}: {reason}"
    assert error.value.report == dml.validate(desc, level)


@pytest.mark.parametrize(
    "desc",
    [
        SplitOperatorDesc.from_sizes(TensorDesc("INT8", (6,)), axis=0, sizes=(2, 3)),
        SplitOperatorDesc.from_sizes(TensorDesc("INT64", (6,)), axis=1, sizes=(6,)),
        SplitOperatorDesc(TensorDesc("INT8", ()), [TensorDesc("INT8", ())], 0),
    ],
    ids=str,
)
def test_a_split_that_every_level_refuses_names_the_rule(desc: SplitOperatorDesc) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        dml.legalize(desc, "1_0")
    report = dml.validate(desc, "1_0")
    violation = next(v for v in report.violations if "descriptor" not in v.rule.fixable_by)
    assert str(error.value) == f"{desc}: invalid at every feature level: {violation}"
    assert not isinstance(error.value, NoEquivalentError)
    assert error.value.report == report


@pytest.mark.parametrize(
    ("kind", "level", "types"),
    [
        ("INT64", "4_1", "INT64 UINT32 UINT16 UINT8"),
        ("INT64", "1_0", "UINT32 UINT16"),
        ("INT8", "1_0", "UINT16 UINT32"),
        ("INT8", "2_1", "INT8 UINT16 UINT32"),
        ("FLOAT16", "6_4", "FLOAT16 UINT32 UINT64 UINT8"),
        ("FLOAT32", "6_4", "FLOAT32 UINT64 UINT16 UINT8"),
        ("INT4", "6_4", "UINT8 UINT16 UINT32 UINT64"),
    ],
)
def test_types_of_equal_size_are_tried_first_then_wider_then_narrower(
    kind: str, level: str, types: str
) -> None:
    row = support_table()[FeatureLevel.parse(level)]
    candidates = legalization._candidate_types(dml.TensorDataType.parse(kind), row)
    assert [kind.name for kind in candidates] == types.split()


@pytest.mark.parametrize("kind", ["UINT4", "INT4"])
def test_four_bit_elements_in_runs_of_whole_bytes_are_split_as_bytes(kind: str) -> None:
    x = TensorDesc(kind, (3, 8))
    legal = dml.legalize(SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 6)), "6_4")
    assert str(legal) == "SPLIT axis 1: UINT8[3,4] -> UINT8[3,1], UINT8[3,3]"
    tensors = (legal.input_tensor, *legal.output_tensors)
    assert [tensor.total_tensor_size_in_bytes for tensor in tensors] == [12, 4, 12]
    assert dml.validate(legal).ok


@st.composite
def layouts(draw: st.DrawFn, sizes: tuple[int, ...], may_repeat: bool) -> tuple[int, ...] | None:
    """Strides of a tensor: packed, or in any order of the dimensions with padding between them."""
    if draw(st.booleans()):
        return None
    strides = [0] * len(sizes)
    step = draw(st.sampled_from([1, 1, 2]))
    for dim in draw(st.permutations(range(len(sizes)))):
        strides[dim] = step
        step = step * sizes[dim] + draw(st.sampled_from([0, 0, 0, 1, 2]))
    if may_repeat and draw(st.booleans()):
        strides[draw(st.integers(0, len(sizes) - 1))] = 0
    return tuple(strides)


@st.composite
def descriptors(draw: st.DrawFn) -> SplitOperatorDesc:
    kind = draw(st.sampled_from(TYPES))
    sizes = draw(st.lists(st.sampled_from([1, 1, 2, 2, 3, 4]), min_size=1, max_size=9))
    axis = draw(st.integers(0, len(sizes) - 1))
    pieces = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    sizes[axis] = sum(pieces)

    def tensor(shape: list[int], may_repeat: bool) -> TensorDesc:
        strides = draw(layouts(tuple(shape), may_repeat))
        least = TensorDesc(kind, shape, strides=strides)
        total = least.total_tensor_size_in_bytes + draw(st.sampled_from([0, 0, 4, 16]))
        alignment = draw(st.sampled_from([0, 0, 8, 64]))
        promises = {"total_tensor_size_in_bytes": total}
        promises["guaranteed_base_offset_alignment"] = alignment
        return TensorDesc(kind, shape, strides=strides, **promises)

    outputs = [tensor([*sizes[:axis], n, *sizes[axis + 1 :]], may_repeat=False) for n in pieces]
    return SplitOperatorDesc(tensor(sizes, may_repeat=True), outputs, axis)


@settings(settings.get_profile("many"))
@given(desc=descriptors(), level=st.sampled_from(LEVELS))
def test_any_layout_keeps_its_bytes_or_is_refused_with_a_reason(
    desc: SplitOperatorDesc, level: FeatureLevel
) -> None:
    try:
        legal = dml.legalize(desc, level)
    except InvalidArgumentError as error:
        refusal = str(error)
    else:
        assert_equivalent(desc, legal, level)
        return
    assert "\n" not in refusal
    assert not dml.validate(desc, level).ok
    # Elements of 16 and 32 bits with few dimensions are within reach of every level.
    moving = sum(size > 1 for size in desc.input_tensor.sizes)
    assert desc.input_tensor.element_bytes == 1 or moving + 1 > 4
