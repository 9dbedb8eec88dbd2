"""Both engines write the bytes of the definition, and nothing else, whatever the memory."""

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import dmlsplit as dml
from dmlsplit.backends import Program
from dmlsplit.backends.cpu import assignments, engine, native, plan, threads
from dmlsplit.geometry import Loop, SplitGeometry, StridedCopy
from tests.support.command import ran
from tests.support.cpu_splits import random_split
from tests.support.descriptors import packed_split

Compile = Callable[[SplitGeometry], Program]


@pytest.fixture(params=["NumPy", pytest.param("C", marks=pytest.mark.compiler)])
def program_of(request: pytest.FixtureRequest) -> Compile:
    """The engine's `program_of`."""
    if request.param == "NumPy":
        return assignments.program_of
    return partial(native.program_of, library=request.getfixturevalue("library"))


@pytest.mark.parametrize("part", range(4))
def test_every_split_has_the_bytes_of_its_definition(
    part: int, program_of: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C also copies with tasks of a few rows, which helpers share."""
    monkeypatch.setenv(threads.VARIABLE, str(part % 2 * 2 + 1))
    monkeypatch.setattr(native, "SHARED_COST", 0)
    monkeypatch.setattr(native, "PART_BYTES", 1 << 12)
    monkeypatch.setattr(native, "_cache_bytes", lambda: part // 2 << 11)
    for name in ("TASK_BYTES", "PIECE_BYTES"):
        monkeypatch.setattr(plan, name, 24 << part)
    monkeypatch.setattr(assignments, "PART_BYTES", 24 << part)
    for seed in range(150 * part, 150 * (part + 1)):
        split = random_split(seed)
        if split.geometry.total_bytes < 5000:  # the definition is slow
            assert split.done_by(program_of) == split.defined(), seed


@pytest.mark.parametrize("kind", range(3))
def test_kernels_for_every_kind_of_processor_copy_the_same_bytes(
    kind: int, library: native.Library
) -> None:
    if kind > library.kind:
        pytest.skip("this processor is of a plainer kind")
    like_this = library._replace(kind=kind)
    equal = [(1,) * count for count in (3, 4, 8, 16)]
    for sizes, element_bytes, rows in product(
        [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), *equal], (1, 2, 4, 8, 16), (1, 2, 63, 300)
    ):
        copy_rows_and_compare(sizes, element_bytes, rows, like_this, has_kernel=True)
    for size, count, rows in product((1, 2, 3, 5, 6, 7, 9, 15, 65), range(2, 17), (1, 8, 71, 300)):
        copy_rows_and_compare((size,) * count, 1, rows, like_this, has_kernel=False)


def copy_and_compare(
    program: Program, shape: tuple[int, int], sizes: tuple[int, ...], skew: int
) -> None:
    """Copy random bytes to outputs that begin `skew` bytes into their memory, and look at each.

    `shape` and `sizes` are in bytes.
    """
    source = np.random.default_rng(skew).integers(0, 256, shape, np.uint8)
    outputs = [np.full(skew + shape[0] * size + 64, 7, np.uint8) for size in sizes]
    program.copy(source.ctypes.data, [out.ctypes.data + skew for out in outputs])
    views = np.split(source, np.cumsum(sizes)[:-1], 1)
    for out, view in zip(outputs, views, strict=True):
        assert out[skew:-64].tobytes() == view.tobytes()
        assert {*out[:skew], *out[-64:]} == {7}


def kernel_of(copy_plan: plan.Plan) -> int:
    """The kernel of the only group: the last of its six words, after four words of the plan."""
    return copy_plan.words[4 + 6 - 1]


def copy_rows_and_compare(
    sizes: tuple[int, ...], element_bytes: int, rows: int, library: native.Library, has_kernel: bool
) -> None:
    """Copy random rows to odd addresses, and look at each byte."""
    geometry = packed_split((rows, sum(sizes)), axis=1, sizes=sizes, element_bytes=element_bytes)
    if has_kernel:
        assert kernel_of(plan.plan_of(geometry, library.kind, False, is_large=True)) >= 0
    program = native.program_of(geometry, library)
    byte_sizes = tuple(element_bytes * size for size in sizes)
    copy_and_compare(program, (rows, sum(byte_sizes)), byte_sizes, skew=1)


@pytest.mark.parametrize("name", ["MAX_OUTS", "MAX_ROW_OUTS"])
def test_copy_c_has_room_for_as_many_outputs_as_a_plan_gives_it(name: str) -> None:
    assert f" {name} = {getattr(plan, name)}, " in native.SOURCE.read_text("utf-8")


@pytest.mark.parametrize(
    ("cached_splits", "run"),
    [
        pytest.param(1 << 20, plan.ROW_RUN, id="all in the cache"),
        pytest.param(4, plan.LARGE_ROW_RUN, id="input in memory"),
        pytest.param(0, plan.LARGE_ROW_RUN, id="non-temporal stores"),
    ],
)
@pytest.mark.parametrize("kind", range(3))
def test_long_runs_are_copied_in_the_order_of_the_input(
    kind: int, cached_splits: int, run: int, library: native.Library,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Outputs begin at every distance from a cache line, and tasks with any row."""
    if kind > library.kind:
        pytest.skip("this processor is of a plainer kind")
    monkeypatch.setattr(plan, "TASK_BYTES", 4 << 10)
    for skew in range(64):
        sizes = run + skew, run, run + 4 * skew + 1
        geometry = packed_split((23, sum(sizes)), axis=1, sizes=sizes)
        cache_bytes = cached_splits * geometry.total_bytes
        monkeypatch.setattr(native, "_cache_bytes", lambda size=cache_bytes: size)
        program = native.program_of(geometry, library._replace(kind=kind))
        assert kernel_of(program.plan) == plan.ROWS
        copy_and_compare(program, (23, sum(sizes)), sizes, skew)


def test_rows_of_an_overlapping_input_may_be_at_different_distances() -> None:
    """A sliding window, whose outputs have their dimensions in different orders."""
    window = as_strided(np.arange(4096), (4, 2, 3, 64), (512, 512, 256, 8))
    outputs = [np.zeros((4, 2, 1, 64), int), np.zeros((2, 2, 4, 64), int).transpose(2, 0, 1, 3)]
    dml.split(window, (1, 2), 2, out=outputs)
    for output, piece in zip(outputs, np.split(window, [1], 2), strict=True):
        np.testing.assert_array_equal(output, piece)


def test_short_runs_of_an_input_in_the_cache_are_copied_output_by_output(
    library: native.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_cache_bytes", lambda: 1 << 40)
    sizes = (plan.ROW_RUN - 1,) * 2
    program = native.program_of(packed_split((23, sum(sizes)), axis=1, sizes=sizes), library)
    assert kernel_of(program.plan) == plan.NO_KERNEL


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_c_writes_the_bytes_that_numpy_writes(
    part: int, library: native.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_of = partial(native.program_of, library=library)
    monkeypatch.setenv(threads.VARIABLE, "2")
    monkeypatch.setattr(native, "SHARED_COST", 1 << 14)
    for seed in range(5000 * part, 5000 * (part + 1)):
        monkeypatch.setattr(native, "_cache_bytes", lambda seed=seed: seed % 2 << 40)
        split = random_split(seed)
        assert split.done_by(program_of) == split.done_by(assignments.program_of), seed


LARGE = {
    "rgb": ((1 << 20, 3), 1, (1, 1, 1), "u1"),
    "1 + 3": ((1 << 18, 4), 1, (1, 3), "f4"),
    "256 equal": ((256, 4096), 1, (16,) * 256, "f4"),
    "uneven": ((999, 1007), 1, (1, 6, 200, 800), "f8"),
    "rows": ((7, 1 << 18), 1, (1 << 17, 1 << 17), "u2"),
    "outermost": ((12, 1 << 17), 0, (4, 4, 1, 3), "f4"),
    "signalling": ((1 << 17, 2), 1, (1, 1), "c16"),
    "a run and a bit": ((3, 170001), 1, (100000, 70001), "u1"),
    "larger than the cache": ((1 << 12, 8190), 1, (4097, 4093), "u1"),
}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE.keys())
def test_large_splits_are_exact_on_any_number_of_threads(
    case: tuple[tuple[int, ...], int, tuple[int, ...], str], count: int, program_of: Compile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv(threads.VARIABLE, str(count))
    shape, axis, sizes, kind = case
    width = np.dtype(kind).itemsize
    # As integers, every pattern of bits compares: signalling NaNs and negative zeros too.
    array = np.random.default_rng(3).integers(0, 256, (*shape, width), np.uint8)
    views = np.split(array, np.cumsum(sizes)[:-1], axis)
    outputs = [np.zeros(view.shape, np.uint8) for view in views]
    copy = program_of(packed_split(shape, axis=axis, sizes=sizes, element_bytes=width)).bind(
        array.ctypes.data, [out.ctypes.data for out in outputs]
    )
    for _ in range(3):
        copy()
        assert all(map(np.array_equal, outputs, views))
        array += 1


def test_sixteen_callers_may_split_at_once(program_of: Compile) -> None:
    array = np.random.default_rng(4).integers(0, 256, (1 << 10, 1 << 11), np.uint8)
    program = program_of(packed_split(array.shape, axis=1, sizes=(1, 47, 2000)))
    views = np.split(array, (1, 48), 1)

    def is_right(_: int) -> bool:
        outputs = [np.zeros(view.shape, np.uint8) for view in views]
        for _ in range(5):
            program.copy(array.ctypes.data, [out.ctypes.data for out in outputs])
        return all(map(np.array_equal, outputs, views))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(is_right, range(64), timeout=100))


def test_the_cpu_refuses_a_stream(program_of: Compile) -> None:
    array, out = np.ones(3, "u1"), np.zeros(3, "u1")
    program = program_of(packed_split((3,), axis=0, sizes=(3,)))
    for call in (
        lambda: program.bind(array.ctypes.data, [out.ctypes.data])(7),
        lambda: program.copy(array.ctypes.data, [out.ctypes.data], 7),
    ):
        with pytest.raises(dml.InvalidArgumentError, match="stream is 7; the CPU has no streams"):
            call()
    assert not out.any()


@pytest.mark.parametrize("count", [1, 64, 300])
def test_a_nest_may_have_any_number_of_loops(count: int, library: native.Library) -> None:
    source, out = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    loops = [Loop(2, step, 8 // (2 * step)) for step in (1, 2, 4)]
    geometry = SplitGeometry(None, (StridedCopy((*loops, *[Loop(1, 5, 9)] * count), 0, 1),))
    native.program_of(geometry, library).copy(source.ctypes.data, [out.ctypes.data])
    assert out.tolist() == [0, 4, 2, 6, 1, 5, 3, 7]


def test_an_interrupt_is_raised_between_parts(
    library: native.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "PART_BYTES", 1 << 20)
    array = np.ones((1 << 12, 1 << 10), np.uint8)
    out = np.zeros_like(array)
    parts: list[bytes] = []

    def interrupted(part: bytes) -> None:
        library.copy(part)
        parts.append(part)
        if len(parts) == 2:
            signal.raise_signal(signal.SIGINT)

    program = native.program_of(packed_split(array.shape, axis=0, sizes=(1 << 12,)), library)
    copy = program._replace(copy_function=interrupted).bind(array.ctypes.data, [out.ctypes.data])
    with pytest.raises(KeyboardInterrupt):
        copy()
    assert len(parts) == 2
    assert out[: 1 << 11].all()
    assert not out[1 << 11 :].any()


# What each program below begins with: a split of 4 MiB, which is worth several threads.
START = """
import os, resource, signal, sys, threading, time, numpy as np
from pathlib import Path
from dmlsplit.backends.cpu import native
from tests.support.descriptors import packed_split
library = native.load(Path(sys.argv[1]))
array = np.arange(1 << 22, dtype="u1").reshape(512, -1)
program = native.program_of(packed_split(array.shape, 1, (1 << 12,) * 2), library)
def is_split():
    outs = np.zeros((2, 512, 1 << 12), "u1")
    program.copy(array.ctypes.data, [out.ctypes.data for out in outs])
    return (outs[0] == array[:, :1 << 12]).all() and (outs[1] == array[:, 1 << 12:]).all()
def is_split_by(threads):
    os.environ["DMLSPLIT_NUM_THREADS"] = str(threads)
    return is_split()
def thread_count():
    return len(os.listdir("/proc/self/task"))
before = thread_count()
"""


def run_alone(program: str, library: native.Library) -> None:
    """Run a program after `START` in a new process, without the threads of other libraries."""
    process = ran(sys.executable, "-W", "ignore", "-c", START + program, library.path)
    assert (process.stdout, process.stderr, process.returncode) == ("", "", 0)


has_fork_and_proc = pytest.mark.skipif(
    sys.platform != "linux", reason="forks, and counts threads in /proc"
)
FORK = """
def fork_and_split():
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        os._exit(not (is_split() and is_split()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@has_fork_and_proc
def test_a_forked_child_starts_helper_threads_of_its_own(library: native.Library) -> None:
    program = """
for _ in range(5):
    assert is_split()
    fork_and_split()
"""
    run_alone(FORK + program, library)


@has_fork_and_proc
def test_a_child_that_is_forked_during_splits_can_split(library: native.Library) -> None:
    program = """
is_over = threading.Event()
def split_until_over():
    while not is_over.is_set():
        assert is_split()
others = [threading.Thread(target=split_until_over) for _ in range(2)]
for other in others:
    other.start()
for _ in range(20):
    fork_and_split()
is_over.set()
for other in others:
    other.join()
"""
    run_alone(FORK + program, library)


@has_fork_and_proc
def test_a_split_by_one_thread_starts_no_helper(library: native.Library) -> None:
    run_alone("assert is_split_by(1) and thread_count() == before", library)


@has_fork_and_proc
def test_a_split_into_few_tasks_starts_fewer_helpers_than_it_has_tasks(
    library: native.Library,
) -> None:
    program = """
assert is_split_by(1024)
assert thread_count() < before + program.plan.tasks < before + 1024
"""
    run_alone(program, library)


@has_fork_and_proc
def test_a_split_is_copied_by_its_caller_while_memory_for_helpers_is_lacking(
    library: native.Library,
) -> None:
    program = """
os.environ["DMLSPLIT_NUM_THREADS"] = "4"
outs = np.zeros((2, 512, 1 << 12), "u1")
size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
limit = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 10), limit[1]))  # no room for a stack
program.copy(array.ctypes.data, [out.ctypes.data for out in outs])
resource.setrlimit(resource.RLIMIT_AS, limit)
assert (outs[1] == array[:, 1 << 12:]).all() and thread_count() == before
assert is_split() and thread_count() == before + 3  # the caller is the fourth
"""
    run_alone(program, library)


@has_fork_and_proc
def test_helpers_stay_for_a_later_split_and_sleep_until_then(library: native.Library) -> None:
    program = """
assert is_split_by(4) and thread_count() == before + 3
assert is_split_by(2) and thread_count() == before + 3
begun = time.process_time()
time.sleep(0.5)
assert time.process_time() - begun < 0.25  # a helper that spins takes 0.5 s
"""
    run_alone(program, library)


@has_fork_and_proc
def test_a_split_wakes_no_more_helpers_than_it_may_use(library: native.Library) -> None:
    program = """
def voluntary_switches():  # of each helper: one each time it begins to wait
    tasks = set(Path("/proc/self/task").iterdir()) - {Path(f"/proc/self/task/{os.getpid()}")}
    texts = {task: (task / "status").read_text() for task in tasks}
    return {task: text.split("\\nvoluntary_")[1].split()[1] for task, text in texts.items()}
assert is_split_by(1024)
time.sleep(0.5)  # until all helpers wait
before_split = voluntary_switches()
assert is_split_by(2)
time.sleep(0.1)  # until they wait again
woken = set(voluntary_switches().items()) - set(before_split.items())
assert len(woken) <= 1, woken
"""
    run_alone(program, library)


@pytest.mark.parametrize("value", ["2", "no"])
def test_a_choice_of_engine_other_than_0_or_1_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.VARIABLE, value)
    with pytest.raises(dml.InvalidArgumentError, match=f"NATIVE is '{value}'; it must be 0 or 1"):
        engine.CpuBackend().compile(packed_split((3,), axis=0, sizes=(1, 2)))


def engine_is_numpy() -> bool:
    geometry = packed_split((3,), axis=0, sizes=(1, 2))
    return isinstance(engine.CpuBackend().compile(geometry), assignments.NumpyProgram)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Another copy.c, of which no library was built."""
    path = tmp_path / "copy.c"
    path.write_text("// another source")
    monkeypatch.delenv(native.VARIABLE, raising=False)
    monkeypatch.setattr(native, "SOURCE", path)
    native._load.cache_clear()
    yield path
    native._load.cache_clear()


def test_the_engine_is_numpy_if_c_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "0")
    assert engine_is_numpy()
    assert native.unavailable_reason() is None


def test_the_engine_is_numpy_if_no_library_was_built(source: Path) -> None:
    assert engine_is_numpy()
    assert "Fix: install a C compiler" in str(native.unavailable_reason())


def test_the_engine_is_numpy_if_the_library_cannot_be_loaded(source: Path) -> None:
    native.library_path(source).write_text("no library")
    assert engine_is_numpy()
    assert "Fix: reinstall dmlsplit" in str(native.unavailable_reason())


def test_every_dispatch_of_a_bound_copy_reuses_the_packed_call(library: native.Library) -> None:
    calls: list[bytes] = []
    program = native.program_of(
        packed_split((6,), axis=0, sizes=(1, 2, 3), element_bytes=4), library
    )
    copy = program._replace(copy_function=calls.append).bind(0, [1, 2, 3])
    copy()
    copy()
    assert calls[0] is calls[1]
    assert len(calls) == 2
