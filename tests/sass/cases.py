"""Run the launches of a case, compiled by NVRTC, in the interpreter."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dmlsplit.backends.cuda.launch import KernelLaunch
from tests.sass import launch as sass
from tests.support.kernel_cases import Case


def every_block(launch: KernelLaunch) -> Sequence[int]:
    return range(launch.grid)


def run_and_check_stores(
    case: Case, builds: Path, blocks: Callable[[KernelLaunch], Sequence[int]] = every_block
) -> None:
    """Run some blocks of each launch, and check the bytes that they store."""
    for launch in case.launches:
        code = sass.compiled(launch.code.source, builds)
        phases = [case.output_phases[output] for output in launch.outputs]
        block_numbers, input_phase = blocks(launch), case.misaligned[0]
        sass.run(case.geometry, launch, code, block_numbers, input_phase, phases, counting=False)
