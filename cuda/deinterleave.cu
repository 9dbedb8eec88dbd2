// Rows of a few equal elements of 1, 2, 4 or 8 bytes: RGB and RGBA pixels, complex numbers, points.
//
// One thread takes kOutputs * 16 contiguous bytes, which are 16 / kWidth rows, sorts them in registers
// with byte permutations whose selectors are constants, and writes one 16-byte vector to each output.
// Neighbouring threads take neighbouring groups of rows.
//
// Assumes 16-byte aligned pointers and rows without padding. The remaining rows at the end, fewer
// than one thread takes, are copied element by element by the last block.

constexpr int kGroupRows = kVector / kWidth;
constexpr int kWords = kOutputs * kVector / 4;

// Where byte `byte` of an output's vector is among the bytes that the thread holds.
__device__ constexpr int origin(int output, int byte) {
    return byte / kWidth * (kOutputs * kWidth) + output * kWidth + byte % kWidth;
}

template <int kOutput, int kByte> __device__ inline unsigned sorted_word(const unsigned (&words)[kWords]) {
    constexpr int a = origin(kOutput, kByte), b = origin(kOutput, kByte + 1);
    constexpr int c = origin(kOutput, kByte + 2), d = origin(kOutput, kByte + 3);
    if constexpr (kWidth >= 4) {
        return words[a / 4];
    } else if constexpr (kWidth == 2) {
        return __byte_perm(words[a / 4], words[c / 4], (a % 4) | (b % 4) << 4 | (4 + c % 4) << 8 | (4 + d % 4) << 12);
    } else {
        const unsigned low = __byte_perm(words[a / 4], words[b / 4], (a % 4) | (4 + b % 4) << 4);
        const unsigned high = __byte_perm(words[c / 4], words[d / 4], (c % 4) | (4 + d % 4) << 4);
        return __byte_perm(low, high, 0x5410);
    }
}

template <int kOutput> __device__ inline void store_outputs(const Parameters& launch, Wide group, const unsigned (&words)[kWords]) {
    if constexpr (kOutput < kOutputs) {
        const uint4 sorted = make_uint4(sorted_word<kOutput, 0>(words), sorted_word<kOutput, 4>(words),
                                        sorted_word<kOutput, 8>(words), sorted_word<kOutput, 12>(words));
        store(launch.outputs[kOutput] + group * kVector, sorted, launch.policy);
        store_outputs<kOutput + 1>(launch, group, words);
    }
}

__device__ inline void copy_last_rows(const Parameters& launch) {
    using Element = typename Unsigned<kWidth>::Type;
    const Wide first = launch.rows / kGroupRows * kGroupRows;
    for (int i = threadIdx.x; i < static_cast<int>(launch.rows - first) * kOutputs; i += kThreads) {
        const Wide row = first + i / kOutputs;
        const int output = i % kOutputs;
        store(launch.outputs[output] + row * kWidth, load<Element>(launch.input + (row * kOutputs + output) * kWidth), launch.policy);
    }
}

__device__ inline void copy_group(const Parameters& launch, Wide group) {
    unsigned words[kWords];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
        const uint4 held = load<uint4>(launch.input + (group * kOutputs + i) * kVector);
        words[4 * i] = held.x, words[4 * i + 1] = held.y, words[4 * i + 2] = held.z, words[4 * i + 3] = held.w;
    }
    store_outputs<0>(launch, group, words);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) deinterleave(const __grid_constant__ Parameters launch) {
    const Wide group = static_cast<Wide>(blockIdx.x) * kThreads + threadIdx.x;
    // All groups of other blocks are whole, which spares their threads a comparison.
    if (blockIdx.x < gridDim.x - 1) return copy_group(launch, group);
    if (group < launch.rows / kGroupRows) copy_group(launch, group);
    copy_last_rows(launch);
}
