"""The facts about the machine that a reader needs to judge a run."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from dmlsplit.backends.cpu import native
from dmlsplit.backends.cuda.nvml import session

LIBRARIES = (
    "numpy",
    "torch",
    "onnxruntime",
    "openvino",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "jax",
    "triton",
    "nvidia-ml-py",
)


def environment(command: list[str], with_gpu: bool, module: str = "benchmarks") -> dict[str, Any]:
    """Describe machine, libraries, commit and command line."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["python", "-m", module, *command],
        "commit": _commit(),
        "python": sys.version.split()[0],
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "processors": os.cpu_count(),
            "memory_bytes": _memory(),
        },
        "cpu_engine": native.unavailable_reason() or native.SOURCE.name,
        "card": gpu_state() if with_gpu else None,
        "load_before": _load(),
    }


def state_after(with_gpu: bool) -> dict[str, Any]:
    """Describe the state of the machine at the end of the run, which may have changed."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "card": gpu_state() if with_gpu else None,
        "load_after": _load(),
    }


def gpu_state(index: int = 0) -> dict[str, Any]:
    """NVML's facts about a GPU; the reason instead of any that NVML does not provide."""
    import pynvml as nvml

    try:
        with session():
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            return {name: _answer(ask) for name, ask in _questions(nvml, gpu).items()}
    except nvml.NVMLError as error:
        return {"error": str(error)}


def _questions(nvml: Any, gpu: Any) -> dict[str, Callable[[], Any]]:
    return {
        "name": lambda: _text(nvml.nvmlDeviceGetName(gpu)),
        "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
        "cuda_of_driver": nvml.nvmlSystemGetCudaDriverVersion_v2,
        "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: hex(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    }


def _answer(ask: Callable[[], Any]) -> Any:
    import pynvml as nvml

    try:
        return ask()
    except nvml.NVMLError as error:
        return f"not available: {error}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit, with a plus sign if tracked files differ from it."""
    root = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None
