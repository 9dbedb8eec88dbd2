"""Hatchling's hook that compiles copy.c into the wheel, or beside the source if it is editable.

Without a compiler, or with one that fails, the wheel has no library and suits every system.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from zlib import crc32

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = "-std=c11 -O3 -shared -fPIC -pthread".split()


class LibraryHook(BuildHookInterface[Any]):
    """The hook that `pyproject.toml` names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library, and name the system that it was made for."""
        source = Path(self.root, "dmlsplit", "backends", "cpu", "copy.c")
        for old in source.parent.glob("copy.so.*"):
            old.unlink()
        path = source.with_name(f"copy.so.{crc32(source.read_bytes()):08x}")
        if sys.platform != "win32" and compile_library(path, source):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append(f"dmlsplit/backends/cpu/{path.name}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


def compile_library(path: Path, source: Path) -> bool:
    """Compile a source file; False, with a message, if there is no compiler or it fails."""
    command = [*shlex.split(os.environ.get("CC") or "cc"), *FLAGS]
    architectures = os.environ.get("ARCHFLAGS")  # of macOS
    if architectures is None and sysconfig.get_platform().endswith("universal2"):
        architectures = "-arch arm64 -arch x86_64"
    command += [*shlex.split(architectures or ""), "-o", str(path), str(source)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        path.unlink(missing_ok=True)
        reason = getattr(error, "stderr", error)
        print(f"copy.c was not compiled: {reason}", file=sys.stderr)  # noqa: T201
        return False
    return True
