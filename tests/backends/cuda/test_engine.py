"""The CUDA engine's bindings, launches, streams, limits and errors, as a fake driver records them.

test_gpu.py compares the results, on the simulated card and on GPUs.
"""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays.cupy import CUPY
from dmlsplit.backends.cuda.gpus import H200
from tests.support.fake_cuda import CURRENT_STREAM, FakeArray, FakeDriver
from tests.support.gpu_arrays import noise, operator

X = dml.TensorDesc("FLOAT16", (4, 96))
SIZES = (64, 24, 8)
DESC = dml.SplitOperatorDesc.from_sizes(X, axis=1, sizes=SIZES)


# Calls of the driver.


def bound(fake: FakeDriver, number: int = 0) -> dml.BoundOperator:
    source = fake.array(noise((4, 96), "f2"), number)
    outs = [fake.array(np.zeros((4, size), "f2"), number) for size in SIZES]
    return dml.Device(f"cuda:{number}").compile(DESC).bind(source, outs)


def test_a_dispatch_is_one_launch_and_nothing_else(fake: FakeDriver) -> None:
    operator = bound(fake)
    fake.calls.clear()
    for _ in range(3):
        operator.dispatch()
    assert fake.calls == ["launch"] * 3


def test_a_launch_passes_the_input_then_the_outputs(fake: FakeDriver) -> None:
    source = fake.array(noise((4, 96), "f2"))
    outs = [fake.array(np.zeros((4, size), "f2")) for size in SIZES]
    dml.Device("cuda").compile(DESC).dispatch(source, outs)
    (launch,) = fake.launched
    addresses = [array.__cuda_array_interface__["data"][0] for array in (source, *outs)]
    assert list(launch.addresses) == addresses
    assert launch.kernel == "rows"
    assert (launch.grid, launch.threads) == (3, 64)
    assert launch.device == 0


def test_a_launch_is_on_the_device_of_its_operator(fake: FakeDriver) -> None:
    bound(fake, 1).dispatch()
    assert fake.launched[0].device == 1


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0xAB


class CupyStream(Protocol):
    device_id = -1


class TorchStream(Protocol):
    device_index = 0


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(None, CURRENT_STREAM), (0, 0), (7, 7), (Protocol(), 0xAB), (CupyStream(), 0xAB),
     (TorchStream(), 0xAB)],
    ids=["current", "default", "handle", "protocol", "cupy", "torch"],
)  # fmt: skip
def test_a_launch_is_on_the_given_stream_or_the_current_one(
    fake: FakeDriver, stream: Any, handle: int
) -> None:
    bound(fake).dispatch(stream)
    assert fake.launched[0].stream == handle


@pytest.mark.parametrize("stream", ["fast", -1, True, 1.5, object()])
def test_an_object_that_is_not_a_stream_is_refused_before_the_launch(
    fake: FakeDriver, stream: Any
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be None, a CUDA stream's handle"):
        bound(fake).dispatch(stream)
    assert not fake.launched


def test_new_outputs_are_allocated_for_the_stream_that_writes_them(fake: FakeDriver) -> None:
    op = operator((4, 6), (2, 4), kind="UINT8")
    source = fake.array(noise((4, 6)))
    fake.calls.clear()
    op(source, stream=7)
    assert fake.calls == ["enter 7", *["allocate"] * 2, "pack", "launch", "leave 7"]
    assert fake.launched[0].stream == 7
    fake.calls.clear()
    with pytest.raises(dml.InvalidArgumentError, match="stream is 'side'"):
        op(source, stream="side")
    assert fake.calls == []


def test_a_given_stream_is_recorded_for_the_arrays_that_it_uses(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[Any, Any]] = []
    monkeypatch.setattr(
        type(CUPY), "record_stream", lambda _, array, stream: used.append((array, stream))
    )
    op = dml.Device("cuda").compile(DESC)
    source = fake.array(noise((4, 96), "f2"))
    outs = [fake.array(np.zeros((4, size), "f2")) for size in SIZES]
    op(source)
    op.dispatch(source, outs)
    assert not used
    op(source, stream=7)
    assert used == [(source, 7)]  # The outputs are made for that stream.
    used.clear()
    op.dispatch(source, outs, stream=7)
    assert used == [(array, 7) for array in (source, *outs)]


def test_a_stream_of_another_device_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=r"belongs to cuda:0.*cuda:1"):
        bound(fake, 1).dispatch(TorchStream())
    assert not fake.launched


