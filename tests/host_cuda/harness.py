"""Build generated CUDA sources with g++ and run them on the CPU, one launch at a time.

`build` turns sources into programs. `Program.run` gives one launch its memory, and returns the
memory afterwards with the counts of device.cpp. Several sources are compiled at a time, because a
small compilation spends most of its time starting. A folder of `builds` keeps the programs.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np

from tests.support import builds

HERE = Path(__file__).parent
SOURCES_PER_PROGRAM = 12
# The processes of pytest-xdist share the cores already.
COMPILERS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
TIME_LIMIT_S = 120
SANITIZER = "detect_leaks=0:detect_stack_use_after_return=0"
_ENTRY = re.compile(r"__launch_bounds__\([^)]*\)\s*(\w+)\s*\(")

# C++'s unsigned types of 32 and 64 bits, and constants.
_UNSIGNED = (
    (re.compile(r"\bunsigned(?! (?:char|short|int|long))"), "host_cuda::Checked<unsigned int>"),
    (re.compile(r"\bunsigned long long\b"), "host_cuda::Checked<unsigned long long>"),
    (re.compile(r"\b(\d+)u\b"), r"host_cuda::Checked<unsigned int>(\1)"),
)

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Toolchain:
    """Options of g++ for the runner, for kernels, and for both together."""

    runner: tuple[str, ...]
    kernels: tuple[str, ...]
    link: tuple[str, ...] = ()


# Without optimization g++ compiles kernels three times as fast, and it removes no access. Cases are
# small, so the programs run as fast. Checks that are calls are compiled faster than those in place.
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_CALLS = ("--param", "asan-instrumentation-with-call-threshold=0")
SANITIZED = Toolchain(("-O1", *_SANITIZERS), ("-O0", *_SANITIZERS, *_CALLS))
# The runner checks accesses of global memory itself. This compiles in a third of the time.
PLAIN = Toolchain(("-O1",), ("-O0", "-fno-exceptions"))
# No number of a kernel wraps: UBSan checks signed numbers, checked.hpp unsigned ones.
_NUMBERS = ("-fsanitize=signed-integer-overflow,shift", "-fno-sanitize-recover=all")
CHECKED = Toolchain(("-O1", *_NUMBERS), ("-O0", "-fno-exceptions", *_NUMBERS))
# The hooks of the thread sanitizer report each access to shared memory, to count it and to refuse
# hazards; the runner defines them instead of the sanitizer's own library. g++ skips the hook of an
# access only if the same thread makes an equivalent one between the same barriers, or if the access
# has no effect. Without SRA, vectors stay in one piece.
COUNTING = Toolchain(
    ("-O2",),
    ("-O1", "-fno-tree-sra", "-fsanitize=thread"),
    ("-nodefaultlibs", "-lstdc++", "-lgcc_s", "-lc", "-lgcc"),
)


class KernelFaultError(Exception):
    """A launch did something that a GPU, AddressSanitizer or UBSan forbids, or has a hazard."""


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel's pointer points to.

    Attributes
    ----------
    size : int
        Bytes that may be touched.
    origin : int
        Where among them the pointer points; not 0 if strides are negative.
    misalignment : int
        The pointer's address modulo 4096.
    patches : tuple of (int, bytes)
        Offsets and bytes to write there before the launch; all other bytes are 0.
    windows : tuple of (int, int)
        Offset and length of each part to bring back.
    """

    size: int
    origin: int = 0
    misalignment: int = 0
    patches: tuple[tuple[int, Bytes], ...] = ()
    windows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Counts:
    """Sums over the blocks that ran; sectors are of 32 bytes, lines of 128.

    `store_request_targets` counts the targets that each warp-wide instruction stores to,
    ``*_block_sectors`` and ``*_block_lines`` those distinct within each block. With the toolchain
    `COUNTING` alone, warp-wide instructions on shared memory are counted, and the wavefronts that
    its banks need for them.
    """

    load_instructions: int
    store_instructions: int
    load_bytes: int
    store_bytes: int
    store_bytes_16: int
    store_requests: int
    store_request_targets: int
    load_block_sectors: int
    store_block_sectors: int
    load_block_lines: int
    store_block_lines: int
    shared_requests: int
    shared_wavefronts: int


@dataclass(frozen=True)
class Outcome:
    """The windows of every buffer, in order, and the counts."""

    windows: tuple[tuple[Bytes, ...], ...]
    counts: Counts


@dataclass(frozen=True)
class Program:
    """One kernel inside a compiled program."""

    path: Path
    index: int

    def run(
        self,
        grid: int,
        block: int,
        buffers: Sequence[Buffer],
        blocks: Iterable[int] | None = None,
        counting: bool = False,
        arguments: bytes = b"",
    ) -> Outcome:
        """Run `blocks` (by default all) of a launch over the source and target `buffers`.

        `arguments` are the bytes of the kernel's parameters after the pointers.

        Raises
        ------
        KernelFaultError
            The kernel touched a byte outside its buffers or below its alignment, wrote to its
            source, stored a byte twice, parted at a barrier, or a sanitizer stopped it. With
            the toolchain `COUNTING` alone: its threads raced for a byte of shared memory, or it
            loaded what its block had not stored.
        """
        with tempfile.TemporaryDirectory() as folder:
            job, result = (Path(folder, name) for name in ("job", "result"))
            with job.open("wb") as file:
                file.writelines(_job(grid, block, buffers, blocks, counting, arguments))
            process = subprocess.run(
                [self.path, str(self.index), job, result],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIME_LIMIT_S,
                check=False,
                env=os.environ | {"ASAN_OPTIONS": SANITIZER},
            )
            if process.returncode:
                message = process.stdout.decode(errors="replace")[:4000]
                raise KernelFaultError(message or f"exit status {process.returncode}")
            return _outcome(result.read_bytes(), buffers)


