"""Build the libraries that replace CUDA's driver, runtime and compiler."""

import importlib.util
import platform
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.host_cuda import harness
from tests.support import builds, nvrtc

HERE = Path(__file__).parent
WORDS = HERE.parent / "host_cuda"
FLAGS = (
    "-std=c++17",
    "-O0",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",
    "-Werror",
)
# For kernels: the header is included first, and has no effect with the real compiler.
KERNEL_FLAGS = ("-std=c++17", "-O0", "-w", "-fPIC", "-shared", "-Wl,-Bsymbolic")
DRIVER, COMPILER, MANAGEMENT = "libcuda.so.1", "libnvrtc.so.13", "libnvidia-ml.so.1"
# A jump and the address that it reads. No function of the runtime is shorter than this.
JUMP_BYTES = 14


@dataclass(frozen=True)
class Libraries:
    """The built libraries, and the environment in which kernels are compiled."""

    folder: Path
    environment: dict[str, str]


def missing() -> str | None:
    """What is missing on this machine to run CuPy on the simulated card, or None."""
    if platform.machine() != "x86_64":
        return f"the simulated card jumps in x86-64 code; this machine is {platform.machine()}"
    for program in ("g++", "nm"):
        if not shutil.which(program):
            return f"{program} is not installed: the simulated card cannot be built"
    if _runtime_module() is None:
        return "CuPy is not installed; pip install 'dmlsplit[test]'"
    if _headers() is None:
        return "nvidia-cuda-runtime is not installed; pip install 'dmlsplit[test]'"
    return None


def build(folder: Path) -> Libraries:
    """Compile the card into a folder of `builds`.

    Raises
    ------
    RuntimeError
        With the compiler's messages.
    """
    runtime, headers = _runtime_module(), _headers()
    assert runtime, missing()
    assert headers, missing()

    def compile_to(partial: Path) -> None:
        partial.mkdir()
        (partial / "redirects.inc").write_text(_redirects(runtime))
        _compile(partial, ["-I", str(headers), "-I", str(partial), "-I", str(HERE)])

    build_folder = builds.made(folder / f"card-{_key(runtime)}", compile_to)
    return Libraries(
        build_folder,
        {
            "LD_LIBRARY_PATH": str(build_folder),
            # The folder's key covers the headers that the card adds to a kernel; CuPy's does not.
            "CUPY_CACHE_DIR": str(build_folder / "kernels"),
            "CARD_NVRTC": str(nvrtc.find("lib/libnvrtc.so.*") or ""),
            "CARD_COMPILER": shlex.join(("g++", *KERNEL_FLAGS, f"-I{WORDS}", f"-I{HERE}")),
            "CARD_MODULE": str(build_folder / "kernel_module.o"),
        },
    )


def _compile(folder: Path, includes: list[str]) -> None:
    names = sorted(path.stem for path in HERE.glob("*.cpp"))

    def compiled(name: str) -> None:
        _run("-c", *FLAGS, *includes, str(HERE / f"{name}.cpp"), "-o", str(folder / f"{name}.o"))

    with ThreadPoolExecutor(harness.COMPILERS) as pool:
        list(pool.map(compiled, names))
    objects = {name: str(folder / f"{name}.o") for name in names}
    apart = ("nvrtc", "nvml", "kernel_module")
    driver = [object_file for name, object_file in objects.items() if name not in apart]
    _link(folder / DRIVER, *driver)
    _link(folder / MANAGEMENT, objects["nvml"], str(folder / DRIVER))
    _link(folder / COMPILER, objects["nvrtc"], str(folder / DRIVER))


def _link(library: Path, *parts: str) -> None:
    _run("-shared", f"-Wl,-soname,{library.name}", *parts, "-ldl", "-o", str(library))


def _run(*arguments: str) -> None:
    process = subprocess.run(["g++", *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"g++ rejects the simulated card:\n{process.stderr[:6000]}")


def _redirects(runtime: Path) -> str:
    """C++ that lists the runtime's functions: the address of each, and its replacement."""
    places = _functions(runtime)
    lines = ['extern "C" {']
    lines += [f"[[gnu::weak]] void {name}();" for name in places]
    lines += ["}", "namespace {"]
    lines += [f'void refuse_{name}() {{ card_refuse("{name}"); }}' for name in places]
    lines += ["const Redirect redirects[] = {"]
    lines += [f"{{{place:#x}, {name} ? {name} : refuse_{name}}}," for name, place in places.items()]
    return "\n".join([*lines, "};", "}  // namespace"])


def _functions(runtime: Path) -> dict[str, int]:
    """The addresses of the CUDA runtime's functions in CuPy's extension module."""
    listing = subprocess.run(
        ["nm", "--numeric-sort", str(runtime)], capture_output=True, text=True, check=True
    ).stdout
    fields = [line.split() for line in listing.splitlines()]
    code = [(int(line[0], 16), line[2]) for line in fields if len(line) == 3 and line[1] in "tTwW"]
    places = {
        name: address for address, name in code if name.startswith("cuda") and name[4:5].isupper()
    }
    starts = sorted({address for address, _ in code})
    after = dict(pairwise(starts))
    short = [
        name
        for name, address in places.items()
        if after.get(address, address + 99) - address < JUMP_BYTES
    ]
    if short or "cudaMalloc" not in places:
        raise RuntimeError(f"{runtime} has no room for jumps, or no CUDA runtime: {short}")
    return places


def _key(runtime: Path) -> str:
    files = sorted([*HERE.glob("*.[ch]pp"), *WORDS.glob("*.hpp"), HERE / "build.py"])
    file_status = runtime.stat()
    wheel = f"{runtime} {file_status.st_size} {file_status.st_mtime_ns}"
    return builds.key(harness.compiler_version(), wheel, *(path.read_bytes() for path in files))


def _runtime_module() -> Path | None:
    spec = importlib.util.find_spec("cupy_backends")
    if spec is None or not spec.origin:
        return None
    return next((Path(spec.origin).parent / "cuda" / "api").glob("runtime.*.so"), None)


def _headers() -> Path | None:
    header = nvrtc.find("include/cuda_runtime_api.h")
    return header.parent if header else None