@pytest.mark.parametrize(("limit", "launches"), [(32764, 2), (4096, 9)])
def test_outputs_beyond_the_parameters_take_more_launches(
    fake: FakeDriver, limit: int, launches: int
) -> None:
    fake.device_limits = H200.limits._replace(parameter_bytes=limit)
    source = fake.array(noise((4097 * 16,)))
    outs = dml.split(source, 4097)
    assert len(fake.launched) == launches
    assert all(8 * len(launch.addresses) <= limit for launch in fake.launched)
    written = [address for launch in fake.launched for address in launch.addresses[1:]]
    assert sorted(written) == sorted(out.__cuda_array_interface__["data"][0] for out in outs)


def test_more_rows_do_not_make_a_call_wait_for_the_compiler(fake: FakeDriver) -> None:
    dml.split(fake.array(noise((64, 96), "f2")), SIZES, 1)
    compiled = fake.calls.count("compile")
    for rows in (65, 200, 1, 64):
        dml.split(fake.array(noise((rows, 96), "f2")), SIZES, 1)
    assert fake.calls.count("compile") == compiled


def test_the_driver_keeps_the_hash_of_a_source_instead_of_its_text(fake: FakeDriver) -> None:
    dml.split(fake.array(noise((64, 96), "f2")), SIZES, 1)
    assert fake.compiled_with_siblings == {(0, hash(source)) for source in fake.sources[:1]}


def test_a_kernel_that_does_not_compile_is_an_error(fake: FakeDriver) -> None:
    fake.refuses = ""
    with pytest.raises(dml.DmlError, match="kernel rows does not compile for cuda:0"):
        dml.Device("cuda").compile(DESC)
    with pytest.raises(dml.DmlError, match="kernel rows does not compile for cuda:0"):
        dml.split(fake.array(noise((4, 96), "f2")), SIZES, 1)


def test_an_operator_is_compiled_once_per_device(fake: FakeDriver) -> None:
    for number in (0, 0, 1, 1):
        dml.Device(f"cuda:{number}").compile(DESC)
    # This includes the specializations for other numbers of rows: one row or several.
    assert fake.calls == ["compile"] * 2 * 2


@pytest.mark.parametrize("start", [0, 1])
def test_a_first_call_compiles_two_specializations_at_any_alignment(
    fake: FakeDriver, start: int
) -> None:
    """This holds for any number of rows, and whether or not outputs bypass the cache."""
    for l2_bytes in (50 << 20, 0):
        fake.device_limits = fake.device_limits._replace(l2_bytes=l2_bytes)
        for rows in (4, 1, 300):
            store = fake.array(noise((rows * 2304 + 1,), "f2"))
            source = FakeArray(store.host[start : start + rows * 2304].reshape(rows, 2304), 0)
            dml.split(source, (1024, 768, 512), 1)
            assert fake.calls.count("compile") == 2


def test_an_operator_is_compiled_for_aligned_memory_after_a_call_on_unaligned_memory(
    fake: FakeDriver,
) -> None:
    store = fake.array(noise((4 * 96 + 1,), "f2"))
    dml.split(FakeArray(store.host[1:].reshape(4, 96), 0), SIZES, 1)
    other = set(fake.sources)
    dml.Device("cuda").compile(DESC)
    assert set(fake.sources) > other


def test_the_alignment_of_the_memory_chooses_the_kernel(fake: FakeDriver) -> None:
    store = fake.array(noise((4 * 96 + 1,), "f2"))
    source = FakeArray(store.host[1:].reshape(4, 96), 0)
    outs = [fake.array(np.zeros((4, size), "f2")) for size in SIZES]
    op = dml.Device("cuda").compile(DESC)
    aligned = set(fake.sources)
    op.dispatch(source, outs)
    assert set(fake.sources) > aligned
    assert len(fake.launched) == 1
    compiled = fake.calls.count("compile")
    op.dispatch(source, outs)
    assert fake.calls.count("compile") == compiled