def missing() -> str | None:
    """The tool that is missing to compile kernels for this CPU, or None."""
    return None if shutil.which("g++") else "g++ is not installed: kernels cannot run on the CPU"


def build(
    sources: Sequence[str], folder: Path, toolchain: Toolchain = SANITIZED
) -> dict[str, Program]:
    """Compile every distinct source and return its program; `folder` keeps them for reuse."""
    distinct, size = list(dict.fromkeys(sources)), SOURCES_PER_PROGRAM
    batches = [distinct[i : i + size] for i in range(0, len(distinct), size)]
    runner_text = (HERE / "device.cpp").read_text()
    runner = _compiled(folder, ".o", toolchain.runner, runner_text, ["-c"])

    def program(batch: list[str]) -> dict[str, Program]:
        text = _checked(_unit(batch)) if toolchain is CHECKED else _unit(batch)
        path = _compiled(folder, "", toolchain.kernels, text, [str(runner), *toolchain.link])
        return {source: Program(path, i) for i, source in enumerate(batch)}

    with ThreadPoolExecutor(COMPILERS) as pool:
        return dict(
            chain.from_iterable(programs.items() for programs in pool.map(program, batches))
        )


def _checked(text: str) -> str:
    """The text with numbers that refuse to wrap instead of unsigned ones."""
    for pattern, replacement in _UNSIGNED:
        text = pattern.sub(replacement, text)
    return f'#include "checked.hpp"\n{text}'


def _unit(sources: Sequence[str]) -> str:
    """One translation unit: each source in its own namespace, its entry point renamed."""
    parts = ['#include "cuda_on_host.hpp"']
    table = []
    for i, source in enumerate(sources):
        (entry,) = _ENTRY.findall(source)
        parts.append(f"#define {entry} {entry}_{i}\nnamespace unit_{i} {{")
        parts.append(f"{source}\n}}\n#undef {entry}")
        kernel, struct_ = f"unit_{i}::{entry}_{i}", f"unit_{i}::Parameters"
        call = f"[](const void* p) {{ {kernel}(*static_cast<const {struct_}*>(p)); }}"
        table.append(f"{{{call}, sizeof({struct_})}},")
    parts += ["namespace host_cuda { extern const Kernel kernels[] = {", *table, "}; }"]
    return "\n".join(parts)


def _compiled(folder: Path, suffix: str, flags: Sequence[str], text: str, more: list[str]) -> Path:
    headers = "".join(path.read_text() for path in sorted(HERE.glob("*.hpp")))
    command = ["g++", "-std=c++20", "-w", *flags, "-I", str(HERE), "-x", "c++", "-"]
    command += ["-x", "none", *more]

    def compile_to(partial: Path) -> None:
        line = [*command, "-o", str(partial)]
        process = subprocess.run(line, input=text, capture_output=True, text=True, check=False)
        if process.returncode:
            raise RuntimeError(f"g++ rejects a generated source:\n{process.stderr[:6000]}")

    name = builds.key(compiler_version(), headers, text, *command) + suffix
    return builds.made(folder / name, compile_to)


@cache
def compiler_version() -> str:
    """A text that differs between releases of g++."""
    line = ["g++", "-dumpfullversion", "-dumpmachine"]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def _job(
    grid: int,
    block: int,
    buffers: Sequence[Buffer],
    blocks: Iterable[int] | None,
    counting: bool,
    arguments: bytes,
) -> Iterable[bytes]:
    block_numbers = list(range(grid) if blocks is None else blocks)
    yield _ints(grid, block, counting, len(block_numbers), *block_numbers, len(buffers))
    for buffer in buffers:
        yield _ints(buffer.size, buffer.origin, buffer.misalignment, len(buffer.patches))
        for offset, data in buffer.patches:
            yield _ints(offset, data.nbytes)
            yield data.tobytes()
    yield _ints(len(arguments))
    yield arguments
    for buffer in buffers:
        yield _ints(len(buffer.windows), *chain(*buffer.windows))


def _ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _outcome(result: bytes, buffers: Sequence[Buffer]) -> Outcome:
    numbers = len(fields(Counts))
    counts = Counts(*struct.unpack_from(f"<{numbers}q", result))
    ends = np.cumsum([length for buffer in buffers for _, length in buffer.windows])
    parts = iter(np.split(np.frombuffer(result, np.uint8, offset=8 * numbers), ends))
    return Outcome(tuple(tuple(next(parts) for _ in b.windows) for b in buffers), counts)
