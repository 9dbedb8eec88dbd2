"""Mistakes put into kernels, planner and CPU engine, each with a test that must notice it.

    python -m tests.proofs.mutants [NUMBER...]     runs the test of each mutant, on a copy

mutants.txt lists them. mutmut, which .ci/mutants runs, changes Python only, and only the pure core.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".txt")
COPIED = ("benchmarks", "cuda", "dmlsplit", "tests", "feature_levels.yaml", "pyproject.toml")
NOT_RUN = (2, 3, 4, 5)  # exit statuses of pytest; a mutant may also crash


class Mutant(NamedTuple):
    """One change of a file, and the test that notices it."""

    file: str
    test: str
    old: str
    new: str


def mutants(path: Path = LIST) -> list[Mutant]:
    """The mutants of a list, in order."""
    blocks = path.read_text("utf-8").split("\n\n")[1:]
    mutant_list = []
    for head, *lines in map(str.splitlines, blocks):
        file, test = head.split("  ")
        changes = zip(lines[::2], lines[1::2], strict=True)
        mutant_list += [Mutant(file, test, old[2:], new[2:]) for old, new in changes]
    return mutant_list


def is_noticed(mutant: Mutant, folder: Path) -> bool:
    """Whether its test fails on a copy with the mutant; builds of the same sources are shared."""
    copy = folder / "copy"
    copy.mkdir()
    for path in (ROOT / name for name in COPIED):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy / path.name)
    path = copy / mutant.file
    path.write_text(path.read_text("utf-8").replace(mutant.old, mutant.new), "utf-8")
    line = ["-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=no"]
    line += [f"--builds={folder / 'builds'}", mutant.test]
    process = subprocess.run(
        [sys.executable, *line], cwd=copy, capture_output=True, text=True, check=False
    )
    shutil.rmtree(copy)
    if process.returncode in NOT_RUN:
        raise RuntimeError(f"{mutant.test} did not run:\n{process.stdout[-4000:]}{process.stderr}")
    return process.returncode != 0


def main() -> int:
    """Run the mutants of these numbers, or all; the exit status is the number of survivors."""
    mutant_list = mutants()
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "builds").mkdir()
        for number in map(int, sys.argv[1:] or range(len(mutant_list))):
            mutant = mutant_list[number]
            noticed = is_noticed(mutant, Path(folder))
            survivors += not noticed
            word = "noticed by" if noticed else "SURVIVED"
            change = f"{mutant.file}: {mutant.old} -> {mutant.new}"
            sys.stdout.write(f"{number:3} {change}\n    {word} {mutant.test}\n")
            sys.stdout.flush()
    return survivors


if __name__ == "__main__":
    sys.exit(main())
