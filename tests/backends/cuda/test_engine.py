"""The CUDA engine: binding, launches, streams, limits, errors; on a fake driver and a real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import dmlsplit as dml
from descriptors import Memory, expected_buffers, split_descriptors
from dmlsplit import device as device_module
from dmlsplit import eager
from dmlsplit.backends import find
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.planner import H200
from fake_cuda import CURRENT_STREAM, FakeArray, FakeDriver


def forget() -> None:
    """Empty the caches that hold programs of another driver."""
    find.compiled.cache_clear()
    device_module._compile.cache_clear()
    eager._program.cache_clear()


def installed(fake: FakeDriver, patch: pytest.MonkeyPatch) -> FakeDriver:
    patch.setattr(driver, "load", lambda: fake)
    forget()
    return fake


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    forget()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return installed(FakeDriver(), monkeypatch)


class Cuda:
    """Device memory of the fake or the real driver."""

    def __init__(self, fake: FakeDriver | None) -> None:
        self.fake = fake

    def array(self, value: np.ndarray) -> Any:
        if self.fake:
            return self.fake.array(value)
        import cupy

        return cupy.asarray(value)

    def host(self, array: Any) -> np.ndarray:
        return array.host if self.fake else array.get(order="A")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cuda:
    if request.param == "real":
        forget()
        return Cuda(None)
    return Cuda(installed(FakeDriver(programs=folder), monkeypatch))


def noise(shape: tuple[int, ...], dtype: str = "u1") -> np.ndarray:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(5).bytes(count), dtype).reshape(shape).copy()


def pieces(array: np.ndarray, sizes: tuple[int, ...], axis: int) -> list[np.ndarray]:
    return np.split(array, np.cumsum(sizes)[:-1], axis)


X = dml.TensorDesc("FLOAT16", (4, 96))
SIZES = (64, 24, 8)
DESC = dml.SplitOperatorDesc.from_sizes(X, axis=1, sizes=SIZES)


def bits(array: np.ndarray) -> bytes:
    return array.tobytes()


# What comes out.


@pytest.mark.parametrize(
    ("shape", "dtype", "axis", "sizes"),
    [
        ((4, 96), "f2", 1, (64, 24, 8)),
        ((64, 3), "u1", 1, (1, 1, 1)),
        ((9, 4099), "u1", 1, (1500, 2599)),
        ((12, 33), "f4", 0, (5, 0, 7)),
    ],
    ids=["aligned", "rgb", "misaligned", "axis 0"],
)
def test_split_gives_the_pieces_of_numpy(
    cuda: Cuda, shape: tuple[int, ...], dtype: str, axis: int, sizes: tuple[int, ...]
) -> None:
    array = noise(shape, dtype)
    found = dml.split(cuda.array(array), sizes, axis)
    for one, wanted in zip(found, pieces(array, sizes, axis), strict=True):
        assert bits(cuda.host(one)) == bits(wanted)


def test_an_operator_returns_arrays_laid_out_as_described(cuda: Cuda) -> None:
    array = noise((2, 3, 4), "f4")
    x = dml.TensorDesc("FLOAT32", (2, 3, 4))
    outputs = [
        dml.TensorDesc("FLOAT32", (2, 1, 4), strides=(4, 4, 1)),
        dml.TensorDesc("FLOAT32", (2, 2, 4), strides=(1, 2, 4)),
    ]
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc(x, outputs, 1))
    one, two = (cuda.host(out) for out in op(cuda.array(array)))
    assert two.strides == (4, 8, 16)
    assert bits(one) == bits(array[:, :1])
    assert bits(np.ascontiguousarray(two)) == bits(np.ascontiguousarray(array[:, 1:]))


def test_a_bound_operator_follows_its_input(cuda: Cuda) -> None:
    array = noise((4, 96), "f2")
    source = cuda.array(array)
    outs = [cuda.array(np.zeros((4, size), "f2")) for size in SIZES]
    dml.Device("cuda:0").compile(DESC).bind(source, outs).dispatch()
    for out, wanted in zip(outs, pieces(array, SIZES, 1), strict=True):
        assert bits(cuda.host(out)) == bits(wanted)


@given(split_descriptors(max_rank=4))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_every_byte_is_right_and_no_other_is_touched(
    folder: Path, desc: dml.SplitOperatorDesc
) -> None:
    """Any descriptor: poisoned outputs, guards around each, every byte compared."""
    memory = Memory.of(desc)
    wanted = expected_buffers(desc, memory)
    with pytest.MonkeyPatch.context() as patch:
        fake = installed(FakeDriver(programs=folder), patch)
        targets = [fake.array(target) for target in memory.targets]
        bindings = [dml.BufferBinding(target, memory.offset) for target in targets]
        source = dml.BufferBinding(fake.array(memory.source), memory.offset)
        dml.Device("cuda").compile(desc).dispatch(source, bindings)
    for found, expected in zip(targets, wanted, strict=True):
        np.testing.assert_array_equal(found.host, expected)


def test_files_go_through_the_device(cuda: Cuda, tmp_path: Path) -> None:
    from dmlsplit.storage.npy import split_file

    array = noise((6, 7), "f4")
    np.save(tmp_path / "a.npy", array)
    done = split_file(tmp_path / "a.npy", (3, 4), 1, tmp_path / "out", device="cuda:0")
    found = [np.load(path) for path in done.paths]
    assert [bits(piece) for piece in found] == [bits(p) for p in pieces(array, (3, 4), 1)]


def test_out_may_be_columns_of_one_array(cuda: Cuda) -> None:
    array = noise((6, 5), "u2")
    store = cuda.array(np.zeros((6, 12), "u2"))
    views = columns(cuda, store, (3, 2), gap=1)
    dml.split(cuda.array(array), (3, 2), 1, out=views)
    found = cuda.host(store)
    np.testing.assert_array_equal(found[:, :3], array[:, :3])
    np.testing.assert_array_equal(found[:, 4:6], array[:, 3:])
    assert not found[:, [3, *range(6, 12)]].any()


def columns(cuda: Cuda, store: Any, widths: tuple[int, ...], gap: int) -> list[Any]:
    starts = [sum(widths[:i]) + i * gap for i in range(len(widths))]
    if not cuda.fake:
        return [store[:, at : at + width] for at, width in zip(starts, widths, strict=True)]
    return [
        FakeArray(store.host[:, at : at + width], 0)
        for at, width in zip(starts, widths, strict=True)
    ]


# What the driver is asked.


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
    assert launch.kernel == "vector"
    assert (launch.grid, launch.block) == (1, 256)
    assert launch.device == 0


def test_the_operators_device_is_the_one_launched_on(fake: FakeDriver) -> None:
    bound(fake, 1).dispatch()
    assert fake.launched[0].device == 1


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 0xAB


class CupyStream:
    ptr = 0xAC
    device_id = -1


class TorchStream:
    cuda_stream = 0xAD
    device_index = 0


@pytest.mark.parametrize(
    ("stream", "handle"),
    [(None, CURRENT_STREAM), (0, 0), (7, 7), (Protocol(), 0xAB), (CupyStream(), 0xAC),
     (TorchStream(), 0xAD)],
    ids=["current", "default", "handle", "protocol", "cupy", "torch"],
)  # fmt: skip
def test_the_stream_is_the_callers(fake: FakeDriver, stream: Any, handle: int) -> None:
    bound(fake).dispatch(stream)
    assert fake.launched[0].stream == handle


@pytest.mark.parametrize("stream", ["fast", -1, True, 1.5, object()])
def test_what_is_no_stream_is_refused_before_the_launch(fake: FakeDriver, stream: Any) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be None, a CUDA stream's handle"):
        bound(fake).dispatch(stream)
    assert not fake.launched


def test_new_outputs_are_allocated_for_the_stream_that_writes_them(fake: FakeDriver) -> None:
    x = dml.TensorDesc("UINT8", (4, 6))
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4)))
    source = fake.array(noise((4, 6)))
    fake.calls.clear()
    op(source, stream=7)
    assert fake.calls[:4] == ["enter 7", "allocate", "allocate", "leave 7"]
    assert fake.launched[0].stream == 7
    fake.calls.clear()
    with pytest.raises(dml.InvalidArgumentError, match="stream is 'side'"):
        op(source, stream="side")
    assert fake.calls == []


def test_a_stream_of_another_device_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=r"belongs to cuda:0.*cuda:1"):
        bound(fake, 1).dispatch(TorchStream())
    assert not fake.launched


@pytest.mark.parametrize(("limit", "launches"), [(32764, 2), (4096, 9)])
def test_outputs_beyond_the_parameters_take_more_launches(
    monkeypatch: pytest.MonkeyPatch, limit: int, launches: int
) -> None:
    limits = replace(H200, parameter_bytes=limit)
    fake = installed(FakeDriver(device_limits=limits), monkeypatch)
    source = fake.array(noise((4097 * 16,)))
    outs = dml.split(source, 4097)
    assert len(fake.launched) == launches
    assert all(8 * len(launch.addresses) <= limit for launch in fake.launched)
    written = [address for launch in fake.launched for address in launch.addresses[1:]]
    assert sorted(written) == sorted(out.__cuda_array_interface__["data"][0] for out in outs)


def test_every_one_of_4097_outputs_is_written(cuda: Cuda) -> None:
    array = noise((4097, 3), "u2")
    found = dml.split(cuda.array(array), 4097)
    assert b"".join(bits(cuda.host(one)) for one in found) == bits(array)


def test_an_operator_is_compiled_once_per_device(fake: FakeDriver) -> None:
    for number in (0, 0, 1, 1):
        dml.Device(f"cuda:{number}").compile(DESC)
    assert fake.calls == ["compile"] * 2


def test_the_alignment_of_the_memory_chooses_the_kernel(fake: FakeDriver) -> None:
    store = fake.array(noise((4 * 96 + 1,), "f2"))
    source = FakeArray(store.host[1:].reshape(4, 96), 0)
    outs = [fake.array(np.zeros((4, size), "f2")) for size in SIZES]
    op = dml.Device("cuda").compile(DESC)
    op.dispatch(source, outs)
    assert fake.launched[0].kernel != "vector"
    assert fake.calls.count("compile") == 2
    op.dispatch(source, outs)
    assert fake.calls.count("compile") == 2


def test_nothing_is_launched_for_no_bytes(fake: FakeDriver) -> None:
    outs = dml.split(fake.array(np.zeros((0, 4), "f4")), (0, 0))
    assert [out.shape for out in outs] == [(0, 4)] * 2
    assert not fake.launched


# What is refused. Nothing is launched.


def test_bindings_are_held_to_the_rules(fake: FakeDriver) -> None:
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


def test_no_memory_says_how_much_is_needed_and_free(fake: FakeDriver) -> None:
    source = fake.array(noise((1024, 1024)))
    fake.memory_bytes = 1000
    with pytest.raises(dml.OutOfMemoryError, match="524288 bytes are needed, 1000 are free") as it:
        dml.split(source, 2)
    assert it.value.hresult == 0x8007000E
    assert not fake.launched


def test_a_device_that_is_gone_is_said_to_be(fake: FakeDriver) -> None:
    operator = bound(fake)
    fake.failure = dml.DeviceRemovedError("the launch failed: cuda:0 is gone")
    with pytest.raises(dml.DeviceRemovedError) as caught:
        operator.dispatch()
    assert caught.value.hresult == 0x887A0005


def test_a_device_must_exist(fake: FakeDriver) -> None:
    with pytest.raises(dml.UnsupportedError, match="'cuda:2'; there are 2, from cuda:0 to cuda:1"):
        dml.Device("cuda:2")


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:x", "gpu", "CUDA", 0, "cuda:0 "])
def test_a_device_name_must_be_one(name: Any) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be 'cpu', 'cuda' or 'cuda:N'"):
        dml.Device(name)


def test_without_a_name_the_first_cuda_device_is_taken(fake: FakeDriver) -> None:
    assert dml.Device().name == "cuda:0"


def test_without_a_name_and_a_cuda_device_the_cpu_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load() -> None:
        raise dml.UnsupportedError("none")

    monkeypatch.setattr(driver, "load", load)
    assert dml.Device().name == "cpu"
    with pytest.raises(dml.UnsupportedError):
        dml.Device("cuda")
