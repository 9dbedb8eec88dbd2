// Loop nests that are contiguous along one dimension in the input and along another in the output.
//
// A block takes a square of kSide x kSide elements. It reads the square along the input's rows,
// transposes it in shared memory, and writes it along the output's rows, so that both accesses are
// contiguous. The other dimensions number the squares. One column of padding avoids bank conflicts.
//
// "Down" is the dimension in which the input is contiguous, "across" that of the output.

using Element = typename Unsigned<kUnit>::Type;

template <int kNest>
__device__ inline void transpose_square(Element (&elements)[kSide][kSide + 1], const Byte* src, Byte* dst, Wide square) {
    constexpr Wide across_squares = (kAcross[kNest] + kSide - 1) / kSide;
    constexpr Wide down_squares = (kDown[kNest] + kSide - 1) / kSide;
    const Wide across = square % across_squares * kSide;
    square /= across_squares;
    const Wide down = square % down_squares * kSide;
    square /= down_squares;

    long long from = static_cast<long long>(across) * kAcrossStride[kNest] + static_cast<long long>(down) * kUnit;
    long long to = static_cast<long long>(down) * kDownStride[kNest] + static_cast<long long>(across) * kUnit;
#pragma unroll
    for (int d = kDimensions - 1; d >= 0; --d) {
        constexpr int row = kNest * kDimensions;
        const Wide at = square % kSizes[row + d];
        square /= kSizes[row + d];
        from += static_cast<long long>(at) * kInputStrides[row + d];
        to += static_cast<long long>(at) * kOutputStrides[row + d];
    }

    const unsigned lane = threadIdx.x % kSide, first = threadIdx.x / kSide;
    constexpr unsigned step = kThreads / kSide;
    Element held[kSide / step] = {};
#pragma unroll
    for (int i = 0; i < kSide / step; ++i) {
        const unsigned line = first + i * step;
        if (across + line < kAcross[kNest] && down + lane < kDown[kNest])
            held[i] = load<Element>(src + from + static_cast<long long>(line) * kAcrossStride[kNest] + lane * kUnit);
    }
#pragma unroll
    for (int i = 0; i < kSide / step; ++i) elements[first + i * step][lane] = held[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSide / step; ++i) {
        const unsigned line = first + i * step;
        if (down + line < kDown[kNest] && across + lane < kAcross[kNest])
            store(dst + to + static_cast<long long>(line) * kDownStride[kNest] + lane * kUnit, elements[lane][line]);
    }
}

template <int kNest>
__device__ inline void transpose_nest(unsigned nest, Element (&elements)[kSide][kSide + 1], const Byte* src, Byte* dst,
                                Wide square) {
    if constexpr (kNest + 1 < kNests)
        if (nest != kNest) return transpose_nest<kNest + 1>(nest, elements, src, dst, square);
    transpose_square<kNest>(elements, src, dst, square);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) transpose(const __grid_constant__ Parameters launch) {
    // Declared once: the code of each nest would add an array of its own.
    __shared__ Element elements[kSide][kSide + 1];
    const int output = find<kOutputs>(kTileStarts, static_cast<unsigned>(blockIdx.x));
    transpose_nest<0>(kOutputNests[output], elements, launch.input + kOffsets[output], launch.outputs[output],
                blockIdx.x - kTileStarts[output]);
}
