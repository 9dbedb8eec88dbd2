"""The kit that is copied to Windows, the stand-in library, and observations of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import write_kit
from tests.conformance.stand_in import build as stand_in

Observe = Callable[..., Path]


@pytest.fixture(scope="session")
def library(builds: Path) -> Path:
    why = stand_in.missing()
    if why:
        pytest.skip(why)
    return stand_in.built(builds)


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conformance") / "kit"
    write_kit(folder)
    return folder


@pytest.fixture
def observe(kit: Path, library: Path, tmp_path: Path) -> Observe:
    """Probe the stand-in and return the file: ``observe("rank-5", level=0x2000)``."""

    def probe(*switches: str, level: int = 0x6400, arguments: Any = (), **more: str) -> Path:
        output = tmp_path / "observed.json"
        output.unlink(missing_ok=True)
        environment = {"STAND_IN_SWITCHES": ",".join(switches), "STAND_IN_LEVEL": f"{level:x}"}
        done = stand_in.probed(kit, library, output, *arguments, **environment, **more)
        assert (done.returncode, done.stderr) == (0, "")
        return output

    return probe
