// Boxes whose neighbours lie along one dimension in the input and along another in the output.
//
// A block takes a square of kSide x kSide elements. It reads it along the input's rows, turns it in
// shared memory, and writes it along the output's rows, so that both sides are contiguous. The
// other dimensions number the squares. One column of padding keeps the banks of shared memory apart.
//
// "Down" is the dimension in which the input is contiguous, "across" that of the output.

using Element = typename Unsigned<kUnit>::Type;

template <int kBox>
__device__ inline void turn_square(Element (&elements)[kSide][kSide + 1], const Byte* src, Byte* dst, Wide square) {
    constexpr Wide across_squares = (kAcross[kBox] + kSide - 1) / kSide;
    constexpr Wide down_squares = (kDown[kBox] + kSide - 1) / kSide;
    const Wide across = square % across_squares * kSide;
    square /= across_squares;
    const Wide down = square % down_squares * kSide;
    square /= down_squares;

    long long from = static_cast<long long>(across) * kAcrossStride[kBox] + static_cast<long long>(down) * kUnit;
    long long to = static_cast<long long>(down) * kDownStride[kBox] + static_cast<long long>(across) * kUnit;
#pragma unroll
    for (int d = kDimensions - 1; d >= 0; --d) {
        constexpr int row = kBox * kDimensions;
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
        if (across + line < kAcross[kBox] && down + lane < kDown[kBox])
            held[i] = load<Element>(src + from + static_cast<long long>(line) * kAcrossStride[kBox] + lane * kUnit);
    }
#pragma unroll
    for (int i = 0; i < kSide / step; ++i) elements[first + i * step][lane] = held[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSide / step; ++i) {
        const unsigned line = first + i * step;
        if (down + line < kDown[kBox] && across + lane < kAcross[kBox])
            store(dst + to + static_cast<long long>(line) * kDownStride[kBox] + lane * kUnit, elements[lane][line]);
    }
}

template <int kBox>
__device__ inline void turn_box(unsigned box, Element (&elements)[kSide][kSide + 1], const Byte* src, Byte* dst,
                                Wide square) {
    if constexpr (kBox + 1 < kBoxes)
        if (box != kBox) return turn_box<kBox + 1>(box, elements, src, dst, square);
    turn_square<kBox>(elements, src, dst, square);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) transpose(const __grid_constant__ Pointers pointers) {
    // Declared once: the code of each box would add an array of its own.
    __shared__ Element elements[kSide][kSide + 1];
    const int output = find<kOutputs>(kTileStarts, static_cast<unsigned>(blockIdx.x));
    turn_box<0>(kOutputBoxes[output], elements, pointers.input + kOffsets[output], pointers.outputs[output],
                blockIdx.x - kTileStarts[output]);
}
