"""The CUDA engine on a card, compared with NumPy bit by bit.

tests/self_test/test_cases.py has splits that reach every kernel at any alignment, with guard bytes
around their outputs; here, any layout has them.

Run ``pytest -m gpu``. The tests whose names end with sanitizer, and the splits of the self-test,
are also for
``compute-sanitizer --tool memcheck python -m pytest -m gpu -k "sanitizer or exact_on_the_gpu"``.
Memory is filled by copies from the host, so that the tests run on the simulated card too, which has
only our kernels.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import dmlsplit as dml
from tests.support.descriptors import DATA_TYPES, Memory, expected_buffers, split_descriptors
from tests.support.gpu_arrays import bound, compiled_split, is_split_into, noise, source_and_outputs

pytestmark = pytest.mark.gpu


def check(array: np.ndarray, sizes: tuple[int, ...], axis: int, on_card: Any = None) -> None:
    """Split an array on the card, where it may have other strides."""
    import cupy

    array_on_card = cupy.asarray(array) if on_card is None else on_card
    expected_pieces = np.split(array, np.cumsum(sizes)[:-1], axis)
    for piece, expected in zip(dml.split(array_on_card, sizes, axis), expected_pieces, strict=True):
        assert piece.get().tobytes() == expected.tobytes()


def test_long_tables_of_outputs_give_exact_pieces_under_the_sanitizer() -> None:
    """Every kernel with a table of outputs gets a long one."""
    import cupy

    check(noise((4097, 5)), (1,) * 4097, 0)
    check(noise((3, 4097)), (1,) * 4097, 1)
    check(noise((64, 6000)), (1, 3) * 1500, 1)
    check(noise((1, 3000 * 8201)), (8200, 8202) * 1500, 1)
    turned = noise((620, 64), "u2").T
    check(turned, (*range(8, 24), *range(8, 24), 124), 1, cupy.asarray(turned.T).T)


@pytest.mark.parametrize("width", [*range(1, 34), 48, 63, 64, 65, 127, 128, 255, 256, 511, 513])
def test_any_row_width_is_split_exactly(width: int) -> None:
    check(noise((301, width * 3 + 1)), (width, width * 2, 1), 1)


@pytest.mark.parametrize("kind", DATA_TYPES)
def test_every_data_type_is_split_exactly(kind: str) -> None:
    import cupy

    width = dml.TensorDesc(kind, (1,)).element_bytes
    x = dml.TensorDesc(kind, (3, 40, 5))
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(7, 32, 1)))
    array = noise((3, 40, 5), f"u{width}").view(str(kind).lower())
    for piece, expected in zip(op(cupy.asarray(array)), np.split(array, [7, 39], 1), strict=True):
        assert piece.get().tobytes() == expected.tobytes()


@given(split_descriptors())
@settings(settings.get_profile("gpu"))
def test_a_split_of_any_layout_writes_the_bytes_of_the_pieces_and_no_others(
    desc: dml.SplitOperatorDesc,
) -> None:
    import cupy

    memory = Memory.of(desc)
    expected_bytes = expected_buffers(desc, memory)
    # Whole buffers are copied, so that the bindings' offsets stay the same.
    source = dml.BufferBinding(cupy.asarray(memory.source), memory.input_binding.offset)
    targets = [cupy.asarray(target) for target in memory.targets]
    bindings = [
        dml.BufferBinding(target, binding.offset, binding.size_in_bytes)
        for target, binding in zip(targets, memory.output_bindings, strict=True)
    ]
    dml.Device("cuda").compile(desc).dispatch(source, bindings)
    for target, expected in zip(targets, expected_bytes, strict=True):
        np.testing.assert_array_equal(target.get(), expected)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_strided_arrays_give_exact_pieces_under_the_sanitizer(order: tuple[int, ...]) -> None:
    import cupy

    array = noise((70, 33, 130), "u2")
    turned = array.transpose(order)
    on_card = cupy.asarray(array).transpose(order)
    sizes = (turned.shape[1] - 5, 5)
    check(turned, sizes, 1, on_card)
    check(turned[:, ::-1], sizes, 1, on_card[:, ::-1])


def test_an_operator_returns_arrays_laid_out_as_described() -> None:
    import cupy

    array = noise((2, 3, 4), "f4")
    x = dml.TensorDesc("FLOAT32", (2, 3, 4))
    outputs = [
        dml.TensorDesc("FLOAT32", (2, 1, 4), strides=(4, 4, 1)),
        dml.TensorDesc("FLOAT32", (2, 2, 4), strides=(1, 2, 4)),
    ]
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc(x, outputs, 1))
    packed_piece, strided_piece = (out.get(order="A") for out in op(cupy.asarray(array)))
    assert strided_piece.strides == (4, 8, 16)
    assert packed_piece.tobytes() == array[:, :1].tobytes()
    assert np.ascontiguousarray(strided_piece).tobytes() == array[:, 1:].tobytes()


def test_a_file_is_split_on_the_gpu(tmp_path: Path) -> None:
    from dmlsplit.storage.npy import split_file

    array = noise((6, 7), "f4")
    np.save(tmp_path / "a.npy", array)
    result = split_file(tmp_path / "a.npy", (3, 4), 1, tmp_path / "out", device="cuda:0")
    assert [np.load(path).tobytes() for path in result.paths] == [
        piece.tobytes() for piece in np.split(array, [3], 1)
    ]


def test_out_may_be_columns_of_one_array() -> None:
    import cupy

    array = noise((6, 5), "u2")
    store = cupy.asarray(np.zeros((6, 12), "u2"))
    widths, gap = (3, 2), 1
    starts = accumulate((width + gap for width in widths[:-1]), initial=0)
    views = [store[:, start : start + width] for start, width in zip(starts, widths, strict=True)]
    dml.split(cupy.asarray(array), widths, 1, out=views)
    columns = store.get()
    np.testing.assert_array_equal(columns[:, :3], array[:, :3])
    np.testing.assert_array_equal(columns[:, 4:6], array[:, 3:])
    assert not columns[:, [3, *range(6, 12)]].any()


def test_over_2_to_the_31_elements_are_split() -> None:
    import cupy

    rows, columns = 1 << 20, 2051  # 2.15e9 elements of 2 bytes: 4.3 GB in, and out.
    free, _ = cupy.cuda.runtime.memGetInfo()
    if free < 14e9:
        pytest.skip(f"needs 14 GB of device memory, {free / 1e9:.1f} GB are free")
    source = cupy.arange(rows * columns, dtype="u4").astype("u2").reshape(rows, columns)
    source ^= cupy.arange(rows, dtype="u4").astype("u2")[:, None]
    for sizes in ((1500, 551), (3, 2048)):
        pieces = dml.split(source, sizes, 1)
        views = cupy.split(source, [sizes[0]], 1)
        for piece, expected in zip(pieces, views, strict=True):
            # Comparing blocks of rows limits the memory that is needed.
            for first in range(0, rows, rows // 8):
                part = slice(first, first + rows // 8)
                assert bool((piece[part] == expected[part]).all())
        del pieces, piece


# Streams, graphs, threads.


def enough(most: int) -> int:
    """An amount of work that keeps a card busy for a while, or less if its memory is small."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return min(most, free >> 20)


