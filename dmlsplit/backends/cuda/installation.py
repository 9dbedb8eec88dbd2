"""What is wrong with an installation of CUDA, and the command that fixes it.

The messages are functions of versions, so that each can be tried without the installation.
"""

import re
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

# CuPy's distributions, all of which install the same package.
DISTRIBUTIONS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x")
# CUDA 13.0 in CUDA's notation.
VERSION_13 = 13000
# The oldest driver for it (its release notes, table 3).
DRIVER_13 = 580
# Compute capability 7.0, which `__grid_constant__` parameters of kernels need (CUDA C++ Programming
# Guide).
MIN_CAPABILITY = 70
# The first CuPy that passes `numpy.void` to a kernel by value.
MIN_CUPY = (14, 1, 1)
# The extras of dmlsplit, by the major version of CUDA.
EXTRAS = {12: "cuda12", 13: "cuda13"}


class Cuda(NamedTuple):
    """CuPy, and what it works with."""

    runtime: int  # CUDA's, such as 13020
    driver: int  # the newest CUDA that the driver supports; 0 without a driver
    nvrtc: tuple[int, int] | None  # None if it cannot be loaded
    has_headers: bool  # CUDA's, without which CuPy compiles nothing
    cupy: str


def installed_packages() -> list[str]:
    """The installed distributions of CuPy, with their versions."""
    packages = []
    for name in DISTRIBUTIONS:
        try:
            packages.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return packages


def fitting_extra(driver: int | None) -> str:
    """The extra for a driver; the newer one if it is unknown."""
    return EXTRAS[12 if driver and driver < VERSION_13 else 13]


def package_error(installed: Sequence[str], driver: int | None) -> str | None:
    """The error if several distributions of CuPy are installed; None if not."""
    if len(installed) < 2:
        return None
    return (
        f"{' and '.join(installed)} are installed in one folder and overwrite each other's files. "
        f"Fix: {_replace_command(installed, fitting_extra(driver))}"
    )


def cupy_error(error: ImportError, driver: int | None) -> str:
    """The error if CuPy cannot be imported."""
    fix = _install_command(fitting_extra(driver))
    need = "CUDA devices need CuPy"
    if not driver:
        fix = f"install the driver, then {fix}, or 'dmlsplit[cuda12]' if it is older than 580"
        need = "CUDA devices need NVIDIA's driver, which this machine lacks, and CuPy"
    return f"{need}, which cannot be imported: {error}. Fix: {fix}"


