"""`dml.split` on a GPU with plans cached by earlier calls: addresses, devices, streams."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import cupy
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from tests.simulated_card import card
from tests.support.gpu_arrays import is_split_into, noise

ROWS, COLUMNS = 8, 12
STORE = noise((4096,))
# Types of the same size and of other sizes; bytes from an aligned address to the array.
KINDS, STARTS = ("f4", "u4", "u2", "u1"), (0, 1, 2, 4, 8, 16)
SIZES = [(4, 8), (12,), (3, 3, 3, 3)]


# The type, the start, the sizes, the axis, the device, and whether it is transposed and on its own
# stream.
Call = tuple[str, int, int, int, int, bool, bool]


@st.composite
def calls(draw: st.DrawFn) -> Call:
    kind = draw(st.sampled_from(KINDS))
    start = draw(
        st.sampled_from(
            [start_byte for start_byte in STARTS if start_byte % np.dtype(kind).itemsize == 0]
        )
    )
    sizes_index, axis = draw(st.integers(0, 2)), draw(st.sampled_from([1, -1]))
    number, is_transposed, on_side = (draw(st.integers(0, 1)) for _ in range(3))
    return kind, start, sizes_index, axis, number, bool(is_transposed), bool(on_side)


def run(call: Call) -> None:
    kind, start, sizes_index, axis, number, is_transposed, on_side = call
    shape = (COLUMNS, ROWS) if is_transposed else (ROWS, COLUMNS)
    end = start + ROWS * COLUMNS * np.dtype(kind).itemsize
    with cupy.cuda.Device(number):
        store = cupy.asarray(STORE)
        source = store[start:end].view(kind).reshape(shape)
        host = STORE[start:end].view(kind).reshape(shape)
        if is_transposed:
            source, host = source.T, host.T
        stream = cupy.cuda.Stream(non_blocking=True) if on_side else cupy.cuda.Stream.null
        cupy.cuda.Device().synchronize()
    # The array's device need not be the current one, but the current stream must be on that device.
    with cupy.cuda.Device(number if on_side else 0), stream:
        pieces = dml.split(source, SIZES[sizes_index], axis)
    stream.synchronize()
    cupy.cuda.Device(number).synchronize()
    expected_pieces = np.split(host, np.cumsum(SIZES[sizes_index])[:-1], 1)
    assert [piece.device.id for piece in pieces] == [number] * len(expected_pieces)
    for piece, expected in zip(pieces, expected_pieces, strict=True):
        assert (piece.dtype, piece.shape) == (expected.dtype, expected.shape)
        assert piece.data.ptr % 512 == 0
        assert piece.get().tobytes() == np.ascontiguousarray(expected).tobytes()


@settings(max_examples=20, derandomize=True)
@given(st.lists(calls(), min_size=1, max_size=10))
def test_random_sequences_of_calls_give_the_pieces_of_numpy(call_sequence: list[Call]) -> None:
    for call in call_sequence:
        run(call)


def test_rows_of_four_elements_at_any_address_are_halved() -> None:
    """Rows that fill whole vectors, and rows that do not, from views that begin at any element."""
    for kind, start, rows in product(("u1", "f2", "f4"), (0, 1, 3), (255, 256, 257)):
        source = cupy.asarray(noise((4 * rows + start,), kind))[start:].reshape(rows, 4)
        assert is_split_into(source, dml.split(source, (2, 2), 1)), (kind, start, rows)


def test_a_repeated_call_is_an_allocation_and_a_launch() -> None:
    source = cupy.asarray(noise((16, 12), "f4"))
    dml.split(source, 3, 1)
    with card.calls() as cuda_calls:
        dml.split(source, 3, 1)
    assert [name for name in cuda_calls if name != "cudaGetDevice"] == ["cuLaunchKernel"]


def test_another_device_is_current_only_during_the_call() -> None:
    with cupy.cuda.Device(1):
        source, large = cupy.asarray(noise((16, 12), "f4")), cupy.zeros((64, 1 << 15), "u1")
        cupy.cuda.Device().synchronize()
    # The current stream is another one on each device.
    with cupy.cuda.Stream(non_blocking=True):
        pieces = dml.split(source, 3, 1)
        with card.calls() as cuda_calls:
            many = dml.split(large, 64)  # each has memory of its own
    assert cuda_calls.count("cudaSetDevice") <= 6  # not for each output
    assert cupy.cuda.runtime.getDevice() == many[63].device.id - 1 == 0
    assert is_split_into(source, pieces)


def test_threads_share_a_prepared_split() -> None:
    """Each call packs its own struct, and each thread has its own stream."""

    def work(number: int) -> None:
        with cupy.cuda.Device(number % 2), cupy.cuda.Stream(non_blocking=True) as stream:
            source = cupy.asarray(noise((16, 12), "f4", seed=number))
            for _ in range(30):
                pieces = dml.split(source, 3, 1)
                stream.synchronize()
                assert is_split_into(source, pieces)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
