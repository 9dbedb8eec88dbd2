"""A pytest plugin that runs the session on the simulated card (``-p tests.simulated_card.plugin``).

``CARD_MEMORY`` sets the memory of each device, in bytes. ``CARD_OTHERS_FIRST`` runs the work of
other streams as early as is legal instead of as late. ``CARD_EXACT`` gives every array its own
allocation, so that an access beyond an array is noticed.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.simulated_card import card, rehearsal

MEMORY = int(os.environ.get("CARD_MEMORY", 2 << 30))
OTHERS_FIRST = bool(os.environ.get("CARD_OTHERS_FIRST"))

rehearsal.prepare()
for device in range(2):
    card.set_memory_limit(device, MEMORY)
card.run_others_first(OTHERS_FIRST)
if os.environ.get("CARD_EXACT"):
    import cupy

    cupy.cuda.set_allocator(None)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Use few examples, the same ones every time, unless --slow is given."""
    if not config.getoption("--slow"):
        settings.register_profile("gpu", max_examples=25, derandomize=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that needs a kernel which only a real card can run."""
    from cupy.cuda.compiler import CompileException

    try:
        yield
    except CompileException as error:
        if "kernels of CuPy's own" not in str(error):
            raise
        pytest.skip("it needs a kernel of CuPy's own")


@pytest.fixture(autouse=True)
def _a_whole_card() -> Iterator[None]:
    """Give each test a working card. If a requested failure never happens, the test is wrong."""
    yield
    failures_left = card.failures_left()
    card.forget_failures()
    for device in range(2):
        card.break_device(device, 0)
        card.set_memory_limit(device, MEMORY)
    card.run_others_first(OTHERS_FIRST)
    assert not failures_left, f"{failures_left} failures did not happen"
