"""Plain copies on a GPU, the fastest of which is the ceiling of what a split can reach."""

from typing import Any

import numpy as np

from benchmarks.gpu_problem import GpuPeer, GpuPrepared, GpuProblem


def memcpy(problem: GpuProblem) -> GpuPrepared:
    """Copy the same number of bytes with cudaMemcpyAsync: one of the upper bounds.

    In a CUDA graph, copies of exactly 2 GiB are slow (github.com/pytorch/pytorch/issues/191284).
    """
    import cupy

    pairs = flat_pairs(problem)

    def call(index: int) -> None:
        dst, src = pairs[index]
        dst.data.copy_from_device_async(src.data, src.nbytes, cupy.cuda.get_current_stream())

    return GpuPrepared(call, lambda index: [pairs[index][0]], "queue", is_split=False)


# kVector is 16 or 32 bytes, and a thread has 64 in flight. A `longlong4_32a` is loaded and stored
# at once since compute capability 10.0.
COPY_SOURCE = r"""
template <int> struct Vector { using Type = int4; };
#ifdef __CUDACC_RTC__
template <> struct Vector<32> { using Type = longlong4_32a; };
#endif
extern "C" __global__ void copy(const void* __restrict__ from, void* __restrict__ to, size_t n) {
  using Type = Vector<kVector>::Type;
  const Type* in = static_cast<const Type*>(from);
  Type* out = static_cast<Type*>(to);
  constexpr int kUnroll = 64 / kVector;
  size_t base = size_t(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x;
  Type part[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (base + k * blockDim.x < n) part[k] = in[base + k * blockDim.x];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (base + k * blockDim.x < n) out[base + k * blockDim.x] = part[k];
}
"""
COPY_THREADS = 256


def copy_source(vector: int) -> str:
    """The CUDA source of a plain copy in vectors of 16 or 32 bytes."""
    return f"constexpr int kVector = {vector};\n{COPY_SOURCE}"


def copy_kernel(problem: GpuProblem, vector: int = 16) -> GpuPrepared:
    """Copy the same number of bytes with a plain kernel: another upper bound."""
    import cupy

    kernel = cupy.RawKernel(copy_source(vector), "copy")
    pairs = flat_pairs(problem, vector)
    count = pairs[0][0].nbytes // vector
    blocks = -(-count * vector // (COPY_THREADS * 64)) or 1

    def call(index: int) -> None:
        dst, src = pairs[index]
        kernel((blocks,), (COPY_THREADS,), (src, dst, np.uint64(count)))

    return GpuPrepared(call, lambda index: [pairs[index][0]], "graph", is_split=False)


def wide_copy_kernel(problem: GpuProblem) -> GpuPrepared:
    """Copy the same number of bytes in vectors of 32 bytes, if the GPU has such loads."""
    import cupy

    if int(cupy.cuda.Device().compute_capability) < 100:
        raise NotImplementedError("not called: 256-bit loads need compute capability 10.0")
    return copy_kernel(problem, 32)


def flat_pairs(problem: GpuProblem, vector: int = 16) -> list[tuple[Any, Any]]:
    """For each set, new aligned memory and equally many bytes of the input, in whole vectors.

    Copying these bytes reads and writes as much memory as the split must.
    """
    import cupy

    size = problem.case.moved_bytes // vector * vector
    parts = [entry.memory[:size] for entry in problem.sets]
    return [(cupy.empty_like(part), part) for part in parts]


COPIES: dict[str, GpuPeer] = {
    "memcpy": memcpy,
    "copy kernel": copy_kernel,
    "copy kernel, 256 bits": wide_copy_kernel,
}
