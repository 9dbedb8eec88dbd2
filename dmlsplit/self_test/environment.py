"""What surrounds the kernels: versions, the card, and what may disturb it.

It tells no path, and no name of a host or user.
"""

import os
import platform
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dmlsplit.backends.cuda import driver, images, installation, libcuda
from dmlsplit.backends.cuda.nvml import CudaDevice, device_at
from dmlsplit.self_test.memory import ALIGNMENT, Memory

# An import of the package, which imports this one, would close a circle.
VERSION: str = sys.modules["dmlsplit"].__version__


class State(StrEnum):
    """Whether a check is passed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """One line of the report."""

    name: str
    state: State
    text: str


def checks(device: str, memory: Memory) -> Iterator[Check]:
    """What is known before a kernel is compiled."""
    yield Check("software", State.OK, _software())
    yield Check("system", State.OK, ", ".join(_system()))
    if device != "cpu":
        yield from _card(int(device.partition(":")[2]))
    yield _cache()
    yield _alignment(memory)


def missing_card(reason: str) -> Check:
    """Why the CPU is tested. It is a failure where there is a driver, which a card needs."""
    state = State.FAIL if libcuda.driver_version() else State.WARN
    return Check("card", state, reason)


def _software() -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    packages = ", ".join(installation.packages()) or "no CuPy"
    return f"dmlsplit {VERSION}, Python {python}, NumPy {np.__version__}, {packages}"


def _system() -> Iterator[str]:
    yield f"{platform.system()} {platform.machine()}"
    if "microsoft" in platform.release().lower():
        yield "WSL"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        yield "container"
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or Path("/tmp/nvidia-mps").exists():  # noqa: S108
        yield "MPS"
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING"):
        if name in os.environ:
            yield f"{name}={os.environ[name]}"


def _card(number: int) -> Iterator[Check]:
    loaded, card = driver.load(), device_at(number)
    versions, limits = driver.versions_of(loaded.cupy), loaded.limits(number)
    nvrtc = ".".join(map(str, versions.nvrtc or ()))
    yield Check(
        "CUDA",
        State.OK,
        f"driver for {versions.driver / 1000:.1f}, CuPy's runtime {versions.runtime / 1000:.1f}, "
        f"NVRTC {nvrtc}, compiling for {loaded.architecture(number)}",
    )
    text = f"{limits.sm_count} SMs, {limits.l2_bytes >> 20} MiB of L2 cache"
    text += f", {limits.parameter_bytes} bytes of parameters"
    yield Check("card", State.OK, f"{loaded.name(number)}, {text}")
    if card is None:
        yield Check("NVML", State.WARN, "it does not list this device; clocks are unknown")
        return
    address = ":".join(f"{part:02x}" for part in card.bus_id or ())
    yield Check("NVML", State.OK, f"index {card.index}, PCI {address}, driver {card.driver}")
    yield from _disturbances(card)


def _disturbances(card: CudaDevice) -> Iterator[Check]:
    if card.is_divided:
        text = "this device is a part of a card; figures of SMs are CUDA's, bandwidth is the card's"
        yield Check("MIG", State.WARN, text)
    if card.processes:
        text = f"{card.processes} other processes use the card; speeds may be too low"
        yield Check("others", State.WARN, text)


def _cache() -> Check:
    folder = images.folder()
    if folder is None:
        return Check("cache", State.OK, "off: kernels are compiled in every process")
    while not folder.exists():
        folder = folder.parent
    if os.access(folder, os.W_OK):
        return Check("cache", State.OK, "compiled kernels are kept on disk")
    text = "its folder cannot be written, so every process compiles. Fix: set CUPY_CACHE_DIR"
    return Check("cache", State.WARN, text)


def _alignment(memory: Memory) -> Check:
    address = memory.upload(np.zeros(1, np.uint8)).address
    if address % ALIGNMENT:
        text = f"an allocation is at {address:#x}, no multiple of {ALIGNMENT}; kernels for less "
        return Check("memory", State.WARN, f"{text}aligned memory are used")
    return Check("memory", State.OK, f"allocations are multiples of {ALIGNMENT}")