def version_error(cuda: Cuda, installed: Sequence[str]) -> str | None:
    """The error if something is missing or does not fit CuPy, or CuPy is too old; None if not."""
    extra = EXTRAS.get(cuda.runtime // 1000, fitting_extra(cuda.driver))
    return _driver_error(cuda, installed) or _compiler_error(cuda, installed, extra)


def _driver_error(cuda: Cuda, installed: Sequence[str]) -> str | None:
    """The error if there is no driver, or CuPy is built for a CUDA that is too old or too new."""
    major = cuda.runtime // 1000
    build = f"CuPy is built for CUDA {major}"
    if not cuda.driver:
        newer = f" {DRIVER_13} or newer" if major >= 13 else ""
        return (
            f"there is no usable CUDA driver. Fix: install NVIDIA's driver{newer}; if this is a "
            "container, start it with --gpus all"
        )
    if major < min(EXTRAS):
        fix = _replace_command(installed, fitting_extra(cuda.driver))
        return f"{build}, and dmlsplit needs {min(EXTRAS)} or newer. Fix: {fix}"
    if cuda.driver // 1000 < major:
        fix = f"install NVIDIA's driver {DRIVER_13} or newer"
        if cuda.driver >= 12000:
            fix = f"{_replace_command(installed, 'cuda12')}; or {fix}"
        return f"{build}, and the driver supports {cuda_version_text(cuda.driver)}. Fix: {fix}"
    return None


def _compiler_error(cuda: Cuda, installed: Sequence[str], extra: str) -> str | None:
    """The error if CuPy is too old, or lacks what it compiles with."""
    major = cuda.runtime // 1000
    fix = _install_command(extra)
    if cuda.nvrtc is None:
        return f"CUDA {major}'s compiler, NVRTC, cannot be loaded. Fix: {fix}"
    nvrtc_major, _ = cuda.nvrtc
    if nvrtc_major != major:
        nvrtc_version = ".".join(map(str, cuda.nvrtc))
        fix += ", and unset LD_LIBRARY_PATH if it names another CUDA"
        return f"CuPy is built for CUDA {major}, and loads NVRTC {nvrtc_version}. Fix: {fix}"
    if not cuda.has_headers:
        return (
            f"CUDA {major}'s headers cannot be found, and CuPy compiles nothing without them. "
            f"Fix: {fix}"
        )
    if tuple(map(int, re.findall(r"\d+", cuda.cupy)))[:3] < MIN_CUPY:
        return (
            f"CuPy {cuda.cupy} is installed, and dmlsplit needs {'.'.join(map(str, MIN_CUPY))} or "
            f"newer. Fix: {_replace_command(installed, extra)}"
        )
    return None


class CompileTarget(NamedTuple):
    """What CuPy compiles for on a GPU. Capabilities are numbers such as 90."""

    capability: int  # the GPU's
    newest: int  # that CuPy knows for this NVRTC
    is_ptx: bool  # which the driver compiles to machine code, for newer GPUs too

    @property
    def compiled(self) -> int:
        """The capability of the compiled code."""
        return min(self.capability, self.newest)

    @property
    def architecture(self) -> str:
        """The target in NVRTC's notation."""
        return f"{'compute' if self.is_ptx else 'sm'}_{self.compiled}"


def gpu_error(
    device: str, target: CompileTarget, architectures: Sequence[int], installed: Sequence[str]
) -> str | None:
    """The error if a GPU is too old or too new for the kernels, NVRTC or CuPy; None if not.

    `architectures` are those that NVRTC compiles for.
    """
    capability = target.capability
    compiled = target.compiled
    gpu = f"{device} has compute capability {_capability(capability)}"
    if capability < MIN_CAPABILITY:
        least = _capability(MIN_CAPABILITY)
        return f"{gpu}, and dmlsplit needs {least} or newer. Fix: use a newer GPU, or the CPU"
    if compiled < min(architectures):
        least = _capability(min(architectures))
        fix = _replace_command(installed, "cuda12")
        return f"{gpu}, and the installed NVRTC compiles for {least} or newer. Fix: {fix}"
    fix = _newer_command(installed)
    if compiled not in architectures:
        return f"{gpu}, for which the installed NVRTC does not compile. Fix: {fix}"
    # Machine code runs on GPUs of the same major capability only (CUDA C++ Programming Guide,
    # "Binary Compatibility").
    if compiled // 10 != capability // 10 and not target.is_ptx:
        newest = _capability(compiled)
        fix += "; or set CUPY_COMPILE_WITH_PTX=1"
        return f"{gpu}, and the installed CuPy compiles for {newest} at most. Fix: {fix}"
    return None


def _newer_command(installed: Sequence[str]) -> str:
    """The command that installs the newest CuPy, for the newest CUDA."""
    if any(package.startswith("cupy-cuda12x") for package in installed):
        return _replace_command(installed, "cuda13")
    return "pip install --upgrade --upgrade-strategy eager 'dmlsplit[cuda13]'"


def _replace_command(installed: Sequence[str], extra: str) -> str:
    """The command that installs another distribution of CuPy instead of these."""
    names = " ".join(package.partition(" ")[0] for package in installed)
    return f"pip uninstall -y {names} && {_install_command(extra)}"


def _install_command(extra: str) -> str:
    """The command that installs dmlsplit with an extra."""
    return f"pip install 'dmlsplit[{extra}]'"


def cuda_version_text(version: int) -> str:
    """A version of CUDA in its usual form."""
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def _capability(number: int) -> str:
    """A compute capability such as 90 in its usual form, ``9.0``."""
    return f"{number // 10}.{number % 10}"
