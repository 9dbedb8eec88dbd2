"""Options and settings of the whole suite."""

import pytest
from hypothesis import HealthCheck, settings

from dmlsplit.backends.cuda import driver
from dmlsplit.errors import UnsupportedError

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the long sweeps as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        skip = pytest.mark.skip(reason="a long sweep; run it with --slow")
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(skip)
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if gpu else None
    if reason:
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


def _no_gpu() -> str | None:
    """Return why there is no CUDA device, or None."""
    try:
        driver.load()
    except UnsupportedError as error:
        return str(error)
    return None
