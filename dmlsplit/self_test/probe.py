"""What the self-test's own kernel shows: where blocks run, and whether unloaded code is freed."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.launch import KernelLaunch, specialize
from dmlsplit.errors import OutOfMemoryError
from dmlsplit.self_test.environment import Check, CheckState
from dmlsplit.self_test.memory import GpuMemory

# As in cuda/probe.cu: entries for multiprocessors, and bytes of the module.
MAX_MULTIPROCESSORS, TABLE_BYTES = 4096, 2 << 20
CODE, ARGUMENTS = specialize("probe", 1, 1, (), ())
LOADS = 8
BLOCKS_PER_SM = 4


def probe_checks(memory: GpuMemory) -> Iterator[Check]:
    """The checks `SMs` and `unloading`.

    They unload the kernels of all splits, which later ones load again.
    """
    reported = driver.load().limits(memory.number).sm_count
    try:
        multiprocessors, kept = _load_repeatedly(memory, BLOCKS_PER_SM * reported)
    except OutOfMemoryError:
        yield Check(
            "SMs", CheckState.WARN, "there is no room for a kernel that counts them; not tested"
        )
        return
    text = f"blocks ran on {multiprocessors} of the {reported} that CUDA reports"
    if multiprocessors == reported:
        yield Check("SMs", CheckState.OK, text)
    else:
        yield Check("SMs", CheckState.WARN, f"{text} and plans assume: speeds may be lower")
    if kept < LOADS // 2:
        yield Check("unloading", CheckState.OK, "unloaded kernels leave the memory")
    else:
        text = f"{kept} of {LOADS} unloaded kernels stayed in memory; many layouts may fill it"
        yield Check("unloading", CheckState.WARN, text)


def _load_repeatedly(memory: GpuMemory, grid: int) -> tuple[int, int]:
    """The multiprocessors that blocks ran on, and how many unloaded modules stayed in memory."""
    number = memory.number
    kernels: Any = driver.load().kernel_loader(number)
    load = partial(kernels, CODE.source, CODE.kernel)
    launch = KernelLaunch(CODE, ARGUMENTS, (0,), grid, False, grid, 1, "it marks multiprocessors")
    launcher, free = driver.load().launcher(number, load, launch), []
    marks = memory.upload(np.zeros(MAX_MULTIPROCESSORS, np.uint8))
    for _ in range(LOADS):
        launcher.launch_at((marks.address, marks.address), None)
        marked = int(np.count_nonzero(memory.read(marks)))
        free.append(memory.free_bytes())
        kernels.cache_clear()  # the next load unloads what this has dropped
    # The second load unloads the kernels of all splits too.
    return marked, (free[1] - free[-1]) // TABLE_BYTES