def test_a_split_without_bytes_launches_nothing(fake: FakeDriver) -> None:
    outs = dml.split(fake.array(np.zeros((0, 4), "f4")), (0, 0))
    assert [out.shape for out in outs] == [(0, 4)] * 2
    assert not fake.launched


# Refusals. Nothing is launched.


def test_bindings_that_break_rules_are_refused(fake: FakeDriver) -> None:
    source = fake.array(noise((4, 96), "f2"))
    outs = [fake.array(np.zeros((4, size), "f2")) for size in SIZES]
    small = fake.array(np.zeros(64, "u1"))
    op = dml.Device("cuda").compile(DESC)
    wrong = {
        "DML-BIND-SIZE": [dml.BufferBinding(small), *outs[1:]],
        "DML-BIND-OFFSET-ALIGNMENT": [dml.BufferBinding(outs[0], 8), *outs[1:]],
        "DML-BIND-OUTPUT-OVERLAP": [
            dml.BufferBinding(outs[0]), dml.BufferBinding(outs[0], 0, 192), outs[2]],
        "DML-BIND-IN-PLACE": [dml.BufferBinding(source, 0, 512), *outs[1:]],
        "DML-BIND-COUNT": outs[1:],
        "DML-BIND-KIND": [np.zeros((4, 64), "f2"), *outs[1:]],
    }  # fmt: skip
    for rule, targets in wrong.items():
        with pytest.raises(dml.InvalidArgumentError) as caught:
            op.bind(source, targets)
        assert caught.value.report is not None
        assert rule in caught.value.report.rule_ids
        assert caught.value.hresult == 0x80070057
    assert not fake.launched


def test_host_arrays_do_not_go_to_a_cuda_device(fake: FakeDriver) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=r"an array on cpu.*on cuda:0"):
        dml.Device("cuda").compile(DESC)(noise((4, 96), "f2"))
    assert not fake.launched


def test_cuda_arrays_do_not_go_to_the_cpu(fake: FakeDriver) -> None:
    source = fake.array(noise((4, 96), "f2"))
    with pytest.raises(dml.InvalidArgumentError, match=r"an array on cuda:0.*on cpu"):
        dml.Device("cpu").compile(DESC)(source)


def test_arrays_of_another_device_are_refused(fake: FakeDriver) -> None:
    source = fake.array(noise((4, 96), "f2"), device=1)
    with pytest.raises(dml.InvalidArgumentError, match=r"an array on cuda:1.*on cuda:0"):
        dml.Device("cuda:0").compile(DESC)(source)
    with pytest.raises(dml.InvalidArgumentError, match="device is cuda:0; it must be cuda:1"):
        dml.split(source, 2, out=[fake.array(np.zeros((2, 96), "f2"))] * 2)


def test_an_out_of_memory_error_has_the_needed_and_free_bytes(fake: FakeDriver) -> None:
    source = fake.array(noise((1024, 1024)))
    fake.memory_bytes = 1000
    with pytest.raises(dml.OutOfMemoryError, match="524288 bytes are needed, 1000 are free") as it:
        dml.split(source, 2)
    assert it.value.hresult == 0x8007000E
    assert not fake.launched


def test_a_removed_device_is_reported(fake: FakeDriver) -> None:
    operator = bound(fake)
    fake.failure = dml.DeviceRemovedError("the launch failed: cuda:0 is gone")
    with pytest.raises(dml.DeviceRemovedError) as caught:
        operator.dispatch()
    assert caught.value.hresult == 0x887A0005


def test_a_device_that_does_not_exist_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(dml.UnsupportedError, match="'cuda:2'; this machine has cuda:0 to cuda:1"):
        dml.Device("cuda:2")


def test_without_a_name_the_first_cuda_device_is_taken(fake: FakeDriver) -> None:
    assert dml.Device().name == "cuda:0"
