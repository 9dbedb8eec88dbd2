"""NPP and cuTENSOR as libraries of this process, which copy between arrays of the host."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import peers_nvidia
from benchmarks.cases import CASES, Case
from benchmarks.gpu_problem import BufferSet, GpuProblem
from benchmarks.peers_nvidia import NppSize, NppStream
from tests.support.benchmarks import HostArray, unwritten

ATTRIBUTES = (
    "MultiProcessorCount MaxThreadsPerMultiProcessor MaxThreadsPerBlock MaxSharedMemoryPerBlock "
    "ComputeCapabilityMajor ComputeCapabilityMinor"
).split()


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy has a device and a stream that nothing uses."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    device = SimpleNamespace(id=0, attributes=dict.fromkeys(ATTRIBUTES, 1))
    stream = SimpleNamespace(ptr=7)
    cuda = SimpleNamespace(Device=lambda: device, get_current_stream=lambda: stream)
    monkeypatch.setattr(cupy, "cuda", cuda)


def problem(case: Case) -> GpuProblem:
    source = np.random.default_rng(1).integers(0, 1 << 8, case.shape).astype(case.dtype)
    outputs = [unwritten(case, shape).view(HostArray) for shape in case.output_shapes]
    array = source.view(HostArray)
    return GpuProblem(case, [BufferSet(array, outputs, array)])


def bytes_at(address: Any, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


class Npp:
    """Copies of channels, each from and to lines any bytes apart."""

    def copy(
        self, src: Any, pitch: int, planes: Any, step: int, size: NppSize, context: NppStream
    ) -> int:
        assert (context.stream, context.multiprocessors) == (7, 1)
        channels, width = len(planes), size.width
        unit = step // width
        for line in range(size.height):
            pixels = bytes_at(src.value + line * pitch, pitch).reshape(width, channels, unit)
            for channel, plane in enumerate(planes):
                bytes_at(plane + line * step, step)[:] = pixels[:, channel].ravel()
        return 0

    nppiCopy_8u_C3P3R_Ctx = nppiCopy_16u_C4P4R_Ctx = nppiCopy_32s_C3P3R_Ctx = copy  # noqa: N815


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 5, 6, 3), "u1"), ((4, 6, 4), "u2"), ((4096 * 2, 3), "u4")]
)
def test_npp_copies_channels_to_planes(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_nvidia, "load", lambda name: Npp())
    axis = len(shape) - 1
    pixels = problem(Case("pixels", CASES, shape, dtype, axis, (1,) * shape[-1]))
    peers_nvidia.npp_channels(pixels)(0)
    assert all(map(np.array_equal, pixels.sets[0].outputs, pixels.views(0)))


@pytest.mark.parametrize(
    ("shape", "sizes", "message"),
    [
        ((4, 6), (2, 4), "packed channels"),
        ((5, 2), (1, 1), "packed channels"),
        ((5, 3), (1,) * 3, "lines"),
    ],
)
def test_npp_is_not_called_for_what_it_does_not_copy(
    shape: tuple[int, ...], sizes: tuple[int, ...], message: str
) -> None:
    with pytest.raises(NotImplementedError, match=message):
        peers_nvidia.npp_channels(problem(Case("other", CASES, shape, "u1", 1, sizes)))


class CuTensor:
    """Descriptors and plans are indices of what they were made of."""

    def __init__(self) -> None:
        self.made: list[Any] = [None]

    def _make(self, result: Any, value: Any) -> int:
        result._obj.value = len(self.made)
        self.made.append(value)
        return 0

    def cutensorCreate(self, handle: Any) -> int:  # noqa: N802
        return self._make(handle, "handle")

    def cutensorCreateTensorDescriptor(  # noqa: N802
        self,
        handle: Any,
        result: Any,
        modes: Any,
        extents: Any,
        strides: Any,
        kind: int,
        align: Any,
    ) -> int:
        assert modes.value == len(extents) == len(strides)
        itemsize = {0: 4, 1: 8, 2: 2}[kind]
        assert align.value == itemsize
        return self._make(result, (tuple(extents), [step * itemsize for step in strides], itemsize))

    def cutensorCreatePermutation(  # noqa: N802
        self,
        handle: Any,
        result: Any,
        a: Any,
        a_modes: Any,
        identity: int,
        b: Any,
        b_modes: Any,
        by: Any,
    ) -> int:
        assert list(a_modes) == list(b_modes)
        assert (identity, by) == (1, "compute")
        return self._make(result, (self.made[a.value], self.made[b.value]))

    def cutensorCreatePlanPreference(self, handle: Any, result: Any, *choice: int) -> int:  # noqa: N802
        assert choice == (-1, 0)
        return self._make(result, None)

    def cutensorCreatePlan(  # noqa: N802
        self, handle: Any, result: Any, operation: Any, preference: Any, workspace: Any
    ) -> int:
        return self._make(result, self.made[operation.value])

    def cutensorPermute(  # noqa: N802
        self, handle: Any, plan: Any, alpha: Any, src: Any, dst: Any, stream: Any
    ) -> int:
        assert (alpha._obj.value, stream.value) == (1, 7)
        arrays = []
        for address, (shape, strides, itemsize) in zip(
            (src, dst), self.made[plan.value], strict=True
        ):
            size = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + itemsize
            memory = bytes_at(address.value, size)
            arrays.append(np.ndarray(shape, f"V{itemsize}", memory, 0, strides))
        arrays[1][...] = arrays[0]
        return 0


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_cutensor_copies_each_piece_of_finite_floats(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_nvidia, "load", lambda name: CuTensor())
    monkeypatch.setattr(peers_nvidia, "compute_type", lambda library, name: "compute")
    split = problem(Case("rows", CASES, (5, 9, 2), dtype, 1, (2, 3, 4)))
    for word in (0, 1, -1):
        split.sets[0].array.reshape(-1)[word] = np.dtype(dtype).type(word % 2**8)
    peers_nvidia.cutensor_permute(split)(0)
    assert all(map(np.array_equal, split.sets[0].outputs, split.views(0)))
    floats = split.sets[0].array.view(np.ndarray).view(dtype.replace("u", "f"))
    assert np.isfinite(floats).all()
    assert (abs(floats) >= np.finfo(floats.dtype).tiny).all()


def test_a_library_that_is_missing_has_a_row_that_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"libnone\.so is not installed"):
        peers_nvidia.load("libnone.so")
    with pytest.raises(NotImplementedError, match="copies floats"):
        peers_nvidia.cutensor_permute(problem(Case("bytes", CASES, (5, 3), "u1", 1, (1, 2))))
