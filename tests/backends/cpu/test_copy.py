"""copy.c under sanitizers and beside pages that fault, and without a warning of any compiler."""

import ctypes
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.backends.cpu import assignments, native, plan, threads
from tests.support import builds as kept
from tests.support.command import ran
from tests.support.cpu_splits import MARGIN, edge_splits, random_split
from tests.support.descriptors import packed_split

DRIVER = Path(__file__).with_name("driver.c")
WARNINGS = "-std=c11 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -pthread".split()
KINDS = {
    "guard pages": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}


def write_splits(path: Path, library: native.Library, count: int) -> None:
    """A file of random splits, and those of `edge_splits`, as driver.c reads it."""
    splits = [*map(random_split, range(count)), *edge_splits()]
    parts = [struct.pack("q", len(splits))]
    for seed, split in enumerate(splits):
        kind = min(seed // 3 % 3, library.kind)
        copy_plan = plan.plan_of(split.geometry, kind, seed % 3 == 0, is_large=True)
        targets = [store[:-MARGIN] for store in split.done_by(assignments.program_of)]
        sizes = [word for pair in zip(split.skews, split.sizes, strict=True) for word in pair]
        counts = len(copy_plan.words), copy_plan.tasks, split.source.size
        head = *counts, split.first, len(targets), *sizes
        parts += [struct.pack(f"{len(head)}q", *head), copy_plan.words.tobytes()]
        parts += [split.source.tobytes(), *targets]
    path.write_bytes(b"".join(parts))


def driver(builds: Path, kind: str) -> Path:
    """The driver, compiled in a way; skipped where the compiler lacks it."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    source = f'-DCOPY="{native.SOURCE}"'
    texts = DRIVER.read_bytes(), native.SOURCE.read_bytes()
    options = [*WARNINGS, *KINDS[kind]]

    def make(path: Path) -> None:
        process = ran("gcc", *options, source, "-o", str(path), str(DRIVER))
        if "cannot find" in process.stderr:  # the sanitizer's library
            pytest.skip(f"gcc has no {kind} sanitizer")
        assert process.returncode == 0, process.stderr

    return kept.made(builds / f"{kept.key(*texts, source, *options)}-driver", make)


@pytest.mark.parametrize(
    ("kind", "splits", "callers", "rounds", "forks"),
    [
        ("guard pages", 120, 16, 2, 8),
        # A child cannot allocate if another thread held a lock of AddressSanitizer's.
        pytest.param("address", 300, 4, 1, 0, marks=pytest.mark.slow),
        pytest.param("thread", 60, 16, 1, 0, marks=pytest.mark.slow),
    ],
)
def test_copies_stay_in_their_memory_and_never_race(
    kind: str, splits: int, callers: int, rounds: int, forks: int,
    builds: Path, library: native.Library, tmp_path: Path,
) -> None:  # fmt: skip
    write_splits(tmp_path / "splits", library, splits)
    numbers = map(str, (callers, rounds, forks))
    program = str(driver(builds, kind))
    # ThreadSanitizer needs memory where the system would place random addresses.
    address_options = ["setarch", "-R"] if kind == "thread" and shutil.which("setarch") else []
    process = ran(*address_options, program, str(tmp_path / "splits"), *numbers)
    assert (process.stdout, process.stderr, process.returncode) == ("done\n", "", 0)


# As on a busy machine, where a thread that yields gets its processor back after milliseconds.
SLOW_YIELD = """
#define sched_yield slow_yield
#include COPY
#include <unistd.h>
int yields;
int slow_yield(void) { return yields++, usleep(5000); }
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
def test_the_c_engine_rarely_yields_its_processor_if_a_yield_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_YIELD)
    options = [*"-D_DEFAULT_SOURCE -O2 -shared -fPIC -pthread".split(), f'-DCOPY="{native.SOURCE}"']
    process = ran("gcc", *options, "-o", str(path), str(source))
    assert process.returncode == 0, process.stderr
    monkeypatch.setenv(threads.VARIABLE, "2")
    array = np.ones((1 << 10, 1 << 12), np.uint8)
    outs = np.zeros((2, 1 << 10, 1 << 11), np.uint8)
    copy = native.program_of(
        packed_split(array.shape, axis=1, sizes=(1 << 11,) * 2), native.load(path)
    ).bind(array.ctypes.data, [out.ctypes.data for out in outs])
    for _ in range(40):
        time.sleep(2e-3)  # until the helper sleeps
        copy()
    assert outs.all()
    assert 1 <= ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "yields").value < 20


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_copy_c_compiles_without_a_warning(compiler: str, builds: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    process = ran(compiler, *WARNINGS, "-fsyntax-only", str(native.SOURCE))
    assert (process.returncode, process.stderr) == (0, "")


def test_cppcheck_finds_no_fault_in_copy_c() -> None:
    if not shutil.which("cppcheck"):
        pytest.skip("cppcheck is not installed")
    enabled = "--enable=warning,performance,portability"
    process = ran("cppcheck", "-q", "--std=c11", "--error-exitcode=1", enabled, str(native.SOURCE))
    assert (process.returncode, process.stderr) == (0, "")
