"""The CUDA backend on a machine that is made up: what it launches, where, and when it refuses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from descriptors import Memory, expected_buffers, split_descriptors
from dmlsplit import arrays
from dmlsplit.backends import codegen, driver
from dmlsplit.backends.planning import H200, plan
from dmlsplit.device import find_backend
from dmlsplit.geometry import descriptor_geometry
from fake_cuda import FakeArray, FakeDriver, Foreign, executing, fake_machine, surface

X = dml.TensorDesc("FLOAT32", (1, 1, 6, 2))
DESC = dml.SplitOperatorDesc.from_sizes(X, axis=2, sizes=(2, 1, 3))


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    with fake_machine() as machine:
        yield machine


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def running(programs: Path) -> Iterator[FakeDriver]:
    """A machine that carries launches out."""
    with fake_machine(build=executing(programs)) as machine:
        yield machine


def ramp(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def outputs(fake: FakeDriver) -> list[FakeArray]:
    return [fake.array(np.zeros(t.sizes, np.float32)) for t in DESC.output_tensors]


def test_the_fake_has_exactly_the_surface_of_the_driver() -> None:
    wanted = {name: tuple(s.parameters) for name, s in surface(driver).items()}
    fake = FakeDriver()
    found = {
        name: tuple(s.parameters)
        for name, s in surface(fake).items()
        if name not in ("array", "build")
    }
    assert found == wanted


# Launches.


def test_a_dispatch_is_the_planned_launch(fake: FakeDriver) -> None:
    source, targets = fake.array(ramp(1, 1, 6, 2)), outputs(fake)
    dml.Device("cuda").compile(DESC).bind(source, targets).dispatch()
    (planned,) = plan(descriptor_geometry(DESC), 16, 16, H200).launches
    (done,) = fake.launches
    assert (done.kernel, done.grid, done.block) == (planned.kernel, planned.grid, planned.block)
    assert done.pointers == (source.data.ptr, *(t.data.ptr for t in targets))
    assert fake.loads == [(planned.kernel, 0, codegen.source(planned))]


def test_a_dispatch_does_nothing_but_launch(fake: FakeDriver) -> None:
    bound = dml.Device("cuda:0").compile(DESC).bind(fake.array(ramp(1, 1, 6, 2)), outputs(fake))
    fake.calls.clear()
    fake.loads.clear()
    for _ in range(3):
        bound.dispatch()
    assert (fake.calls, fake.loads, len(fake.launches)) == ([], [], 3)


@pytest.mark.parametrize(("parameter_bytes", "most"), [(32764, 4094), (4096, 511)])
def test_outputs_beyond_the_parameters_go_in_more_launches(parameter_bytes: int, most: int) -> None:
    count = 4097
    x = dml.TensorDesc("UINT8", (2, count))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=[1] * count)
    with fake_machine(parameter_bytes=parameter_bytes) as fake:
        source = fake.array(np.zeros(x.sizes, np.uint8))
        store = fake.array(np.zeros(2 * count * 16, np.uint8))
        targets = [dml.BufferBinding(store, 32 * i) for i in range(count)]
        dml.Device("cuda").compile(desc).dispatch(source, targets)
        assert len(fake.launches) >= -(-count // most)
        assert all(8 * len(each.pointers) <= parameter_bytes for each in fake.launches)
        assert {each.pointers[0] for each in fake.launches} == {source.data.ptr}
        written = sorted(p for each in fake.launches for p in each.pointers[1:])
        assert written == [store.data.ptr + 32 * i for i in range(count)]


def test_pieces_without_elements_are_not_launched(fake: FakeDriver) -> None:
    assert [p.shape for p in dml.split(fake.array(ramp(0, 3)), (1, 2), 1)] == [(0, 1), (0, 2)]
    assert fake.launches == []


def test_the_launch_runs_on_the_device_of_the_name(fake: FakeDriver) -> None:
    fake.streams = {0: 5, 1: 6}
    dml.Device("cuda:1").compile(DESC)(fake.array(ramp(1, 1, 6, 2), 1))
    assert [(each.device, each.stream) for each in fake.launches] == [(1, 6)]


# Streams.


class Protocol:
    """Has ``__cuda_stream__`` and nothing else."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 77


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 11),
        (0, 0),
        (2**40, 2**40),
        (Protocol(), 77),
        (SimpleNamespace(ptr=9, device_id=-1), 9),  # CuPy's null stream
        (SimpleNamespace(ptr=9, device_id=0), 9),
        (SimpleNamespace(cuda_stream=8, device_index=0), 8),  # PyTorch
    ],
)
def test_streams_of_every_kind(fake: FakeDriver, stream: Any, handle: int) -> None:
    fake.streams[0] = 11
    dml.Device("cuda").compile(DESC).dispatch(
        fake.array(ramp(1, 1, 6, 2)), outputs(fake), stream=stream
    )
    assert [each.stream for each in fake.launches] == [handle]


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("default", "stream is a str 'default'; it must be a CuPy or PyTorch stream"),
        (True, "stream is a bool True"),
        (-1, "stream is a int -1"),
        (2**64, "stream is a int"),
        (1.5, "stream is a float"),
        (SimpleNamespace(__cuda_stream__=lambda: 7), "stream is a SimpleNamespace"),
        (SimpleNamespace(ptr=9, device_id=1), "stream belongs to cuda:1; it must belong to cuda:0"),
        (SimpleNamespace(cuda_stream=9, device_index=1), "stream belongs to cuda:1"),
    ],
)
def test_what_is_no_stream_is_refused(fake: FakeDriver, stream: Any, message: str) -> None:
    bound = dml.Device("cuda").compile(DESC).bind(fake.array(ramp(1, 1, 6, 2)), outputs(fake))
    with pytest.raises(dml.InvalidArgumentError, match=message):
        bound.dispatch(stream)
    assert fake.launches == []


