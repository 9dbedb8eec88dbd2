"""Devices, compiled and bound operators on the CPU: results, bindings, refusals."""

import copy
import pickle
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

import dmlsplit as dml
from tests.support.arrays import ramp
from tests.support.descriptors import DATA_TYPES, Memory, expected_buffers, split_descriptors

CPU = dml.Device("cpu")
INPUT_DESC = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))
DESC = dml.SplitOperatorDesc.from_sizes(INPUT_DESC, axis=2, sizes=(2, 1, 3))


def test_outputs_are_laid_out_as_described() -> None:
    out = dml.TensorDesc("FLOAT32", INPUT_DESC.sizes, strides=(0, 0, 1, 8))
    (output,) = CPU.compile(dml.SplitOperatorDesc(INPUT_DESC, [out], 2))(ramp(1, 1, 6, 2))
    assert output.strides == (0, 0, 4, 32)
    np.testing.assert_array_equal(output, ramp(1, 1, 6, 2))


@given(split_descriptors())
@settings(settings.get_profile("many"))
def test_a_dispatch_writes_the_bytes_of_the_pieces_and_no_others(
    desc: dml.SplitOperatorDesc,
) -> None:
    memory = Memory.of(desc)
    expected_bytes = expected_buffers(desc, memory)
    before = memory.source.copy()
    CPU.compile(desc).dispatch(memory.input_binding, memory.output_bindings)
    for target, expected in zip(memory.targets, expected_bytes, strict=True):
        np.testing.assert_array_equal(target, expected)
    np.testing.assert_array_equal(memory.source, before)


def test_an_operator_can_be_copied_and_pickled() -> None:
    op = CPU.compile(DESC)
    for again in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert again is op
    for again in (copy.copy(CPU), copy.deepcopy(CPU), pickle.loads(pickle.dumps(CPU))):
        assert again == CPU


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_bound_operator_can_neither_be_copied_nor_pickled(
    duplicate: Callable[[object], object],
) -> None:
    op, array = CPU.compile(DESC), ramp(1, 1, 6, 2)
    bound = op.bind(array, op(array))
    with pytest.raises(dml.UnsupportedError, match=r"neither copied nor pickled\. Fix: bind"):
        duplicate(bound)


def test_a_dispatch_keeps_its_buffers_alive() -> None:
    """`op.bind(...).dispatch()` drops the bound operator before the call."""

    class Watched(np.ndarray):
        pass

    array, out = (np.zeros((1, 1, 6, 2), np.float32).view(Watched) for _ in range(2))
    watched = [weakref.ref(array), weakref.ref(out)]
    x = dml.SplitOperatorDesc(INPUT_DESC, [INPUT_DESC], 0)
    dispatch = CPU.compile(x).bind(array, [out]).dispatch
    del array, out
    assert all(reference() is not None for reference in watched)
    dispatch()
    del dispatch
    assert [reference() for reference in watched] == [None, None]


def test_one_buffer_may_hold_every_output() -> None:
    store = np.full(24, -1, np.float32)
    bindings = [dml.BufferBinding(store, 0, 16), dml.BufferBinding(store, 16, 8)]
    CPU.compile(DESC).dispatch(
        dml.BufferBinding(ramp(12)), [*bindings, dml.BufferBinding(store, 32)]
    )
    expected_values = [1, 2, 3, 4, 5, 6, -1, -1, 7, 8, 9, 10, 11, 12, *[-1] * 10]
    assert store.tolist() == expected_values
    pieces = CPU.compile(DESC)(dml.BufferBinding(ramp(12).view("u1")))
    assert [piece.dtype for piece in pieces] == [np.float32] * 3


def test_the_error_of_compile_has_the_report_of_validate_at_the_level_of_the_device() -> None:
    old = dml.Device("cpu", feature_level="1_0")
    x = dml.TensorDesc("FLOAT64", (1, 1, 2, 2))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=2, sizes=(1, 1))
    with pytest.raises(dml.InvalidArgumentError) as error:
        old.compile(desc)
    assert error.value.report == dml.validate(desc, "1_0")
    assert str(error.value) == str(error.value.report)
    assert not old.supports_data_type("FLOAT64")
    assert CPU.supports_data_type("FLOAT64")
    assert [kind for kind in DATA_TYPES if not CPU.supports_data_type(kind)] == []


def test_check_feature_levels_returns_the_highest_supported_one() -> None:
    device = dml.Device("cpu", feature_level="3_0")
    for levels, highest in ((["1_0", "5_0", "2_1"], "2_1"), (["2_0", "3_0"], "3_0")):
        assert str(device.check_feature_levels(levels)) == highest
    with pytest.raises(dml.UnsupportedError, match=r"4_0, 5_0.*up to 3_0") as error:
        device.check_feature_levels(["4_0", "5_0"])
    assert error.value.hresult == 0x887A0004
    with pytest.raises(dml.UnsupportedError, match=r"^requested feature levels are none; the "):
        device.check_feature_levels([])
    with pytest.raises(dml.InvalidArgumentError, match="feature level is 'x'"):
        device.check_feature_levels(["x"])
    with pytest.raises(dml.InvalidArgumentError, match="requested has the type str"):
        device.check_feature_levels("4_1")


@pytest.mark.parametrize(
    ("method", "name"), [("check_feature_levels", "requested"), ("warm", "descs")]
)
def test_an_error_about_what_is_no_iterable_names_its_type(method: str, name: str) -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("UINT8", (4,)), axis=0, sizes=(1, 3))
    with pytest.raises(TypeError, match=f"^{name} has the type SplitOperatorDesc; it must be an i"):
        getattr(dml.Device("cpu"), method)(desc)


def test_equal_devices_share_compiled_operators() -> None:
    assert dml.Device("cpu") == CPU
    assert dml.Device("cpu").compile(DESC) is CPU.compile(DESC)
    assert dml.Device("cpu", "1_0") != CPU
    assert repr(CPU) == f"Device('cpu', feature_level='{max(dml.FeatureLevel)}')"


def test_the_repr_of_an_operator_has_device_tensor_axis_and_sizes() -> None:
    operator, source = CPU.compile(DESC), ramp(1, 1, 6, 2)
    text = "on cpu: FLOAT32[1,1,6,2], axis 2 into [2, 1, 3]"
    assert repr(operator) == f"<CompiledOperator {text}>"
    assert repr(operator.bind(source, operator(source))) == f"<BoundOperator {text}>"
    x = dml.TensorDesc("UINT8", (1000, 1))
    many = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(1,) * 1000)
    assert repr(CPU.compile(many)).endswith("1, ...] (1000 values)>")
    assert len(repr(CPU.compile(many))) < 160


def test_warm_refuses_an_alignment_that_is_not_a_power_of_two() -> None:
    CPU.warm([DESC])
    CPU.warm([DESC], alignment=16)
    with pytest.raises(dml.InvalidArgumentError, match="alignment is 3; it must be 1, 2, 4, 8"):
        CPU.warm([DESC], alignment=3)
