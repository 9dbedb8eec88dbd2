"""NVIDIA's image and tensor libraries, called through ctypes: NPP and cuTENSOR.

`pip install nvidia-npp cutensor-cu13` installs both. They are loaded by the names that their
wheels and toolkits use; a library that is not there makes its row "absent".
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu_problem import GpuProblem

NPP, CUTENSOR = "libnppidei.so", "libcutensor.so"
MAX_STEP = (1 << 31) - 1  # bytes of a row, and rows: NPP's are ints
NPP_TYPES = {1: "8u", 2: "16u", 4: "32s"}
# cuTENSOR copies floats. The mask and the bit make any integer a finite, normal one, which is
# copied exactly: NaNs and denormals may not be. The numbers of types are those of `cudaDataType_t`.
FLOATS = {
    2: (2, 0xBFFF, 0x2000),
    4: (0, 0xBFFFFFFF, 1 << 29),
    8: (1, (1 << 62) ^ (2**64 - 1), 1 << 61),
}
MAX_PLANS = 64


class NppSize(ctypes.Structure):
    """`NppiSize`."""

    _fields_ = (("width", c_int), ("height", c_int))


class NppStream(ctypes.Structure):
    """`NppStreamContext`, which is passed by value."""

    _fields_ = (
        ("stream", c_void_p),
        ("device", c_int),
        ("multiprocessors", c_int),
        ("threads_per_multiprocessor", c_int),
        ("threads_per_block", c_int),
        ("shared_bytes", c_size_t),
        ("major", c_int),
        ("minor", c_int),
        ("flags", c_uint32),
        ("reserved", c_int),
    )


def load(name: str) -> Any:
    """A library, from a wheel of NVIDIA's or from where the system has it.

    Raises
    ------
    ModuleNotFoundError
        It is not installed.
    """
    spec = importlib.util.find_spec("nvidia") or importlib.util.find_spec("cutensor")
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    wheels = [file for folder in folders for file in sorted(folder.parent.rglob(f"{name}.*"))]
    for path in (*wheels, name):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            continue
    raise ModuleNotFoundError(f"{name} is not installed")


def npp_channels(problem: GpuProblem) -> Callable[[int], None]:
    """`nppiCopy_8u_C3P3R_Ctx` and its like: pixels to planes."""
    import cupy

    case = problem.case
    channels, kind = len(case.sizes), NPP_TYPES.get(case.element_bytes)
    split = case.geometry.row_split
    if (
        split is None
        or split.equal_width != case.element_bytes
        or channels not in (3, 4)
        or not kind
    ):
        raise NotImplementedError("not called: it copies 3 or 4 packed channels of up to 4 bytes")
    width = case.shape[-2] if len(case.shape) > 2 else 1 << 12
    height, rest = divmod(split.rows, width)
    if rest or max(height, width * split.pitch) > MAX_STEP:
        raise NotImplementedError(f"not called: {split.rows} pixels are not lines of {width}")
    function = getattr(load(NPP), f"nppiCopy_{kind}_C{channels}P{channels}R_Ctx")
    context, size = npp_stream(cupy), NppSize(width, height)

    def call(index: int) -> None:
        entry = problem.sets[index]
        planes = (c_void_p * channels)(*(out.data.ptr for out in entry.outputs))
        step = width * case.element_bytes
        source = c_void_p(entry.array.data.ptr)
        if status := function(source, step * channels, planes, step, size, context):
            raise RuntimeError(f"NPP returned {status}")

    return call


def npp_stream(cupy: Any) -> NppStream:
    """The current stream and device, as NPP takes them."""
    device = cupy.cuda.Device()
    known, stream = device.attributes, cupy.cuda.get_current_stream().ptr
    return NppStream(
        stream,
        device.id,
        known["MultiProcessorCount"],
        known["MaxThreadsPerMultiProcessor"],
        known["MaxThreadsPerBlock"],
        known["MaxSharedMemoryPerBlock"],
        known["ComputeCapabilityMajor"],
        known["ComputeCapabilityMinor"],
    )


def cutensor_permute(problem: GpuProblem) -> Callable[[int], None]:
    """`cutensorPermute`, once per output. The input becomes finite floats first."""
    import cupy

    case = problem.case
    if case.element_bytes not in FLOATS or len(case.sizes) > MAX_PLANS:
        raise NotImplementedError(f"not called: it copies floats, here into {MAX_PLANS} at most")
    library, (kind, mask, bit) = load(CUTENSOR), FLOATS[case.element_bytes]
    handle = c_void_p()
    check(library.cutensorCreate(byref(handle)))
    compute = compute_type(library, "64F" if kind == 1 else "32F")
    for entry in problem.sets:
        words = entry.array.view(f"u{case.element_bytes}")
        words &= words.dtype.type(mask)
        words |= words.dtype.type(bit)
    pairs = [
        list(zip(problem.views(i), e.outputs, strict=True)) for i, e in enumerate(problem.sets)
    ]
    plans = [[plan(library, handle, kind, compute, *pair) for pair in one] for one in pairs]
    alpha = (ctypes.c_double if kind == 1 else ctypes.c_float)(1)

    def call(index: int) -> None:
        stream = c_void_p(cupy.cuda.get_current_stream().ptr)
        for one, (source, target) in zip(plans[index], pairs[index], strict=True):
            addresses = c_void_p(source.data.ptr), c_void_p(target.data.ptr)
            check(library.cutensorPermute(handle, one, byref(alpha), *addresses, stream))

    return call


def compute_type(library: Any, name: str) -> c_void_p:
    """A constant that the library exports."""
    return c_void_p.in_dll(library, f"CUTENSOR_COMPUTE_DESC_{name}")


def plan(library: Any, handle: Any, kind: int, compute: Any, source: Any, target: Any) -> Any:
    """The plan that copies one array to another one of the same shape, by `cutensor.h` 2.0."""
    modes = (c_int32 * source.ndim)(*range(source.ndim))
    operands = []
    for array in (source, target):
        extents = (c_int64 * array.ndim)(*array.shape)
        strides = (c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
        described, alignment = c_void_p(), c_uint32(array.itemsize)
        check(
            library.cutensorCreateTensorDescriptor(
                handle, byref(described), c_uint32(array.ndim), extents, strides, kind, alignment
            )
        )
        operands += [described, modes]
    operation, preference, made = c_void_p(), c_void_p(), c_void_p()
    identity, default, without_jit = 1, -1, 0
    copied = (*operands[:2], identity, *operands[2:], compute)
    check(library.cutensorCreatePermutation(handle, byref(operation), *copied))
    choice = handle, byref(preference), default, without_jit
    check(library.cutensorCreatePlanPreference(*choice))
    check(library.cutensorCreatePlan(handle, byref(made), operation, preference, c_uint64(0)))
    return made


def check(status: int) -> None:
    """Raise the number of a failure of cuTENSOR."""
    if status:
        raise RuntimeError(f"cuTENSOR returned {status}")
