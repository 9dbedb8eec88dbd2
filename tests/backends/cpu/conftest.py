"""The library, which is compiled for the tests, whether or not it is installed."""

import shutil
from pathlib import Path

import pytest

from dmlsplit.backends.cpu import build, native
from tests.support import builds as kept


@pytest.fixture(scope="session")
def library(builds: Path) -> native.Library:
    """The functions of copy.c."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    name = kept.key(native.SOURCE.read_bytes(), Path(build.__file__).read_bytes()) + ".so"

    def make(path: Path) -> None:
        assert build.compile_library(path, native.SOURCE)

    return native.load(kept.made(builds / name, make))
