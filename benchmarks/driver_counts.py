"""How often kernels were compiled, loaded and unloaded in this process.

On the simulated card its own functions count. On a GPU two things of CuPy are wrapped: the function
that creates NVRTC's programs, each of which is compiled once, and the module, which loads code and
unloads it when it is freed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Counts:
    """Calls since the process began."""

    compiles: int = 0
    loads: int = 0
    unloads: int = 0


def card_counts(count: Callable[[str], int]) -> Callable[[], Counts]:
    """A reader of the simulated card's counts; `count` takes a function's name."""
    names = ("nvrtcCompileProgram", "cuModuleLoadData", "cuModuleUnload")
    return lambda: Counts(*map(count, names))


def wrapped_counts() -> Callable[[], Counts]:
    """Wrap what CuPy uses, before anything is compiled; return a reader of counts."""
    from cupy.cuda import function, nvrtc

    counts, create = Counts(), nvrtc.createProgram

    def created(source: str, *others: Any) -> Any:
        # CuPy once compiles an empty program, to learn which compiler it has.
        counts.compiles += bool(source)
        return create(source, *others)

    class Module(function.Module):  # type: ignore[misc]
        def load(self, cubin: bytes) -> None:
            super().load(cubin)
            counts.loads += 1

        def __del__(self) -> None:
            counts.unloads += 1

    nvrtc.createProgram, function.Module = created, Module
    return lambda: Counts(counts.compiles, counts.loads, counts.unloads)


def files_in(folder: Path) -> int:
    """The number of files in a folder and all folders below it."""
    return sum(path.is_file() for path in folder.rglob("*"))


def resident_bytes() -> int:
    """The resident memory of this process, as Linux counts it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
