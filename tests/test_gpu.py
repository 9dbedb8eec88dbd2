"""The CUDA engine on a card: `pytest -m gpu`. Needs only CuPy; PyTorch and JAX if installed.

The short list for compute-sanitizer: `compute-sanitizer python -m pytest -m gpu -k sanitize`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import dmlsplit as dml
from descriptors import DATA_TYPES, POISON, Memory, expected_buffers, split_descriptors

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def cupy() -> Iterator[Any]:
    """CuPy on a machine with a device; otherwise the test is skipped, with the reason."""
    from dmlsplit.backends import driver

    try:
        count = driver.device_count()
    except dml.UnsupportedError as error:
        pytest.skip(str(error))
    if not count:
        pytest.skip("there is no CUDA device")
    import cupy

    yield cupy
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def gpu(cupy: Any) -> dml.Device:
    return dml.Device("cuda:0")


def random_bytes(cupy: Any, count: int) -> Any:
    return cupy.random.default_rng(0).integers(0, 256, count, dtype=cupy.uint8)


def descriptor(
    kind: str, sizes: tuple[int, ...], axis: int, cut: tuple[int, ...]
) -> dml.SplitOperatorDesc:
    return dml.SplitOperatorDesc.from_sizes(dml.TensorDesc(kind, sizes), axis=axis, sizes=cut)


def check(desc: dml.SplitOperatorDesc, cupy: Any, shift: int = 32) -> None:
    """Dispatch between guard bytes, on poisoned outputs, and compare every byte."""
    memory = Memory.of(desc)
    memory.offset = shift
    wanted = expected_buffers(desc, memory)
    source = cupy.asarray(memory.source)
    targets = [cupy.asarray(target) for target in memory.targets]
    bindings = [dml.BufferBinding(target, memory.offset) for target in targets]
    dml.Device("cuda:0").compile(desc).dispatch(dml.BufferBinding(source, memory.offset), bindings)
    for found, expected in zip(targets, wanted, strict=True):
        np.testing.assert_array_equal(found.get(), expected)
    np.testing.assert_array_equal(source.get(), memory.source)


def check_rows(
    cupy: Any, widths: tuple[int, ...], rows: int, source_at: int, target_at: int
) -> None:
    """Split rows of bytes at addresses that are off by some bytes, with guards around."""
    pitch = sum(widths)
    store = random_bytes(cupy, rows * pitch + 64)
    source = store[source_at : source_at + rows * pitch].reshape(rows, pitch)
    areas = [cupy.full(rows * width + 64, POISON, cupy.uint8) for width in widths]
    out = [
        area[target_at : target_at + rows * width].reshape(rows, width)
        for area, width in zip(areas, widths, strict=True)
    ]
    dml.split(source, widths, 1, out=out)
    pieces = np.split(source.get(), np.cumsum(widths)[:-1], 1)
    for area, piece in zip(areas, pieces, strict=True):
        host = area.get()
        assert (host[target_at : target_at + piece.size] == piece.reshape(-1)).all()
        assert (host[:target_at] == POISON).all()
        assert (host[target_at + piece.size :] == POISON).all()


# Every kernel's kind of split.
ROWS = {
    "equal wide": ((4096, 4096, 4096), 65),
    "unequal wide": ((1024, 16, 3072), 129),
    "wide, out of phase": ((1023, 2049, 1025), 130),
    "RGB": ((1, 1, 1), 1003),
    "complex": ((4, 4), 1001),
    "heads": ((85, 85, 85), 301),
    "a narrow one beside a wide one": ((3, 4093), 67),
    "a hundred": ((7,) * 100, 33),
    "axis 0": ((100_003, 17, 65_536), 1),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("source_at", "target_at"), [(0, 0), (16, 16), (1, 0), (0, 3), (5, 9)])
def test_rows_of_every_width_at_every_phase(
    cupy: Any, name: str, source_at: int, target_at: int
) -> None:
    widths, rows = ROWS[name]
    check_rows(cupy, widths, rows, source_at, target_at)


@pytest.mark.parametrize("kind", DATA_TYPES)
def test_every_data_type(cupy: Any, kind: str) -> None:
    check(descriptor(kind, (3, 5, 7, 11), 2, (1, 4, 2)), cupy)


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank_and_axis(cupy: Any, rank: int) -> None:
    sizes = (2, 3, 4, 2, 3, 2, 2, 3)[:rank]
    for axis, size in enumerate(sizes):
        check(descriptor("FLOAT32", sizes, axis, (1, size - 1)), cupy)


@given(split_descriptors())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_strides_and_guard_bytes(cupy: Any, desc: dml.SplitOperatorDesc) -> None:
    check(desc, cupy)


def test_transposed_inputs_and_outputs(cupy: Any) -> None:
    array = random_bytes(cupy, 257 * 129 * 4).view(cupy.float32).reshape(257, 129).T
    out = [cupy.empty((257, n), cupy.float32).T for n in (64, 65)]
    dml.split(array, (64, 65), 0, out=out)
    for found, wanted in zip(out, np.split(array.get(), [64]), strict=True):
        assert found.get().tobytes() == wanted.tobytes()


def test_negative_and_zero_strides(cupy: Any) -> None:
    row = cupy.arange(97, dtype=cupy.int64)
    for array in (row[::-1], cupy.broadcast_to(row, (31, 97))[:, ::-3]):
        at = array.ndim - 1
        cut = (5, array.shape[at] - 5)
        for found, wanted in zip(
            dml.split(array, cut, at), np.split(array.get(), [5], at), strict=True
        ):
            np.testing.assert_array_equal(found.get(), wanted)


def test_4097_outputs(cupy: Any) -> None:
    array = random_bytes(cupy, 33 * 4097).reshape(33, 4097)
    found = cupy.concatenate(dml.split(array, 4097, 1), 1)
    assert bool((found == array).all())


def needs(cupy: Any, size: int) -> None:
    free, _ = cupy.cuda.runtime.memGetInfo()
    cached = cupy.get_default_memory_pool().free_bytes()
    if free + cached < size:
        pytest.skip(f"needs {size} bytes of device memory; {free + cached} are free")


@pytest.mark.parametrize(
    ("rows", "widths", "item"),
    [
        (3, ((1 << 31) - 5, 9), "u1"),  # above 4 GiB, wide
        ((1 << 31) + 77, (1, 1), "u1"),  # above 2^31 rows, narrow
        (1 << 21, (1024, 3, 1021), "u1"),  # above 4 GiB in many rows, out of phase
        (1 << 20, (512, 512), "f4"),  # 4 GiB, aligned
    ],
)
def test_more_than_2_to_the_31_elements(
    cupy: Any, rows: int, widths: tuple[int, ...], item: str
) -> None:
    pitch = sum(widths)
    needs(cupy, 3 * rows * pitch * np.dtype(item).itemsize + (8 << 30))
    array = cupy.empty((rows, pitch), item)
    flat = array.reshape(-1).view(cupy.uint8)
    block = 1 << 28
    for start in range(0, flat.size, block):  # a hash of the position
        part = cupy.arange(start, min(start + block, flat.size), dtype=cupy.uint64)
        part *= np.uint64(0x9E3779B97F4A7C15)
        flat[start : start + block] = (part >> np.uint64(56)).astype(cupy.uint8)
    start = 0
    for piece, width in zip(dml.split(array, widths, 1), widths, strict=True):
        # Block by block as well: a comparison of all at once makes another array.
        for row in range(0, rows, 1 << 22):
            wanted = array[row : row + (1 << 22), start : start + width]
            assert bool((piece[row : row + (1 << 22)] == wanted).all())
        start += width
        del piece


# Streams and graphs.


def operator_and_arrays(cupy: Any) -> tuple[dml.CompiledOperator, Any, list[Any]]:
    desc = descriptor("FLOAT32", (1024, 768), 1, (256, 128, 384))
    array = random_bytes(cupy, 1024 * 768 * 4).view(cupy.float32).reshape(1024, 768)
    out = [cupy.zeros(tensor.sizes, cupy.float32) for tensor in desc.output_tensors]
    return dml.Device("cuda:0").compile(desc), array, out


def same_bytes(found: list[Any], array: Any) -> bool:
    return np.concatenate([f.get() for f in found], 1).tobytes() == array.get().tobytes()


@pytest.mark.parametrize("how", ["current", "object", "handle"])
def test_side_streams(cupy: Any, how: str) -> None:
    op, array, out = operator_and_arrays(cupy)
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    bound = op.bind(array, out)
    if how == "current":
        with stream:
            bound.dispatch()
    else:
        bound.dispatch(stream if how == "object" else stream.ptr)
    stream.synchronize()
    assert same_bytes(out, array)


def test_a_captured_graph_replays(cupy: Any) -> None:
    op, array, out = operator_and_arrays(cupy)
    bound = op.bind(array, out)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        bound.dispatch()
        graph = stream.end_capture()
    cupy.cuda.runtime.deviceSynchronize()
    assert not any(piece.any() for piece in out)
    array[...] = cupy.arange(array.size, dtype=cupy.float32).reshape(array.shape)
    cupy.cuda.runtime.deviceSynchronize()
    graph.launch(stream)
    stream.synchronize()
    assert same_bytes(out, array)


def test_a_thread_that_has_used_no_device(cupy: Any) -> None:
    import threading

    op, array, out = operator_and_arrays(cupy)
    bound, failures = op.bind(array, out), []

    def work() -> None:
        try:
            bound.dispatch(0)
        except dml.DmlError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    cupy.cuda.runtime.deviceSynchronize()
    assert failures == []
    assert same_bytes(out, array)


def test_a_dispatch_allocates_nothing(cupy: Any) -> None:
    op, array, out = operator_and_arrays(cupy)
    bound = op.bind(array, out)
    bound.dispatch()
    cupy.cuda.runtime.deviceSynchronize()
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes(), pool.total_bytes(), cupy.cuda.runtime.memGetInfo()
    for _ in range(100):
        bound.dispatch()
    assert (pool.used_bytes(), pool.total_bytes(), cupy.cuda.runtime.memGetInfo()) == before


def test_the_public_launch_gives_the_same(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlsplit.backends import driver

    def public(kernel: Any, grid: int, block: int, pointers: list[int]) -> Any:
        return driver._public_enqueuer(kernel, grid, block, pointers)

    monkeypatch.setattr(driver, "enqueuer", public)
    op, array, out = operator_and_arrays(cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    bound = op.bind(array, out)
    bound.dispatch()
    bound.dispatch(stream)
    cupy.cuda.runtime.deviceSynchronize()
    assert same_bytes(out, array)


# Arrays of other libraries.


@pytest.fixture
def torch(cupy: Any) -> Any:
    library = pytest.importorskip("torch")
    if not library.cuda.is_available():
        pytest.skip("this PyTorch sees no CUDA device")
    return library


TORCH_TYPES = "float32 float16 bfloat16 float8_e4m3fn bool complex64 int64".split()


@pytest.mark.parametrize("kind", TORCH_TYPES)
def test_torch_tensors(torch: Any, kind: str) -> None:
    dtype = getattr(torch, kind)
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 2, (6, 20 * width), dtype=torch.uint8, device="cuda")
    tensor = raw.view(dtype)
    found = dml.split(tensor, (3, 17), 1)
    for piece, wanted in zip(found, torch.split(tensor, (3, 17), 1), strict=True):
        assert (type(piece), piece.dtype, piece.device) == (torch.Tensor, dtype, tensor.device)
        assert torch.equal(piece.view(torch.uint8), wanted.contiguous().view(torch.uint8))
    out = [torch.empty_like(piece) for piece in found]
    returned = dml.split(tensor, (3, 17), 1, out=out)
    assert all(one is two for one, two in zip(returned, out, strict=True))
    assert torch.equal(torch.cat([piece.view(torch.uint8) for piece in out], 1), raw)


def test_torch_side_streams_are_followed(torch: Any) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(1 << 24, device="cuda")
        for _ in range(50):  # long enough that another stream would overtake it
            tensor += 1
        one, two = dml.split(tensor, 2)
        assert float(one.min()) == float(two.min()) == 50
    op = dml.Device("cuda:0").compile(descriptor("FLOAT32", (1 << 24,), 0, (1 << 23, 1 << 23)))
    one.zero_(), two.zero_()
    torch.cuda.synchronize()
    op.dispatch(tensor, [one, two], stream=stream)
    stream.synchronize()
    assert float(one.min()) == float(two.min()) == 50


def test_torch_tensors_that_hide_their_values_are_refused(torch: Any) -> None:
    for tensor, fix in (
        (torch.zeros(4, device="cuda", requires_grad=True), "detach"),
        (torch.zeros(4, device="cuda", dtype=torch.complex64).conj(), "resolve_conj"),
    ):
        with pytest.raises(dml.InvalidArgumentError, match=fix):
            dml.split(tensor, 2)


@pytest.mark.parametrize("kind", ["float32", "int32", "bfloat16"])
def test_jax_arrays(cupy: Any, kind: str) -> None:
    jax = pytest.importorskip("jax")
    try:
        place = jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"this JAX sees no CUDA device: {error}")
    array = jax.device_put(jax.numpy.arange(60).reshape(6, 10).astype(kind), place)
    found = dml.split(array, (3, 7), 1)
    for piece, wanted in zip(found, jax.numpy.split(array, [3], 1), strict=True):
        assert isinstance(piece, jax.Array)
        assert piece.dtype == array.dtype
        assert bool((piece == wanted).all())
    with pytest.raises(dml.InvalidArgumentError, match="read_only is True"):
        dml.split(array, (3, 7), 1, out=found)


def test_cuda_array_interface(cupy: Any) -> None:
    class Foreign:
        """An array that knows only this protocol."""

        def __init__(self, array: Any) -> None:
            self.array = array

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            interface: dict[str, Any] = self.array.__cuda_array_interface__
            return interface

    array = cupy.arange(12).reshape(6, 2)
    one, two = dml.split(Foreign(array), (2, 4))
    assert bool((one == array[:2]).all())
    assert bool((two == array[2:]).all())


# Refusals.


def test_a_call_allocates_on_the_device(gpu: dml.Device, cupy: Any) -> None:
    out = dml.TensorDesc("FLOAT32", (1, 1, 6, 2), strides=(0, 0, 1, 8))
    op = gpu.compile(dml.SplitOperatorDesc(dml.TensorDesc("FLOAT32", (1, 1, 6, 2)), [out], 2))
    array = cupy.arange(12, dtype=cupy.float32).reshape(1, 1, 6, 2)
    (found,) = op(array)
    assert isinstance(found, cupy.ndarray)
    assert found.strides == (0, 0, 4, 32)
    assert bool((found == array).all())


def test_host_arrays_are_refused(gpu: dml.Device) -> None:
    op = gpu.compile(descriptor("FLOAT32", (4, 4), 0, (2, 2)))
    with pytest.raises(dml.InvalidArgumentError, match="an array on cpu"):
        op(np.zeros((4, 4), np.float32))


def test_a_device_number_too_high_is_refused() -> None:
    with pytest.raises(dml.UnsupportedError, match="the last CUDA device is cuda:"):
        dml.Device("cuda:999")


def test_out_of_memory_says_what_is_needed_and_free(cupy: Any) -> None:
    row = cupy.zeros(1, cupy.uint8)
    huge = cupy.broadcast_to(row, (1 << 45,))
    with pytest.raises(dml.OutOfMemoryError, match=r"17592186044416 bytes .* bytes are free"):
        dml.split(huge, 2)


def test_a_destroyed_stream_or_a_bad_one_is_refused(gpu: dml.Device, cupy: Any) -> None:
    op, array, out = operator_and_arrays(cupy)
    with pytest.raises(dml.InvalidArgumentError, match="stream is a str"):
        op.bind(array, out).dispatch("main")


def test_latency_is_under_its_bar(cupy: Any) -> None:
    """A generous one: the figure itself comes from benchmarks/latency.py."""
    from benchmarks.latency import BAR_US, measure

    assert measure(2000)[0].minimum_us < 3 * BAR_US


# For compute-sanitizer: one small case of every kernel.


@pytest.mark.parametrize("name", ROWS)
def test_sanitize_rows(cupy: Any, name: str) -> None:
    widths, rows = ROWS[name]
    for source_at, target_at in ((0, 0), (5, 9)):
        check_rows(cupy, widths, min(rows, 40), source_at, target_at)


def test_sanitize_strides(cupy: Any) -> None:
    out = dml.TensorDesc("FLOAT16", (3, 4, 5), strides=(1, 3, 12))
    rest = dml.TensorDesc("FLOAT16", (3, 6, 5))
    source = dml.TensorDesc("FLOAT16", (3, 10, 5), strides=(1, 3, 31))
    check(dml.SplitOperatorDesc(source, [out, rest], 1), cupy)
    source = dml.TensorDesc("UINT8", (3, 10, 5), strides=(0, 5, 1))
    pieces = [dml.TensorDesc("UINT8", (3, n, 5)) for n in (3, 7)]
    check(dml.SplitOperatorDesc(source, pieces, 1), cupy)


def test_sanitize_transposes(cupy: Any) -> None:
    array = random_bytes(cupy, 70 * 90).reshape(70, 90).T
    for found, wanted in zip(dml.split(array, (40, 50)), np.split(array.get(), [40]), strict=True):
        np.testing.assert_array_equal(found.get(), wanted)
