"""The kit, a stand-in for DirectML that g++ builds, and observations of it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import write_kit
from tests.support.builds import key, made

Observe = Callable[..., Path]
STAND_IN = Path(__file__).parent / "stand_in"
COMPILE = "g++ -std=c++17 -Wall -Wextra -Werror -O1 -shared -fPIC".split()


@pytest.fixture(scope="session")
def library(builds: Path) -> Path:
    """The stand-in for DirectML, compiled."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed: there is no stand-in to probe")
    sources = [path.read_bytes() for path in sorted(STAND_IN.glob("*.?pp"))]

    def compile_(path: Path) -> None:
        subprocess.run([*COMPILE, "-o", str(path), str(STAND_IN / "directml.cpp")], check=True)

    return made(builds / f"{key(*COMPILE, *sources)}.so", compile_)


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the probe and the cases that it asks."""
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
        process = probed(kit, library, output, *arguments, **environment, **more)
        assert (process.returncode, process.stderr) == (0, "")
        return output

    return probe


def probed(
    kit: Path, library: Path, output: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the kit's probe like on Windows: one file, in a folder without this package."""
    line = [sys.executable, "-I", kit / "probe.py", "--directml", library, "-o", output, *arguments]
    return subprocess.run(
        line, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def observed(output: Path) -> dict[str, Any]:
    observation: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return observation


def edited(output: Path, **fields: Any) -> Path:
    """Change fields of the observation in a file."""
    output.write_text(json.dumps(observed(output) | fields))
    return output
