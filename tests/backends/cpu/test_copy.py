"""copy.c under sanitizers and beside pages that fault, and without a warning of any compiler."""

import shutil
import struct
from pathlib import Path

import pytest

from dmlsplit.backends.cpu import assignments, native, plan
from tests.support import builds as kept
from tests.support.command import ran
from tests.support.cpu_splits import MARGIN, random_split

DRIVER = Path(__file__).with_name("driver.c")
WARNINGS = "-std=c11 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -pthread".split()
KINDS = {
    "guard pages": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}


def write_splits(path: Path, library: native.Library, count: int) -> None:
    """A file of random splits, as driver.c reads it."""
    parts = [struct.pack("q", count)]
    for seed in range(count):
        split = random_split(seed)
        kind = min(seed // 3 % 3, library.kind)
        made = plan.plan_of(split.geometry, kind, seed % 3 == 0)
        written = [store[:-MARGIN] for store in split.done_by(assignments.program_of)]
        sizes = [word for pair in zip(split.skews, split.sizes, strict=True) for word in pair]
        head = len(made.words), made.tasks, split.source.size, split.first, len(written), *sizes
        parts += [struct.pack(f"{len(head)}q", *head), made.words.tobytes()]
        parts += [split.source.tobytes(), *written]
    path.write_bytes(b"".join(parts))


def driver(builds: Path, kind: str) -> Path:
    """The driver, compiled in a way; skipped where the compiler lacks it."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    source = f'-DCOPY="{native.SOURCE}"'
    texts = DRIVER.read_bytes(), native.SOURCE.read_bytes()
    options = [*WARNINGS, *KINDS[kind]]

    def make(path: Path) -> None:
        done = ran("gcc", *options, source, "-o", str(path), str(DRIVER))
        if "cannot find" in done.stderr:  # the sanitizer's library
            pytest.skip(f"gcc has no {kind} sanitizer")
        assert done.returncode == 0, done.stderr

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
    fixed = ["setarch", "-R"] if kind == "thread" and shutil.which("setarch") else []
    done = ran(*fixed, program, str(tmp_path / "splits"), *numbers)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_has_no_warning(compiler: str, builds: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    done = ran(compiler, *WARNINGS, "-fsyntax-only", str(native.SOURCE))
    assert (done.returncode, done.stderr) == (0, "")


def test_cppcheck_finds_nothing() -> None:
    if not shutil.which("cppcheck"):
        pytest.skip("cppcheck is not installed")
    enabled = "--enable=warning,performance,portability"
    done = ran("cppcheck", "-q", "--std=c11", "--error-exitcode=1", enabled, str(native.SOURCE))
    assert (done.returncode, done.stderr) == (0, "")
