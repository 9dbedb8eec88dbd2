"""Compile CUDA source for any architecture without a GPU, and read the result.

NVRTC, cuobjdump and nvdisasm come as wheels and need no driver: nvidia-cuda-nvrtc,
nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm (all three in the extra ``test``). Cubins, and the
output of the tools for them, are kept in a folder of `builds`.
"""

import ctypes
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from tests.support import builds

# Those of CuPy's RawKernel, without the folders of headers, which no kernel includes
# (simulated_card/cases_kernels.py compares them with CuPy's).
OPTIONS = ("-std=c++17", "-ftz=true", "--device-as-default-execution-space")
INSTRUCTION_BYTES = 16
_listings: dict[bytes, str] = {}
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


class CompileError(Exception):
    """NVRTC refused a source; the message is its log."""


@dataclass(frozen=True)
class Resources:
    """The resources of one thread, or for `shared_bytes` of one block."""

    registers: int
    stack_bytes: int
    shared_bytes: int
    local_bytes: int


def missing() -> str | None:
    """The tool that is not installed, or None."""
    for file, wheel in (
        ("lib/libnvrtc.so.*", "nvidia-cuda-nvrtc"),
        ("bin/cuobjdump", "nvidia-cuda-cuobjdump"),
        ("bin/nvdisasm", "nvidia-cuda-nvdisasm"),
    ):
        if find(file) is None:
            return f"{wheel} is not installed; pip install 'dmlsplit[test]'"
    return None


@cache
def compile_cubin(source: str, arch: str, folder: Path) -> bytes:
    """The cubin of a source for an architecture such as "sm_90".

    Raises
    ------
    CompileError
        With NVRTC's log.
    """
    options = (f"-arch={arch}", *OPTIONS)
    name = builds.key(_fingerprint(_nvrtc()), source, *options) + ".cubin"
    path = builds.made(
        folder / name, lambda path_made: path_made.write_bytes(_compiled(source, options))
    )
    return path.read_bytes()


def _compiled(source: str, options: tuple[str, ...]) -> bytes:
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
    )
    try:
        words = [option.encode() for option in options]
        status = library.nvrtcCompileProgram(
            program, len(words), (ctypes.c_char_p * len(words))(*words)
        )
        if status:
            log = _read(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
            raise CompileError(log.decode(errors="replace"))
        return _read(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def resources(cubin: bytes, folder: Path) -> Resources:
    """The resources of the kernel of a cubin."""
    (usage,) = _USAGE.findall(_said("cuobjdump", cubin, folder, "--dump-resource-usage"))
    return Resources(*map(int, usage))


def disassemble(codes: Iterable[bytes], arch: str, folder: Path) -> list[str]:
    """The lines that nvdisasm prints of each kernel's code, whose addresses may begin anywhere.

    New ones are printed together: nvdisasm starts in the time in which it prints dozens of kernels.
    """
    cubins = list(codes)
    new = [code for code in dict.fromkeys(cubins) if code not in _listings]
    if new:
        listing_text = _said(
            "nvdisasm", b"".join(new), folder, "--binary", arch.replace("sm_", "SM")
        )
        lines = (line for line in listing_text.splitlines() if "/*" in line)
        _listings.update(
            (code, "\n".join(islice(lines, len(code) // INSTRUCTION_BYTES))) for code in new
        )
    return [_listings[code] for code in cubins]


@cache
def find(pattern: str) -> Path | None:
    """A file in the folders of NVIDIA's wheels: nvidia/cu13, nvidia/cuda_nvrtc, ..."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or [] for file in Path(folder).glob(f"*/{pattern}")]
    return next((file for file in files if "alt" not in file.name), None)


def _nvrtc() -> Path:
    path = find("lib/libnvrtc.so.*")
    assert path, missing()
    return path


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(_nvrtc()))


@cache
def _fingerprint(tool: Path) -> str:
    """A text that differs between releases of a tool, made without starting it."""
    return f"{tool.name} {tool.stat().st_size}"


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC: error {status}")


def _read(size_of: ctypes._CFuncPtr, get: ctypes._CFuncPtr, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(get(program, text))
    return text.raw


def _said(tool: str, cubin: bytes, folder: Path, *options: str) -> str:
    """The output of a tool for a cubin."""
    path = find(f"bin/{tool}")
    assert path, missing()
    name = builds.key(_fingerprint(path), *options, cubin) + ".txt"
    return builds.made(
        folder / name, lambda path_made: _run(path, options, cubin, path_made)
    ).read_text()


def _run(tool: Path, options: tuple[str, ...], cubin: bytes, target: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file, target.open("wb") as out:
        file.write(cubin)
        file.flush()
        subprocess.run(
            [tool, *options, file.name],
            stdout=out,
            check=True,
            env=os.environ | {"PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"},
        )
