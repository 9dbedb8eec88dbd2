"""The NumPy engine: the same bytes as a loop over bytes, from any memory, on any threads."""

import _thread
import os
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.backends.cpu import engine, threads
from dmlsplit.backends.cpu.engine import NumpyBackend
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import SplitGeometry, StridedCopy, split_geometry

RNG = np.random.default_rng(20)
GUARD = 0xA5


def random_bytes(size: int) -> np.ndarray:
    return RNG.integers(0, 256, size, dtype=np.uint8)


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def expected(piece: StridedCopy, source: np.ndarray, origin: int, target: np.ndarray) -> None:
    """Carry out one box, byte by byte of the definition."""
    for index in product(*map(range, piece.shape)):
        at = origin + piece.input_offset + np.dot(index, piece.input_strides)
        to = int(np.dot(index, piece.output_strides))
        target[to : to + piece.run_bytes] = source[int(at) : int(at) + piece.run_bytes]


def check(geometry: SplitGeometry, origin: int, input_bytes: int, skews: Sequence[int]) -> None:
    """Run a geometry on poisoned outputs with guard bytes and compare all of them."""
    source = random_bytes(input_bytes)
    stores, wanted, starts = [], [], []
    for piece, skew in zip(geometry.pieces, skews, strict=True):
        reach = sum((n - 1) * s for n, s in zip(piece.shape, piece.output_strides, strict=True))
        store = np.full(skew + reach + piece.run_bytes + 8, GUARD, np.uint8)
        want = store.copy()
        if piece.run_bytes:
            expected(piece, source, origin, want[skew:])
        stores.append(store)
        wanted.append(want)
        starts.append(address(store) + skew)
    before = source.copy()
    launch = NumpyBackend().compile(geometry).bind(address(source) + origin, starts)
    launch()
    launch()
    for index, (store, want) in enumerate(zip(stores, wanted, strict=True)):
        np.testing.assert_array_equal(store, want, f"output {index}")
    np.testing.assert_array_equal(source, before)


@st.composite
def problems(draw: st.DrawFn) -> tuple[SplitGeometry, int, int, list[int]]:
    """Any axis, any order and padding of both sides, any start address."""
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

    source = list(strides(shape))
    origin = draw(st.integers(0, 17))
    for dim, count in enumerate(shape):
        if draw(st.integers(0, 5)) == 0:
            source[dim] = 0
        elif draw(st.integers(0, 5)) == 0:
            origin += max(0, count - 1) * source[dim]
            source[dim] = -source[dim]
    reach = sum(max(0, n - 1) * max(0, s) for n, s in zip(shape, source, strict=True))
    targets = [
        None if draw(st.booleans()) else strides([*shape[:axis], size, *shape[axis + 1 :]])
        for size in sizes
    ]
    geometry = split_geometry(shape, axis, sizes, width, source, targets)
    skews = [draw(st.integers(0, 17)) for _ in sizes]
    return geometry, origin, origin + reach + width, skews


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
            patch.setattr(engine, name, value)
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


@pytest.mark.parametrize(
    ("sides", "workers", "bound"),
    [
        # What lies below the input and what lies above it is assigned apart, without a copy of it.
        ([0] * 200 + [1] * 300, 2, 2),
        # So many assignments would cost more than the copy.
        ([0, 1, 1, 0] * 125, 1, 1),
        # A few more assignments cost less, but not where threads wait for each other.
        ([0] * 490 + [1] * 10, 2, 2),
        (([0] * 3 + [1]) * 5 + [0] * 490, 1, 11),
        (([0] * 3 + [1]) * 5 + [0] * 490, 2, 1),
    ],
)
def test_outputs_on_both_sides_of_the_input(sides: list[int], workers: int, bound: int) -> None:
    geometry, source, outputs = around(64, 8, sides)
    want = [source[:, index].tobytes() for index in range(len(sides))]
    program = NumpyBackend().compile(geometry)
    addresses = [address(out) for out in outputs]
    ((boxes,),) = program.groups
    assert len(list(engine._bind(boxes, address(source), addresses, workers))) == bound
    program.bind(address(source), addresses)()
    assert [out.tobytes() for out in outputs] == want


def around(
    rows: int, width: int, sides: Sequence[int]
) -> tuple[SplitGeometry, np.ndarray, list[np.ndarray]]:
    """A split into columns of bytes, with outputs below (0) and above (1) its input in memory."""
    count = len(sides)
    part = rows * count * width
    pool = random_bytes(3 * part)
    source = pool[part : 2 * part].reshape(rows, count, width)
    starts = [2 * part * side + index * rows * width for index, side in enumerate(sides)]
    geometry = split_geometry(
        (rows, count * width), 1, (width,) * count, 1, (count * width, 1), [None] * count
    )
    return geometry, source, [pool[start:][: rows * width] for start in starts]


