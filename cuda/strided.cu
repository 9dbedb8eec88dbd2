// Any layout: broadcast, padded, permuted and reversed, up to eight dimensions.
//
// An output is a loop nest, with byte strides in the input and the output, around a contiguous run. The
// run is cut into units of kUnit bytes, the widest that every stride and offset allows. Units are
// numbered in the order of the output; thread t of a block copies kLoads of them, kThreads apart. All
// loads are under way before the first store.
//
// Outputs with equal nests share one entry of the tables. Code is made for each entry, with its sizes
// as constants, so that no index needs a division by a variable.

using Unit = typename Unsigned<kUnit>::Type;

template <int kNest> __device__ inline void copy_units(const Byte* src, Byte* dst, Wide tile) {
    const Index first = static_cast<Index>(tile) * (kThreads * kLoads) + threadIdx.x;
    Unit held[kLoads];
    Offset dst_offsets[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        Index index = first + i * kThreads;
        if (index >= kUnits[kNest]) continue;
        long long from = static_cast<long long>(index % kRunUnits[kNest]) * kUnit;
        dst_offsets[i] = static_cast<Offset>(from);
        index /= kRunUnits[kNest];
#pragma unroll
        for (int d = kDimensions - 1; d >= 0; --d) {
            constexpr int row = kNest * kDimensions;
            const Index at = index % kSizes[row + d];
            index /= kSizes[row + d];
            from += static_cast<long long>(at) * kInputStrides[row + d];
            dst_offsets[i] += static_cast<Offset>(at) * static_cast<Offset>(kOutputStrides[row + d]);
        }
        held[i] = load<Unit>(src + from);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
        if (first + i * kThreads < kUnits[kNest]) store(dst + dst_offsets[i], held[i]);
}

template <int kNest> __device__ inline void copy_nest(unsigned nest, const Byte* src, Byte* dst, Wide tile) {
    if constexpr (kNest + 1 < kNests)
        if (nest != kNest) return copy_nest<kNest + 1>(nest, src, dst, tile);
    copy_units<kNest>(src, dst, tile);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) strided(const __grid_constant__ Parameters launch) {
    const int output = find<kOutputs>(kTileStarts, static_cast<unsigned>(blockIdx.x));
    copy_nest<0>(kOutputNests[output], launch.input + kOffsets[output], launch.outputs[output],
                blockIdx.x - kTileStarts[output]);
}