def test_new_outputs_are_allocated_for_the_stream_that_writes_them(fake: FakeDriver) -> None:
    op, array = dml.Device("cuda").compile(DESC), fake.array(ramp(1, 1, 6, 2))
    op(array, stream=5)
    op(array)
    assert fake.allocated_on == [5, 5, 5, 0, 0, 0]
    with pytest.raises(dml.InvalidArgumentError, match="stream is a str"):
        op(array, stream="5")
    assert len(fake.allocated_on) == 6


# Alignments and caches.


@pytest.mark.parametrize(("offset", "alignment"), [(0, 16), (8, 8), (4, 4), (2, 2), (3, 1)])
def test_addresses_choose_the_variant(fake: FakeDriver, offset: int, alignment: int) -> None:
    x = dml.TensorDesc("UINT8", (4, 64))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(32, 32))
    store = fake.array(np.zeros(512, np.uint8))
    source = store[offset : offset + 256].reshape(4, 64)
    dml.Device("cuda").compile(desc)(source)
    (planned,) = plan(descriptor_geometry(desc), alignment, 16, H200).launches
    assert fake.loads == [(planned.kernel, 0, codegen.source(planned))]


def test_the_worst_output_decides(fake: FakeDriver) -> None:
    store = fake.array(np.zeros(512, np.uint8))
    source = fake.array(np.zeros((4, 64), np.uint8))
    out = [store[0:128].reshape(4, 32), store[132:260].reshape(4, 32)]
    dml.split(source, (32, 32), 1, out=out)
    desc = dml.SplitOperatorDesc.from_sizes(
        dml.TensorDesc("UINT8", (4, 64)), axis=1, sizes=(32, 32)
    )
    (planned,) = plan(descriptor_geometry(desc), 16, 4, H200).launches
    assert fake.loads == [(planned.kernel, 0, codegen.source(planned))]


def test_a_kernel_is_compiled_once_for_each_device(fake: FakeDriver) -> None:
    for number in (0, 1, 0, 1):
        array = fake.array(ramp(1, 1, 6, 2), number)
        device = dml.Device(f"cuda:{number}")
        device.compile(DESC)(array)
        device.compile(DESC).dispatch(
            array, [fake.array(np.zeros(t.sizes, "f4"), number) for t in DESC.output_tensors]
        )
    assert [number for _, number, _ in fake.loads] == [0, 1]


