"""Run the launches of a case, compiled by NVRTC, in the interpreter."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from dmlsplit.backends.cuda import codegen
from dmlsplit.backends.cuda.launch import KernelLaunch
from tests.sass import launch as sass
from tests.sass.kernels import ARCH
from tests.support import nvrtc
from tests.support.kernel_cases import Case


def every_block(launch: KernelLaunch) -> Sequence[int]:
    """Return the indices of all blocks."""
    return range(launch.grid)


def run(
    case: Case,
    builds: Path,
    blocks: Callable[[KernelLaunch], Sequence[int]] = every_block,
) -> list[sass.Counts]:
    """Run some blocks of each launch, check what they store, and return what they took."""
    return [_run(case, launch, blocks(launch), builds) for launch in case.launches]


def _run(case: Case, launch: KernelLaunch, blocks: Sequence[int], builds: Path) -> sass.Counts:
    phases = [case.output_phases[output] for output in launch.outputs]
    code = _code(codegen.source(launch), builds)
    return sass.run(case.geometry, launch, code, blocks, case.misaligned[0], phases)


@lru_cache(maxsize=64)
def _code(source: str, builds: Path) -> sass.Code:
    cubin = nvrtc.compile_cubin(source, ARCH, builds)
    shared_bytes = nvrtc.resources(cubin, builds).shared_bytes
    return sass.code(nvrtc.disassembly(cubin, builds), cubin, shared_bytes)