def test_a_copy_of_the_input_takes_little_memory() -> None:
    rows = 128
    geometry, source, outputs = around(rows, 128, [0, 1] * 256)
    ((boxes,),) = NumpyBackend().compile(geometry).groups
    addresses = [address(out) for out in outputs]
    (bound,) = engine._bind(boxes, address(source), addresses, 2)
    tracemalloc.start()
    for target, index, origin in bound.moves(0, rows, 32):
        target[index] = origin
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.25 * engine.LEAST_TASK_BYTES < source.nbytes / 4
    for index, out in enumerate(outputs):
        assert out.tobytes() == source[:, index].tobytes()


def test_thousands_of_equal_outputs_are_one_assignment() -> None:
    count = 4096
    source = random_bytes(count * 24)
    outputs = [np.empty(24, np.uint8) for _ in range(count)]
    geometry = split_geometry((count * 24,), 0, (24,) * count, 1, (1,), [None] * count)
    program = NumpyBackend().compile(geometry)
    assert [len(boxes.outputs) for group in program.groups for boxes in group] == [count]
    program.bind(address(source), [address(out) for out in outputs])()
    assert b"".join(out.tobytes() for out in outputs) == source.tobytes()


def test_several_threads_may_split_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, "3")
    array = random_bytes(3 << 22).reshape(-1, 3)
    want = [np.ascontiguousarray(array[:, column]).tobytes() for column in range(3)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            pieces = dml.split(array, 3, 1)
            if [piece.tobytes() for piece in pieces] != want:
                wrong.append(number)

    callers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
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
    # So few items are assigned at once that NumPy would keep the interpreter lock.
    launch = bound_halves(np.ones((480, 2 * engine.WIDEST_ITEM), np.uint8))
    assert any(goes_on_during(launch) for _ in range(300))


def bound_halves(source: np.ndarray) -> Callable[[], None]:
    width = source.shape[1] // 2
    geometry = split_geometry(source.shape, 1, (width, width), 1, source.strides, [None] * 2)
    outputs = [np.zeros((len(source), width), np.uint8) for _ in range(2)]
    launch = NumpyBackend().compile(geometry).bind(address(source), [address(o) for o in outputs])
    return lambda kept=(source, outputs): launch()


def goes_on_during(call: Callable[[], object]) -> bool:
    """Whether this thread does something between the beginning and the end of a call."""
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


def test_a_share_that_nobody_began_is_not_waited_for() -> None:
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(30)

    for helper in threads._helpers(os.getpid()):
        helper.put(threads._Share(hold))
    assert held.wait(30)
    try:
        done: list[int] = []
        threads.run([lambda: done.append(1)] * 8, 4)
        assert len(done) == 8
    finally:
        release.set()


def test_an_interrupt_waits_for_the_helpers() -> None:
    begun, ended = threading.Event(), threading.Event()

    def helps() -> None:
        begun.set()
        time.sleep(0.01)
        _thread.interrupt_main()
        time.sleep(0.3)
        ended.set()

    def waits() -> None:
        begun.wait(30)

    def either() -> None:
        waits() if threading.current_thread() is threading.main_thread() else helps()

    with pytest.raises(KeyboardInterrupt):
        threads.run([either, either], 2)
    assert ended.is_set()


def test_helpers_keep_nothing_alive() -> None:
    array = np.zeros(8)
    alive = weakref.ref(array)
    begun = threading.Event()

    def touch(mine: np.ndarray = array) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(30)
        else:
            begun.set()
        mine[0] = 1

    threads.run([touch, touch], 2)
    del array, touch
    deadline = time.monotonic() + 10
    while alive() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert alive() is None


def test_a_failing_task_ends_the_others_and_is_reported() -> None:
    def fail() -> None:
        raise ValueError("broken")

    done: list[int] = []
    tasks = [fail, *[lambda: done.append(1)] * 100]
    with pytest.raises(ValueError, match="broken"):
        threads.run(tasks, 1)
    assert done == []


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "1025", "9" * 5000, "²"])
def test_a_bad_thread_count_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, value)
    with pytest.raises(InvalidArgumentError, match="whole number from 1 to 1024"):
        threads.thread_count()
    untouched = np.zeros((1 << 22, 2), np.uint8)
    with pytest.raises(InvalidArgumentError, match=threads.VARIABLE):
        dml.split(untouched + 1, 2, 1, out=[untouched[:, :1], untouched[:, 1:]])
    assert not untouched.any()


def test_the_thread_count_is_the_machines_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, " 3 ")
    assert threads.thread_count() == 3
    monkeypatch.delenv(threads.VARIABLE)
    assert 1 <= threads.thread_count() <= (os.cpu_count() or 1)
    monkeypatch.setattr(threads, "_processors", lambda: 64)
    monkeypatch.setattr(threads, "_quota", lambda: 6)
    assert threads.thread_count() == 6


@pytest.mark.parametrize(
    ("text", "count"), [("max 100000", None), ("150000 100000", 2), ("1 100000", 1), ("", None)]
)
def test_the_quota_of_the_control_group(text: str, count: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    threads._quota.cache_clear()
    assert threads._quota(tmp_path) == count
    threads._quota.cache_clear()