def test_operators_that_move_the_same_bytes_share_a_program(fake: FakeDriver) -> None:
    other = dml.SplitOperatorDesc.from_sizes(
        dml.TensorDesc("INT32", (6, 2)), axis=0, sizes=(2, 1, 3)
    )
    dml.Device("cuda").compile(DESC)(fake.array(ramp(1, 1, 6, 2)))
    dml.Device("cuda").compile(other)(fake.array(ramp(6, 2).view("i4")))
    dml.split(fake.array(ramp(6, 2)), (2, 1, 3))
    assert (len(fake.loads), len(fake.launches)) == (1, 3)


# Results, from the generated sources on the CPU.


def test_a_call_returns_new_arrays_of_the_device(running: FakeDriver) -> None:
    array = ramp(1, 1, 6, 2)
    found = dml.Device("cuda").compile(DESC)(running.array(array))
    for output, piece in zip(found, np.split(array, [2, 3], 2), strict=True):
        assert isinstance(output, FakeArray)
        np.testing.assert_array_equal(output.host, piece)


def test_split_of_an_array_of_another_library(running: FakeDriver) -> None:
    array = running.array(ramp(6, 2)).host
    one, two = dml.split(Foreign(array, 1), (2, 4))
    np.testing.assert_array_equal(one.host, array[:2])
    np.testing.assert_array_equal(two.host, array[2:])
    assert {each.device for each in running.launches} == {1}


@given(split_descriptors(max_rank=4), st.sampled_from([0, 16]))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_every_byte_is_right_and_no_other_is_touched(
    programs: Path, desc: dml.SplitOperatorDesc, offset: int
) -> None:
    memory = Memory.of(desc)
    memory.offset = offset + 16
    wanted = expected_buffers(desc, memory)
    with fake_machine(build=executing(programs)) as machine:
        source = dml.BufferBinding(machine.array(memory.source), memory.offset)
        targets = [machine.array(target) for target in memory.targets]
        bindings = [dml.BufferBinding(target, memory.offset) for target in targets]
        dml.Device("cuda").compile(desc).dispatch(source, bindings)
    for found, expected in zip(targets, wanted, strict=True):
        np.testing.assert_array_equal(found.host, expected)


def test_files_go_through_the_device(running: FakeDriver, tmp_path: Path) -> None:
    from dmlsplit.files import split_file

    array = ramp(6, 7)
    np.save(tmp_path / "a.npy", array)
    done = split_file(tmp_path / "a.npy", (3, 4), 1, tmp_path / "out", device="cuda:1")
    for path, piece in zip(done.paths, np.split(array, [3], 1), strict=True):
        np.testing.assert_array_equal(np.load(path), piece)
    assert {each.device for each in running.launches} == {1}


# Arrays of PyTorch, with a torch that is made up.


class FakeTensor:
    """What is read of a `torch.Tensor` on CUDA."""

    def __init__(self, host: np.ndarray, dtype: str, number: int = 0, **flags: bool) -> None:
        self.host, self.dtype, self.flags = host, dtype, flags
        self.device = SimpleNamespace(index=number)
        self.shape = host.shape
        self.layout = "torch.strided"
        self.is_cuda, self.is_sparse = True, False
        self.requires_grad = flags.get("requires_grad", False)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.index

    def is_conj(self) -> bool:
        return self.flags.get("conj", False)

    def is_neg(self) -> bool:
        return False

    def element_size(self) -> int:
        return self.host.itemsize

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.host.itemsize for step in self.host.strides)

    def data_ptr(self) -> int:
        return int(self.host.__array_interface__["data"][0])


class FakeTorch:
    """What is used of `torch`."""

    Tensor = FakeTensor
    uint16 = "torch.uint16"

    class OutOfMemoryError(RuntimeError):
        """Its own."""

    def __init__(self, fake: FakeDriver) -> None:
        self.fake = fake
        self.cuda = SimpleNamespace(
            OutOfMemoryError=self.OutOfMemoryError,
            ExternalStream=lambda handle, device: (handle, device),
            stream=self.on_stream,
        )
        self.streams: list[tuple[int, str]] = []
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda number: 100 + number)

    @contextmanager
    def on_stream(self, stream: tuple[int, str]) -> Iterator[None]:
        self.streams.append(stream)
        yield

    def empty_strided(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: str
    ) -> FakeTensor:
        size = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        store = self.empty((size,), dtype, device)
        steps = tuple(step * store.host.itemsize for step in strides)
        host = np.lib.stride_tricks.as_strided(store.host, shape, steps)
        return FakeTensor(host, dtype, store.device.index)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> FakeTensor:
        if self.fake.free == 0:
            raise self.OutOfMemoryError
        kind = {"torch.bfloat16": "u2"}.get(dtype, dtype.removeprefix("torch."))
        host = self.fake.array(np.zeros(shape, kind)).host
        return FakeTensor(host, dtype, int(device.removeprefix("cuda:")))


