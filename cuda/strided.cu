// Any layout: broadcast, padded, permuted and reversed, up to eight dimensions.
//
// An output is a box: a loop nest over byte strides on both sides around a contiguous run. The run
// is cut into units of kUnit bytes, the widest that every stride and offset allows. Units are numbered
// in the order of the output; thread t of a block carries kLoads of them, kThreads apart. All loads are
// under way before the first store.
//
// Outputs whose boxes are equal share one entry of the tables, and its sizes are constants of the
// code that is made for it, so that no index needs a division by a variable.

using Unit = typename Unsigned<kUnit>::Type;

template <int kBox> __device__ inline void copy_units(const Byte* src, Byte* dst, Wide tile) {
    const Index first = static_cast<Index>(tile) * (kThreads * kLoads) + threadIdx.x;
    Unit held[kLoads];
    Offset dst_offsets[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        Index index = first + i * kThreads;
        if (index >= kUnits[kBox]) continue;
        long long from = static_cast<long long>(index % kRunUnits[kBox]) * kUnit;
        dst_offsets[i] = static_cast<Offset>(from);
        index /= kRunUnits[kBox];
#pragma unroll
        for (int d = kDimensions - 1; d >= 0; --d) {
            constexpr int row = kBox * kDimensions;
            const Index at = index % kSizes[row + d];
            index /= kSizes[row + d];
            from += static_cast<long long>(at) * kInputStrides[row + d];
            dst_offsets[i] += static_cast<Offset>(at) * static_cast<Offset>(kOutputStrides[row + d]);
        }
        held[i] = load<Unit>(src + from);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
        if (first + i * kThreads < kUnits[kBox]) store(dst + dst_offsets[i], held[i]);
}

template <int kBox> __device__ inline void copy_box(unsigned box, const Byte* src, Byte* dst, Wide tile) {
    if constexpr (kBox + 1 < kBoxes)
        if (box != kBox) return copy_box<kBox + 1>(box, src, dst, tile);
    copy_units<kBox>(src, dst, tile);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) strided(const __grid_constant__ Pointers pointers) {
    const int output = find<kOutputs>(kTileStarts, static_cast<unsigned>(blockIdx.x));
    copy_box<0>(kOutputBoxes[output], pointers.input + kOffsets[output], pointers.outputs[output],
                blockIdx.x - kTileStarts[output]);
}