def test_a_graph_replays_the_split() -> None:
    import cupy

    source, outs = source_and_outputs()
    split = bound(source, outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        split.dispatch()  # Loads the module, which is not allowed in a capture.
        stream.begin_capture()
        split.dispatch()
        graph = stream.end_capture()
    stream.synchronize()
    source.set((source.get().view("u4") ^ 0x5A5A).view("f4"))
    cupy.cuda.Device().synchronize()
    assert not is_split_into(source, outs)
    graph.launch(stream)
    stream.synchronize()
    assert is_split_into(source, outs)


def test_a_side_stream_orders_the_split_after_its_work() -> None:
    import cupy

    source, outs = source_and_outputs(enough(100_000))
    split = bound(source, outs)
    stream = cupy.cuda.Stream(non_blocking=True)
    for stream_form in ("argument", "handle", "current"):
        fresh = cupy.asarray(noise(source.shape, "u4", seed=len(stream_form)).view("f4"))
        cupy.cuda.Device().synchronize()
        with stream:
            for _ in range(20):
                # Keeps the stream busy, so that a split that starts too early reads zeros.
                source.data.memset_async(0, source.nbytes)
            source.data.copy_from_device_async(fresh.data, source.nbytes)
            if stream_form == "current":
                split.dispatch()
        if stream_form != "current":
            split.dispatch(stream if stream_form == "argument" else stream.ptr)
        stream.synchronize()
        assert is_split_into(source, outs), stream_form


def test_a_new_thread_may_dispatch() -> None:
    import cupy

    source, outs = source_and_outputs()
    split = bound(source, outs)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(split.dispatch, 0).result()
    cupy.cuda.Device().synchronize()
    assert is_split_into(source, outs)


def test_a_dispatch_allocates_nothing() -> None:
    import cupy

    split = bound(*source_and_outputs())
    split.dispatch()
    allocations: list[str] = []

    class Watch(cupy.cuda.MemoryHook):
        name = "watch"

        def malloc_preprocess(self, **_: Any) -> None:
            allocations.append("malloc")

    with Watch():
        split.dispatch()
    assert not allocations


# Other libraries.


def torch_with_cuda() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return torch


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "bool", "complex64", "float8_e4m3fn"])
def test_torch_tensors_come_back_as_torch_tensors(kind: str) -> None:
    torch = torch_with_cuda()
    dtype = getattr(torch, kind)
    raw = torch.randint(0, 2, (64, 30 * dtype.itemsize), dtype=torch.uint8, device="cuda")
    source = raw.view(dtype)
    pieces = dml.split(source, (7, 23), 1)
    for piece, expected in zip(pieces, torch.split(source, [7, 23], 1), strict=True):
        assert piece.dtype == dtype
        assert piece.device == source.device
        assert torch.equal(piece.view(torch.uint8), expected.contiguous().view(torch.uint8))