@pytest.fixture
def torch(running: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    module = FakeTorch(running)
    monkeypatch.setitem(sys.modules, "torch", module)  # type: ignore[arg-type]
    return module


def test_tensors_come_back_as_tensors_from_their_own_stream(
    running: FakeDriver, torch: FakeTorch
) -> None:
    host = running.array(ramp(6, 2)).host
    found = dml.split(FakeTensor(host, "torch.float32", 1), (2, 4))
    for tensor, piece in zip(found, np.split(host, [2]), strict=True):
        assert isinstance(tensor, FakeTensor)
        assert (tensor.dtype, tensor.device.index) == ("torch.float32", 1)
        np.testing.assert_array_equal(tensor.host, piece)
    assert [each.stream for each in running.launches] == [101]
    assert "adopt" not in running.calls


def test_bfloat16_travels_as_uint16(running: FakeDriver, torch: FakeTorch) -> None:
    host = running.array(np.arange(12, dtype=np.uint16).reshape(6, 2)).host
    x = dml.TensorDesc("UINT16", (6, 2))
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(1, 5)))
    for call in (lambda t: dml.split(t, (1, 5)), op):
        one, two = call(FakeTensor(host, "torch.bfloat16"))
        assert one.dtype == two.dtype == "torch.bfloat16"
        np.testing.assert_array_equal(np.concatenate([one.host, two.host]), host)


def test_a_bound_tensor_takes_the_stream_current_at_dispatch(
    running: FakeDriver, torch: FakeTorch
) -> None:
    source = FakeTensor(running.array(ramp(1, 1, 6, 2)).host, "torch.float32")
    bound = dml.Device("cuda").compile(DESC).bind(source, outputs(running))
    bound.dispatch()
    bound.dispatch(7)
    assert [each.stream for each in running.launches] == [100, 7]


def test_new_tensors_have_the_strides_and_the_stream_asked_for(
    running: FakeDriver, torch: FakeTorch
) -> None:
    array = running.array(ramp(1, 1, 6, 2)).host
    out = dml.TensorDesc("FLOAT32", X.sizes, strides=(0, 0, 1, 8))
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc(X, [out], 2))
    (found,) = op(FakeTensor(array, "torch.float32"), stream=9)
    assert found.host.strides == (0, 0, 4, 32)
    np.testing.assert_array_equal(found.host, array)
    assert torch.streams == [(9, "cuda:0")]
    assert [each.stream for each in running.launches] == [9]


@pytest.mark.parametrize(
    ("flags", "fix"),
    [({"requires_grad": True}, r"tensor\.detach"), ({"conj": True}, r"tensor\.resolve_conj")],
)
def test_a_tensor_that_hides_its_values_is_refused(
    running: FakeDriver, torch: FakeTorch, flags: dict[str, bool], fix: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=fix):
        dml.split(FakeTensor(ramp(6, 2), "torch.float32", **flags), 2)
    assert running.launches == []


def test_torch_out_of_memory_is_ours(running: FakeDriver, torch: FakeTorch) -> None:
    source = FakeTensor(running.array(ramp(6, 2)).host, "torch.float32")
    running.free = 0
    with pytest.raises(dml.OutOfMemoryError, match=r"output of 24 bytes.*: 0 bytes are free"):
        dml.split(source, 2)


# Refusals.


