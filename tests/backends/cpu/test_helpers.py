"""Helper threads of the C engine take their own splits' tasks, no more of them than allowed."""

import ctypes
import platform
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.backends.cpu import native, threads
from tests.support.command import ran
from tests.support.descriptors import packed_split

ROWS, WIDTHS = 512, (1 << 12, 1 << 12)

# copy.c where every step that other threads may see takes long: a helper stays awake for half a
# second, looks for work every 50 us, and sees each store of an owner before the next one; it
# takes all threads half a millisecond to take a task. `helpers` counts those that took a task since
# `split` last changed.
SLOW = """
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdatomic.h>
#include <unistd.h>
int split;
atomic_int helpers;
static void took_a_task(void) {
    static _Thread_local int last = -1;
    if (last != split) atomic_fetch_add(&helpers, 1);
    last = split;
}
#undef atomic_store
#define atomic_store(PLACE, VALUE) \\
    (atomic_store_explicit(PLACE, VALUE, memory_order_seq_cst), (void)usleep(2000))
#undef atomic_fetch_sub
#define atomic_fetch_sub(PLACE, COUNT) \\
    ((const void *)(PLACE) == &pool.helpers_next ? took_a_task() : (void)usleep(500), \\
     atomic_fetch_sub_explicit(PLACE, COUNT, memory_order_seq_cst))
#define _mm_pause() usleep(50)
#include COPY
"""


@pytest.fixture(scope="module")
def slow_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slow engine, compiled."""
    if not shutil.which("gcc") or platform.machine() != "x86_64":
        pytest.skip("gcc for x86-64 is not installed")
    path = tmp_path_factory.mktemp("slow") / "slow.so"
    source = path.with_suffix(".c")
    source.write_text(SLOW)
    options = [*"-O0 -shared -fPIC -pthread".split(), f'-DCOPY="{native.SOURCE}"']
    process = ran("gcc", *options, "-o", str(path), str(source))
    assert process.returncode == 0, process.stderr
    return path


@pytest.fixture
def slow(slow_file: Path, tmp_path: Path) -> native.Library:
    """The slow engine, as a library of its own, whose pool has no helpers yet."""
    return native.load(Path(shutil.copy(slow_file, tmp_path)))


def split(library: native.Library, array: np.ndarray) -> np.ndarray:
    """Both halves of an array's rows."""
    outs = np.zeros((2, ROWS, WIDTHS[0]), np.uint8)
    program = native.program_of(packed_split(array.shape, axis=1, sizes=WIDTHS), library)
    program.copy(array.ctypes.data, [out.ctypes.data for out in outs])
    return outs


def rows(value: int) -> np.ndarray:
    return np.full((ROWS, sum(WIDTHS)), value, np.uint8)


def test_helpers_see_a_split_only_once_all_of_it_is_published(
    slow: native.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(threads.VARIABLE, "2")
    arrays = [rows(value) for value in (1, 2, 3)]
    output_lists = [split(slow, array) for array in arrays]  # a helper may still see the one before
    assert [np.unique(outs).tolist() for outs in output_lists] == [[1], [2], [3]]
    assert ctypes.c_int.in_dll(ctypes.CDLL(slow.path), "helpers").value == 1


def test_no_more_helpers_take_tasks_than_the_number_of_threads_allows(
    slow: native.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ctypes.CDLL(slow.path)
    number, helpers = (ctypes.c_int.in_dll(code, name) for name in ("split", "helpers"))
    took = []
    for number.value, count in enumerate((5, 2, 3)):
        helpers.value = 0
        monkeypatch.setenv(threads.VARIABLE, str(count))
        assert split(slow, rows(1)).all()
        took.append(helpers.value)
    assert 1 < took[0] <= 4
    assert took[1] == 1
    assert took[2] <= 2


TASKS = Path("/proc/self/task")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_helpers_block_all_signals_and_callers_keep_theirs(
    library: native.Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(threads.VARIABLE, "4")
    fresh = native.load(Path(shutil.copy(library.path, tmp_path / "fresh.so")))
    signal_mask, before = signal.pthread_sigmask(signal.SIG_BLOCK, []), set(TASKS.iterdir())
    assert signal.SIGINT not in signal_mask  # nor after the tests before
    assert split(fresh, rows(1)).all()
    helpers = set(TASKS.iterdir()) - before
    assert len(helpers) == 3
    possible = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    for helper in helpers:
        mask = int(helper.joinpath("status").read_text().split("SigBlk:")[1].split()[0], 16)
        assert all(mask >> number - 1 & 1 for number in possible)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == signal_mask
