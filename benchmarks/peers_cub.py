"""CUB's batched memcpy, built with nvcc on the machine that runs the benchmark."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarks.gpu_problem import GpuProblem

_MAX_RANGES = (1 << 32) - 1


def prepare(problem: GpuProblem) -> Callable[[int], None]:
    """Build the library, copy the tables to the GPU, and return the call."""
    import cupy

    rows = problem.case.geometry.row_split
    if rows is None:
        raise NotImplementedError("takes packed arrays only; not called with strided ones")
    ranges = rows.rows * len(rows.widths)
    if ranges > _MAX_RANGES or max(rows.widths) > _MAX_RANGES:
        raise NotImplementedError(f"{ranges} ranges; its counters have 32 bits")
    function = library().split_batched
    offsets = cupy.asarray(np.array(rows.offsets, np.int64))
    widths = cupy.asarray(np.array(rows.widths, np.int64))
    outputs = [
        cupy.asarray(np.array([out.data.ptr for out in entry.outputs], np.uint64))
        for entry in problem.sets
    ]
    temp_bytes = ctypes.c_size_t()

    def launch(index: int, temp: int) -> None:
        code = function(
            ctypes.c_void_p(temp),
            ctypes.byref(temp_bytes),
            ctypes.c_void_p(problem.sets[index].array.data.ptr),
            ctypes.c_void_p(outputs[index].data.ptr),
            ctypes.c_void_p(offsets.data.ptr),
            ctypes.c_void_p(widths.data.ptr),
            ctypes.c_int64(rows.pitch),
            ctypes.c_uint32(rows.rows),
            ctypes.c_uint32(len(rows.widths)),
            ctypes.c_void_p(cupy.cuda.get_current_stream().ptr),
        )
        if code:
            raise RuntimeError(f"cub::DeviceMemcpy::Batched returned CUDA error {code}")

    launch(0, 0)
    temp = cupy.empty(max(1, temp_bytes.value), cupy.uint8)
    return lambda index: launch(index, temp.data.ptr)


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Compile cub_batched.cu for this machine's GPU, and load it."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    source = Path(__file__).with_name("cub_batched.cu")
    built = Path(tempfile.mkdtemp(prefix="dmlsplit-cub-")) / "libcub_batched.so"
    flags = ["-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
    try:
        subprocess.run(
            [nvcc, *flags, "-o", str(built), str(source)],
            check=True,
            capture_output=True,
            text=True,
            timeout=180,
        )
    except FileNotFoundError:
        raise ModuleNotFoundError("nvcc is not installed") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"nvcc: {error.stderr.strip()[-250:]}") from None
    return ctypes.CDLL(str(built))