def test_host_arrays_and_devices_do_not_mix(fake: FakeDriver) -> None:
    host, far = ramp(1, 1, 6, 2), fake.array(ramp(1, 1, 6, 2), 1)
    near = fake.array(host)
    on_host = [np.zeros(t.sizes, "f4") for t in DESC.output_tensors]
    for device, source, targets in (
        ("cuda", host, outputs(fake)),
        ("cuda", near, on_host),
        ("cuda", far, outputs(fake)),
        ("cpu", near, on_host),
        ("cpu", host, outputs(fake)),
    ):
        with pytest.raises(dml.InvalidArgumentError, match=r"an array on (cpu|cuda:.)") as error:
            dml.Device(device).compile(DESC).dispatch(source, targets)
        assert error.value.hresult == 0x80070057
        assert error.value.report is not None
        assert set(error.value.report.rule_ids) == {"DML-BIND-KIND"}
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\]: device is cpu; it must be cuda"):
        dml.split(near, (2, 1, 3), 2, out=on_host)
    assert fake.launches == []
    assert not any(array.any() for array in on_host)


def test_read_only_arrays_are_not_written(fake: FakeDriver) -> None:
    out = [Foreign(np.zeros((3, 2), "f4"), read_only=True), fake.array(np.zeros((3, 2), "f4"))]
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\]: read_only is True"):
        dml.split(fake.array(ramp(6, 2)), 2, out=out)
    assert fake.launches == []


def test_overlapping_outputs_are_refused(fake: FakeDriver) -> None:
    store = fake.array(np.zeros((4, 2), "f4"))
    with pytest.raises(dml.InvalidArgumentError, match=r"share memory"):
        dml.split(fake.array(ramp(6, 2)), 2, out=[store[:3], store[1:]])
    columns = [store[:3, :1], store[:3, 1:]]
    dml.split(fake.array(ramp(3, 2)), 2, 1, out=columns)
    assert len(fake.launches) == 1


def test_out_of_memory_says_what_is_needed_and_free(fake: FakeDriver) -> None:
    fake.free = 20
    with pytest.raises(
        dml.OutOfMemoryError, match="8 bytes does not fit in the memory of cuda:0: 4 bytes are free"
    ) as error:
        dml.Device("cuda").compile(DESC)(fake.array(ramp(1, 1, 6, 2)))
    assert error.value.hresult == 0x8007000E
    assert fake.launches == []


def test_free_memory_comes_from_nvml_where_there_is_one(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmlsplit.nvml.memory_free", lambda pci: 123)
    fake.free = 0
    with pytest.raises(dml.OutOfMemoryError, match="123 bytes are free"):
        dml.split(fake.array(ramp(6, 2)), 2)


def test_a_failed_launch_is_passed_on(fake: FakeDriver) -> None:
    bound = dml.Device("cuda").compile(DESC).bind(fake.array(ramp(1, 1, 6, 2)), outputs(fake))
    fake.refuses = dml.DmlError("gone")
    with pytest.raises(dml.DmlError, match="gone"):
        bound.dispatch()


def test_devices_are_found_by_name(fake: FakeDriver) -> None:
    assert [find_backend(name).device for name in (None, "cuda", "cuda:1", "cpu")] == [
        "cuda:0",
        "cuda:0",
        "cuda:1",
        "cpu",
    ]
    with pytest.raises(dml.UnsupportedError, match=r"device is 'cuda:2'; the last .* is cuda:1"):
        dml.Device("cuda:2")


def test_no_driver_means_no_cuda(fake: FakeDriver) -> None:
    fake.devices = 0
    assert dml.Device().name == "cpu"
    with pytest.raises(dml.UnsupportedError, match="CUDA is not available") as error:
        dml.Device("cuda")
    assert error.value.hresult == 0x887A0004


def test_no_cupy_means_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert dml.Device().name == "cpu"
    with pytest.raises(dml.UnsupportedError, match=r"pip install 'dmlsplit\[cuda13\]'.*cuda12"):
        dml.Device("cuda:0")


def test_views_carry_the_device(fake: FakeDriver) -> None:
    seen = arrays.view(fake.array(ramp(6, 2), 1), "array")
    assert (seen.device, seen.shape, seen.strides, seen.type) == ("cuda:1", (6, 2), (8, 4), "<f4")
    assert seen.extent.__array_interface__["data"][0] == seen.address
