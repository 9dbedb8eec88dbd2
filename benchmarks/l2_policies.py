"""How long lines of inputs and outputs should stay in the L2 cache, measured with a copy.

A split reads its input once, and the next kernel reads the outputs. Today, a large split's stores
are evicted first, and its loads are normal (docs/design/012-sizes-as-arguments.md). The reverse may
be better: input that is evicted first leaves room for outputs, which their consumer then finds in
the cache. Only a GPU can tell. A copy and a kernel that reads its output are timed with all four
combinations, for outputs from a quarter of the cache to four times its size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

# Source: PTX ISA, "createpolicy" and "ld" with ".level::cache_hint", since compute capability 8.0.
SOURCE = r"""
__device__ unsigned long long evict_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ int4 load(const int4* from) {
  if (!kLoadsFirst) return __ldg(from);
  int4 loaded;
  asm volatile("ld.global.nc.L2::cache_hint.v4.s32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
               : "l"(from), "l"(evict_first()));
  return loaded;
}
__device__ void store(int4* to, int4 value) {
  if (!kStoresFirst) {
    *to = value;
    return;
  }
  asm volatile("st.global.L2::cache_hint.v4.s32 [%0], {%1, %2, %3, %4}, %5;"
               :: "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w),
                  "l"(evict_first()) : "memory");
}
constexpr int kUnroll = 4;
extern "C" __global__ void copy(const int4* in, int4* out, size_t n) {
  size_t base = size_t(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x;
  int4 part[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (base + k * blockDim.x < n) part[k] = load(in + base + k * blockDim.x);
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (base + k * blockDim.x < n) store(out + base + k * blockDim.x, part[k]);
}
"""
CONSUMER = r"""
constexpr int kUnroll = 4;
// Reads everything, and writes only if the sum of a thread's bits happens to be 1 of 2^32 numbers.
extern "C" __global__ void consume(const int4* in, int4* sink, size_t n) {
  size_t base = size_t(blockIdx.x) * blockDim.x * kUnroll + threadIdx.x;
  int sum = 0;
#pragma unroll
  for (int k = 0; k < kUnroll; ++k)
    if (base + k * blockDim.x < n) {
      int4 part = in[base + k * blockDim.x];
      sum ^= part.x ^ part.y ^ part.z ^ part.w;
    }
  if (sum == 0x5eed) sink->x = sum;
}
"""
SHARES = 0.25, 0.5, 1, 4  # of the L2 cache, that an output has
THREADS, BLOCK_BYTES = 256, 256 * 64


@dataclass(frozen=True, slots=True)
class Policy:
    """Whether loads of the input are evicted first, and stores to the output."""

    loads_first: bool
    stores_first: bool

    @property
    def source(self) -> str:
        """The kernel `copy`."""
        return (
            f"constexpr bool kLoadsFirst = {int(self.loads_first)}, "
            f"kStoresFirst = {int(self.stores_first)};\n{SOURCE}"
        )

    def __str__(self) -> str:
        first = {False: "normal", True: "first"}
        return f"loads {first[self.loads_first]:<7} stores {first[self.stores_first]:<7}"


POLICIES = tuple(Policy(*pair) for pair in product((False, True), repeat=2))
# Seconds of a copy of some bytes, and of the consumer after it.
Time = Callable[[Policy, int], tuple[float, float]]


def rows(l2_bytes: int, time: Time) -> Iterator[str]:
    """The lines of the table."""
    for share in SHARES:
        size = int(share * l2_bytes) // BLOCK_BYTES * BLOCK_BYTES
        for policy in POLICIES:
            try:
                copy, consumer = time(policy, size)
            except Exception as error:
                yield f"{policy} {share:>5.3g} x L2 failed: {error}"
                continue
            yield (
                f"{policy} {share:>5.3g} x L2 {copy * 1e6:>9.1f} us copy {consumer * 1e6:>9.1f} us "
                f"consumer {(copy + consumer) * 1e6:>9.1f} us both"
            )


def timer(rounds: int = 25) -> Time:
    """Medians of rounds on the current GPU; before each, the cache is overwritten."""
    import cupy

    from benchmarks.timing import quantile

    cache = int(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["l2CacheSize"])

    def time(policy: Policy, size: int) -> tuple[float, float]:
        other = cupy.empty(4 * cache, cupy.uint8)
        src, dst = (cupy.empty(size, cupy.uint8) for _ in range(2))
        copy, consume = cupy.RawKernel(policy.source, "copy"), cupy.RawKernel(CONSUMER, "consume")
        grid, count = (size // BLOCK_BYTES,), size // 16
        taken: list[tuple[float, float]] = []
        for _ in range(rounds):
            other.data.memset_async(0, other.nbytes)
            events: list[Any] = [cupy.cuda.Event() for _ in range(3)]
            events[0].record()
            copy(grid, (THREADS,), (src, dst, count))
            events[1].record()
            consume(grid, (THREADS,), (dst, src, count))
            events[2].record()
            events[2].synchronize()
            first, second = map(cupy.cuda.get_elapsed_time, events, events[1:])
            taken.append((first * 1e-3, second * 1e-3))
        copies, consumers = (quantile(sorted(column), 0.5) for column in zip(*taken, strict=True))
        return copies, consumers

    return time
