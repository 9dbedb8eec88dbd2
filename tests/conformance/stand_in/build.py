"""A stand-in for DirectML, built with g++, and observations of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import builds as kept

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("*.?pp"))
FLAGS = "-std=c++17 -Wall -Wextra -Werror -O1 -shared -fPIC".split()


def missing() -> str | None:
    """The reason why no stand-in can be built here, or None."""
    return None if shutil.which("g++") else "g++ is not installed: there is no stand-in to probe"


def built(folder: Path, *flags: str) -> Path:
    """The library."""
    name = kept.key(*FLAGS, *flags, *(path.read_bytes() for path in SOURCES))

    def compile_(path: Path) -> None:
        line = ["g++", *FLAGS, *flags, "-o", str(path), str(HERE / "directml.cpp")]
        subprocess.run(line, check=True)

    return kept.made(folder / f"{name}.so", compile_)


def probed(
    kit: Path, library: Path, output: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the kit's probe like on Windows: one file, in a folder without this package."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, "-I", str(kit / "probe.py"), "--directml", str(library)]
    return subprocess.run(
        [*line, "-o", str(output), *arguments],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def observed(output: Path) -> dict[str, Any]:
    """The observation of a file."""
    found: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return found


def edited(output: Path, **fields: Any) -> Path:
    """Change fields of the observation in a file."""
    output.write_text(json.dumps(observed(output) | fields))
    return output
