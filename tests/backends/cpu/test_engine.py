"""The CPU engine moves the same bytes as a loop over bytes, for any memory and any threads."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.backends.cpu import engine, moves, threads, tuning
from dmlsplit.backends.cpu.engine import NumpyBackend
from dmlsplit.geometry import SplitGeometry, split_geometry
from tests.support.cpu_rows import GUARD, split_at_once
from tests.support.descriptors import carry_out

RNG = np.random.default_rng(20)


def random_bytes(size: int) -> np.ndarray:
    return RNG.integers(0, 256, size, dtype=np.uint8)


def check(geometry: SplitGeometry, first: int, input_bytes: int, skews: Sequence[int]) -> None:
    """Run a geometry twice on poisoned outputs with guard bytes, and compare all of them."""
    source = random_bytes(input_bytes)
    stores, wanted, starts = [], [], []
    for piece, skew in zip(geometry.pieces, skews, strict=True):
        reach = sum((loop.size - 1) * loop.output_stride for loop in piece.loops)
        store = np.full(skew + reach + piece.run_bytes + 8, GUARD, np.uint8)
        want = store.copy()
        if piece.run_bytes:
            carry_out(piece, source, first, want[skew:])
        stores.append(store)
        wanted.append(want)
        starts.append(store.ctypes.data + skew)
    before = source.copy()
    copy = NumpyBackend().compile(geometry).bind(source.ctypes.data + first, starts)
    copy()
    copy()
    for index, (store, want) in enumerate(zip(stores, wanted, strict=True)):
        np.testing.assert_array_equal(store, want, f"output {index}")
    np.testing.assert_array_equal(source, before)


@st.composite
def problems(draw: st.DrawFn) -> tuple[SplitGeometry, int, int, list[int]]:
    """Splits with any axis, any order and padding of input and outputs, and any start address.

    Each is a geometry, the offset of the first element in the input's memory, the size of that
    memory, and the offset of each output in its own memory.
    """
    width = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    if draw(st.booleans()):
        sizes = [draw(st.integers(1, 2))] * draw(st.integers(1, 6))
    else:
        sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    shape[axis] = sum(sizes)

    def strides(counts: list[int]) -> tuple[int, ...]:
        steps, step = [0] * len(counts), width
        for dim in draw(st.permutations(range(len(counts)))):
            steps[dim] = step
            step *= max(1, counts[dim]) + draw(st.integers(0, 1))
        return tuple(steps)

    input_strides = list(strides(shape))
    first = draw(st.integers(0, 17))
    for dim, count in enumerate(shape):
        if draw(st.integers(0, 5)) == 0:
            input_strides[dim] = 0
        elif draw(st.integers(0, 5)) == 0:
            first += max(0, count - 1) * input_strides[dim]
            input_strides[dim] = -input_strides[dim]
    reach = sum(max(0, n - 1) * max(0, s) for n, s in zip(shape, input_strides, strict=True))
    output_strides = [
        None if draw(st.booleans()) else strides([*shape[:axis], size, *shape[axis + 1 :]])
        for size in sizes
    ]
    geometry = split_geometry(shape, axis, sizes, width, input_strides, output_strides)
    skews = [draw(st.integers(0, 17)) for _ in sizes]
    return geometry, first, first + reach + width, skews


@given(problems())
def test_every_split_has_the_bytes_of_its_definition(
    problem: tuple[SplitGeometry, int, int, list[int]],
) -> None:
    check(*problem)


@given(problem=problems(), count=st.integers(1, 4))
@settings(max_examples=60)
def test_tasks_and_threads_change_nothing(
    problem: tuple[SplitGeometry, int, int, list[int]], count: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(threads.VARIABLE, str(count))
        for name, value in (
            ("PARALLEL_BYTES", 0),
            ("TASK_BYTES", 48),
            ("LEAST_TASK_BYTES", 16),
            ("BLOCK_BYTES", 24),
            ("BLOCK_ROWS", 2),
            ("WIDEST_ITEM", 6),
            ("UNLOCKED_BYTES", 12),
            ("FEW_OUTPUTS", 3),
        ):
            patch.setattr(tuning, name, value)
        check(*problem)


BULK = {
    "rgb": ((1 << 22, 3), 1, (1, 1, 1), "u1"),
    "1 + 3": ((1 << 18, 4), 1, (1, 3), "f4"),
    "256 equal": ((256, 4096), 1, (16,) * 256, "f4"),
    "uneven": ((999, 1007), 1, (1, 6, 200, 800), "f8"),
    "rows": ((7, 1 << 18), 1, (1 << 17, 1 << 17), "u2"),
    "outermost": ((12, 1 << 17), 0, (4, 4, 1, 3), "f4"),
    "complex": ((1 << 17, 2), 1, (1, 1), "c16"),
}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("case", BULK.values(), ids=BULK.keys())
def test_large_splits_are_exact_on_any_number_of_threads(
    case: tuple[tuple[int, ...], int, tuple[int, ...], str],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(threads.VARIABLE, str(count))
    shape, axis, sizes, dtype = case
    array = random_bytes(np.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    pieces = dml.split(array, sizes, axis)
    for piece, view in zip(pieces, np.split(array, np.cumsum(sizes)[:-1], axis), strict=True):
        assert piece.tobytes() == view.tobytes()


def test_signalling_nans_and_negative_zeros_keep_every_bit() -> None:
    patterns = np.array([0x7FA00001, 0xFFC12345, 0x80000000, 0x00000001] * 64, np.uint32)
    for dtype in ("f4", "f8", "c8", "c16"):
        array = patterns.view(dtype).reshape(-1, 2)
        for piece, view in zip(
            dml.split(array, (1, 1), 1), np.split(array, 2, axis=1), strict=True
        ):
            assert piece.tobytes() == view.tobytes()


def test_thousands_of_equal_outputs_are_one_assignment() -> None:
    count = 4096
    source = random_bytes(count * 24)
    outputs = [np.empty(24, np.uint8) for _ in range(count)]
    geometry = split_geometry((count * 24,), 0, (24,) * count, 1, (1,), [None] * count)
    program = NumpyBackend().compile(geometry)
    assert [len(nests.outputs) for batch in program.batches for nests in batch] == [count]
    program.bind(source.ctypes.data, [out.ctypes.data for out in outputs])()
    assert b"".join(out.tobytes() for out in outputs) == source.tobytes()


@pytest.mark.parametrize(("size", "kind"), [(2048, memoryview), (2049, np.ndarray)])
def test_short_runs_are_copied_without_numpy(size: int, kind: type) -> None:
    (nests,) = moves.equal_nests(split_geometry((size,), 0, (size,), 1, (1,), [None]).pieces)
    source, output = np.arange(size, dtype=np.uint8), np.zeros(size, np.uint8)
    move = moves.single(nests, 0, nests.shape[0])(source.ctypes.data, output.ctypes.data)
    assert type(move[0]) is type(move[2]) is kind
    moves.run(lambda: iter([move]))
    assert np.array_equal(source, output)


def test_several_threads_may_split_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, "3")
    split_at_once(random_bytes(3 << 22).reshape(-1, 3), (1, 1, 1), calls=20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # by JAX, if imported
def test_a_forked_child_can_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, "2")
    array = random_bytes(2 << 22).reshape(-1, 2)
    dml.split(array, 2, 1)
    child = os.fork()
    if child == 0:
        good = False
        try:
            left, _ = dml.split(array, 2, 1)
            good = left.tobytes() == array[:, :1].tobytes()
        finally:
            os._exit(0 if good else 1)
    deadline = time.monotonic() + 30
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(done[1]) == 0


def test_other_threads_go_on_during_a_long_assignment() -> None:
    # So few items at once that NumPy would keep the interpreter lock.
    copy = bound_halves(np.ones((480, 2 * tuning.WIDEST_ITEM), np.uint8))
    assert any(goes_on_during(copy) for _ in range(300))


def bound_halves(source: np.ndarray) -> Callable[[], None]:
    width = source.shape[1] // 2
    geometry = split_geometry(source.shape, 1, (width, width), 1, source.strides, [None] * 2)
    outputs = [np.zeros((len(source), width), np.uint8) for _ in range(2)]
    copy = (
        NumpyBackend().compile(geometry).bind(source.ctypes.data, [o.ctypes.data for o in outputs])
    )
    return lambda kept=(source, outputs): copy()


def goes_on_during(call: Callable[[], object]) -> bool:
    """Whether this thread can run between the beginning and the end of a call."""
    span: list[float] = []
    moments: list[float] = []

    def work() -> None:
        span.append(time.perf_counter())
        call()
        span.append(time.perf_counter())

    other = threading.Thread(target=work)
    other.start()
    while other.is_alive():
        moments.append(time.perf_counter())
        time.sleep(0)
    other.join()
    return any(span[0] < moment < span[1] for moment in moments)


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 99)), min_size=1
    ),
    workers=st.integers(1, 5),
)
def test_tasks_copy_each_row_once_and_the_caller_begins_with_its_share(
    sizes: list[tuple[int, int, int]], workers: int
) -> None:
    batches = [(number, *size) for number, size in enumerate(sizes)]
    tasks = list(engine._tasks(batches, workers))
    done = dict.fromkeys(range(len(sizes)), 0)
    for number, start, stop, _ in chain(*tasks):
        assert done[number] == start < stop
        done[number] = stop
    assert list(done.values()) == [rows for rows, _, _ in sizes]
    lengths = [sum((end - at) * sizes[n][1] for n, at, end, _ in task) for task in tasks]
    total, largest = sum(lengths), max(row * block for _, row, block in sizes)
    assert lengths[0] >= min(total, total // workers - tuning.LEAST_TASK_BYTES // 4)
    assert max(lengths) <= total // workers + tuning.LEAST_TASK_BYTES + largest


@pytest.mark.parametrize(("kib", "is_shared"), [(15, False), (16, True)])
def test_long_runs_are_shared_from_one_mebibyte(kib: int, is_shared: bool) -> None:
    geometry = split_geometry((64, kib << 10), 1, (kib << 9,) * 2, 1, (kib << 10, 1), [None] * 2)
    assert NumpyBackend().compile(geometry)._is_worth_sharing == is_shared