def test_torchs_current_stream_is_used() -> None:
    torch = torch_with_cuda()
    source = torch.zeros((4096, 30_000), device="cuda")
    fresh = torch.rand_like(source)
    dml.split(source, 2, 1)  # Compiles.
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(20):
            source.zero_()
        source.copy_(fresh)
        left, right = dml.split(source, 2, 1)
    stream.synchronize()
    assert torch.equal(torch.cat([left, right], 1), fresh)


def test_an_operator_allocates_outputs_for_the_given_stream() -> None:
    """Memory that another stream still reads must not be overwritten."""
    import cupy

    count = enough(1 << 14) << 10
    source, freed = (cupy.asarray(noise((count,), "f4", seed=seed)) for seed in (1, 2))
    pending_copy, freed_bytes = cupy.empty_like(freed), freed.get()
    cupy.cuda.Device().synchronize()
    for _ in range(40):
        pending_copy.data.copy_from_device_async(freed.data, freed.nbytes)
    del freed  # Its reads are still queued on the current stream.
    (piece,) = compiled_split((count,), (count,), axis=0)(
        source, stream=cupy.cuda.Stream(non_blocking=True)
    )
    cupy.cuda.Device().synchronize()
    assert piece.get().tobytes() == source.get().tobytes()
    assert pending_copy.get().tobytes() == freed_bytes.tobytes()


def test_an_operator_allocates_torch_outputs_for_the_given_stream() -> None:
    torch = torch_with_cuda()
    count = 1 << 24
    source, freed = (torch.full((count,), value, device="cuda") for value in (6.0, 2.0))
    pending_product = freed * 1
    torch.cuda.synchronize()
    for _ in range(40):
        pending_product += freed
    del freed
    (piece,) = compiled_split((count,), (count,), axis=0)(source, stream=torch.cuda.Stream())
    torch.cuda.synchronize()
    assert float(piece.min()) == float(piece.max()) == 6
    assert float(pending_product.min()) == float(pending_product.max()) == 2 * 41


def test_an_operator_takes_torch_tensors() -> None:
    torch = torch_with_cuda()
    x = dml.TensorDesc("FLOAT16", (4, 96))
    out = dml.TensorDesc("FLOAT16", (4, 96), strides=(1, 4))
    op = dml.Device("cuda").compile(dml.SplitOperatorDesc(x, [out], 1))
    source = torch.rand((4, 96), device="cuda").half()
    (piece,) = op(source)
    assert piece.stride() == (1, 4)
    assert torch.equal(piece, source)


# Refusals.


def test_an_error_for_too_large_an_output_has_the_needed_and_free_bytes() -> None:
    import cupy

    # One byte repeated by stride 0, so the input is small and its pieces are not.
    source = cupy.broadcast_to(cupy.zeros(1, "u1"), (1 << 43,))
    with pytest.raises(dml.OutOfMemoryError, match=r"4398046511104 bytes.*of \d+ bytes are free"):
        dml.split(source, 2)


def test_a_device_without_a_name_is_the_first_gpu() -> None:
    assert dml.Device().name == "cuda:0"
