"""The lowering that the front ends share."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit import Device, TensorDataType, TensorDesc, validate
from dmlsplit.frontends import Known, Unknown, openvino
from dmlsplit.models.lowering import Lowering, lowered_state, split_descriptor
from dmlsplit.models.site import Cause, UnknownSplitError
from tests.support.arrays import random_bits
from tests.support.onnx_splits import lowered

INT8 = TensorDataType.INT8


def lowering(shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]) -> Lowering:
    return Lowering(shape, axis, sizes, split_descriptor(INT8, shape, axis, sizes))


@given(
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    position=st.integers(0, 3),
)
def test_a_lowering_dispatches_every_output_that_is_not_empty(
    shape: list[int], sizes: list[int], position: int
) -> None:
    axis = position % len(shape)
    shape[axis] = sum(sizes)
    site_lowering = lowering(tuple(shape), axis, tuple(sizes))
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    filled = [piece for piece in shapes if 0 not in piece]
    if site_lowering.descriptor is None:
        assert not filled
    else:
        assert site_lowering.descriptor.input_tensor == TensorDesc("INT8", shape)
        assert [tensor.sizes for tensor in site_lowering.descriptor.output_tensors] == filled
        assert site_lowering.descriptor.axis == axis
        assert validate(site_lowering.descriptor).ok


ONNX_TYPES = {"FLOAT": "f4", "BOOL": "?", "COMPLEX64": "c8", "COMPLEX128": "c16"}


@pytest.mark.parametrize("kind", ONNX_TYPES)
@given(
    before=st.lists(st.integers(1, 2), max_size=8),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
)
def test_a_descriptor_splits_the_bytes_of_any_type_and_rank(
    kind: str, before: list[int], sizes: list[int]
) -> None:
    """Front ends check descriptors, and split arrays without them."""
    axis, shape = len(before), (*before, sum(sizes), 2)
    x = random_bits(shape, ONNX_TYPES[kind])
    bounds = list(pairwise(np.cumsum([0, *sizes]).tolist()))
    expected_bytes = [np.take(x, range(low, high), axis).tobytes() for low, high in bounds]
    descriptors = [lowered("Split", 18, shape, kind, axis=axis, split=sizes).descriptor]
    if len(shape) < 8 and x.itemsize > 4:
        lane_type = TensorDataType.UINT64, x.itemsize // 8
        descriptors.append(openvino.lower_variadic_split(shape, axis, sizes, *lane_type).descriptor)
    for desc in descriptors:
        assert desc is not None
        carrier = x.reshape(-1).view(desc.input_tensor.data_type.numpy_name)
        pieces = Device("cpu").compile(desc)(carrier.reshape(desc.input_tensor.sizes))
        assert [piece.tobytes() for piece in pieces] == expected_bytes


def test_the_state_of_a_split_has_the_result_of_its_lowering() -> None:
    split = lowering((4, 2), 0, (1, 3))
    assert lowered_state(split) == Known(split.descriptor, (1, 3))
    assert lowered_state(lowering((0,), 0, (0,))) == Known(None, (0,))
    gap = UnknownSplitError("batch is dynamic", Cause.DYNAMIC)
    assert lowered_state(split, gap, missing=[("batch", 1)]) == Unknown(
        "batch is dynamic",
        Cause.DYNAMIC,
        split.descriptor,
        (1, 3),
        missing=(("batch", 1),),
        only_count_varies=True,
    )
