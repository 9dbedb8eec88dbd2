"""Torch's compiler that needs g++."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend's name; it compiles into an empty folder."""
    if not sys.platform.startswith("linux") or not shutil.which("g++"):
        pytest.skip("inductor needs g++")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    from torch._inductor import config

    # Otherwise it tries ten sets of vector instructions, each with g++.
    with config.patch("cpp.vec_isa_ok", False):
        yield "inductor"
