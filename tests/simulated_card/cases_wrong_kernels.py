"""The self-test passes no wrong kernel.

once_passed.txt has those that it passed in an earlier version. With CARD_WRONG set, those of
wrong_kernels.txt run instead, of which there are more.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda import specialization
from dmlsplit.backends.find import find_backend
from dmlsplit.errors import DmlError
from dmlsplit.resources import kernel_source
from dmlsplit.self_test import beyond, stages
from dmlsplit.self_test.byte_comparison import CaseResult
from dmlsplit.self_test.case import Case
from dmlsplit.self_test.cases import cases
from dmlsplit.self_test.kernels import planned
from dmlsplit.self_test.memory import GpuMemory
from tests.proofs.mutants import Mutant, mutants
from tests.simulated_card import card

LIST = os.environ.get("CARD_WRONG") or "once_passed.txt"
MEMORY = 12 << 30
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs of little more than a MiB instead of 4 GiB, in as many chunks and tiles."""
    slices = tuple(replace(case, sm_count=1) for case in beyond.SLICES)
    for name, value in {"SLICES": slices, "OUTPUT_BYTES": MIB, "MORE_BYTES": MIB // 4}.items():
        monkeypatch.setattr(beyond, name, value)
    card.set_memory_limit(0, MEMORY)


def uses(kernel: str, case: Case) -> bool:
    """Whether a split runs a kernel; all splits run what is common."""
    launches = planned(case, driver.load().limits(0))
    return kernel == "common" or kernel in {kernel_launch.code.kernel for kernel_launch in launches}


def results(mutant: Mutant, patch: pytest.MonkeyPatch) -> Iterator[CaseResult]:
    """The splits of the self-test that run the changed file, in the part that should notice."""
    kernel, backend, memory = Path(mutant.file).stem, find_backend("cuda:0"), GpuMemory(0)
    if mutant.test == "splits":
        chosen_cases = [case for case in cases(driver.load().limits(0)) if uses(kernel, case)]
        # Those that take few programs and are many come last.
        chosen_cases.sort(key=lambda case: (case.sm_count is None, " loops" not in case.name))
        items = stages._compare_all(chosen_cases, backend, memory, None)
    else:
        large = [case for case in beyond.large_cases() if uses(kernel, case)]
        patch.setattr(beyond, "FAR", [pair for pair in beyond.FAR if uses(kernel, pair[1])])
        patch.setattr(beyond, "large_cases", lambda: large)
        items = beyond.compare_beyond(backend, memory)
    for item in items:
        assert isinstance(item, CaseResult), item
        yield item


# After a fault of the kernel, CuPy cannot free memory until the device is repaired.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "mutant", mutants(Path(__file__).with_name(LIST)), ids=lambda mutant: mutant.new
)
def test_the_self_test_notices_a_wrong_kernel(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Path(mutant.file).name
    text = kernel_source(name)
    assert text.count(mutant.old) == 1
    mutant_text = text.replace(mutant.old, mutant.new)
    monkeypatch.setattr(
        specialization, "_text", lambda file: mutant_text if file == name else kernel_source(file)
    )
    specialization._code.cache_clear()
    try:
        assert any(result.difference for result in results(mutant, monkeypatch))
    except DmlError:
        pass  # the kernel touches memory that is not there: the test ends, and fails
    finally:
        specialization._code.cache_clear()
        card.break_device(0, 0)
