// Elements of 1 to 16 bytes that are contiguous along one dimension in the input ("down"), and along
// another in the outputs ("across"). These are transposed tensors; and rows of outputs that are one
// element wide, where rows are across and outputs are down, so that each line has its own pointer.
//
// A block copies a square of 16 KiB, kDown by kAcross elements. A thread reads a vector from each of four
// neighbouring lines of the input, and transposes them in registers. It now has four neighbouring elements
// of kElements lines of the output, and stores them in shared memory, where a row is such a line. Then
// neighbouring threads write neighbouring parts of a row, kWrite bytes each.
//
// No size is compiled, only what changes the code: the element (kUnit), the shape of a square (kDownVectors),
// the numbers of outputs, nests and loops, and the alignments kRead and kWrite. These are powers of two
// up to 16 that divide the address of every line; kRead is 1 where it would be 2. Assumes less than 2^31
// bytes down and across, and less than 2^31 squares.

constexpr int kLines = 4;  // of the input, for each thread
constexpr unsigned kElements = kVector / kUnit;
constexpr unsigned kDown = kDownVectors * kElements;
constexpr unsigned kAcross = kLines * kThreads / kDownVectors;
constexpr unsigned kRowBytes = kAcross * kUnit;
// While some blocks of an SM wait at their barriers, others read and write. Six need 40 registers each, too few
// to look up one of several nests.
constexpr int kBlocks = kNests > 1 ? 5 : 6;

struct Square {
    int output;
    unsigned nest;          // of the output
    unsigned down, across;  // its first elements
    long long from, to;     // where the loops around it are in the input and the output, in bytes
};

// Removes the lowest digit of a number, whose base is the size of a loop.
__device__ inline unsigned digit(const Parameters& launch, unsigned entry, unsigned& number) {
    const unsigned rest = quotient(number, launch.by_counts[entry]);
    const unsigned last = number - rest * launch.counts[entry];
    number = rest;
    return last;
}

// Squares of an output are numbered down, then across, then along the loops around.
__device__ inline Square find_square(const Parameters& launch) {
    Square square{find<kSegments>(launch.starts, static_cast<unsigned>(blockIdx.x))};
    if (kNests > 1) square.nest = launch.nests[square.output];
    unsigned number = blockIdx.x - launch.starts[square.output], entry = square.nest * (kLoops + 1);
    square.down = digit(launch, entry, number) * kDown;
    square.across = (kLoops ? digit(launch, ++entry, number) : number) * kAcross;
    square.from = launch.offsets[square.output];
#pragma unroll(kLoops == 2 ? 2 : 1)  // all of more loops would need too many registers
    for (int d = 0; d < kLoops; ++d) {
        const unsigned at = d + 1 < kLoops ? digit(launch, ++entry, number) : number;
        square.from += at * launch.input_strides[square.nest * kLoops + d];
        square.to += at * launch.output_strides[square.nest * kLoops + d];
    }
    return square;
}

// Reads a vector of a line; unless it kMayPass the end, only parts with at least one of the `left` bytes.
template <bool kMayPass> __device__ inline uint4 read_vector(const Byte* src, int left) {
    alignas(kVector) unsigned words[5] = {};
    if constexpr (kRead >= 4) {
        using Part = typename Unsigned<kRead>::Type;
#pragma unroll
        for (int i = 0; i < kVector; i += kRead)
            if (kMayPass || i < left) *reinterpret_cast<Part*>(words + i / 4) = load<Part>(src + i);
        return make_uint4(words[0], words[1], words[2], words[3]);
    } else {
        const unsigned shift = phase(src, 4);
        const int end = (kMayPass ? kVector : min(left, kVector)) + static_cast<int>(shift);
#pragma unroll
        for (int i = 0; i < 5; ++i)
            if ((kMayPass && i < 4) || 4 * i < end) words[i] = load<unsigned>(src - shift + 4 * i);
        return funnel(words, shift);
    }
}

// Sorts four lines of a vector each into rows of four elements each, in `rows` one after the other.
__device__ inline void transpose_words(const uint4 (&lines)[kLines], unsigned (&rows)[16]) {
    const uint4 &a = lines[0], &b = lines[1], &c = lines[2], &d = lines[3];
    const unsigned words[4][kLines] = {
        {a.x, b.x, c.x, d.x}, {a.y, b.y, c.y, d.y}, {a.z, b.z, c.z, d.z}, {a.w, b.w, c.w, d.w}};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const auto& [a, b, c, d] = words[w];
        if constexpr (kUnit == 1) {
            const unsigned low_ab = __byte_perm(a, b, 0x5140), high_ab = __byte_perm(a, b, 0x7362);
            const unsigned low_cd = __byte_perm(c, d, 0x5140), high_cd = __byte_perm(c, d, 0x7362);
            rows[4 * w] = __byte_perm(low_ab, low_cd, 0x5410);
            rows[4 * w + 1] = __byte_perm(low_ab, low_cd, 0x7632);
            rows[4 * w + 2] = __byte_perm(high_ab, high_cd, 0x5410);
            rows[4 * w + 3] = __byte_perm(high_ab, high_cd, 0x7632);
        } else if constexpr (kUnit == 2) {
            rows[4 * w] = __byte_perm(a, b, 0x5410), rows[4 * w + 1] = __byte_perm(c, d, 0x5410);
            rows[4 * w + 2] = __byte_perm(a, b, 0x7632), rows[4 * w + 3] = __byte_perm(c, d, 0x7632);
        } else {
            constexpr int size = kUnit / 4;  // of an element, in words
#pragma unroll
            for (int line = 0; line < kLines; ++line)
                rows[w / size * kUnit + line * size + w % size] = words[w][line];
        }
    }
}

// XORed with the places in a row of shared memory. Threads that store at the same time have rows that are a
// vector's elements apart, or columns: with the swizzle, there are no bank conflicts.
__device__ inline constexpr unsigned swizzle(unsigned row) {
    return row / kElements * (kDownVectors < 8 ? 8 / kDownVectors : 1) % 8 * kVector;
}

// Reads a square's vectors into shared memory. A line may be read past its end, into the next one, if all
// lines of the square have a next one.
template <bool kMayPass>
__device__ inline void read_square(Byte* shared, const Parameters& launch, const Square& square) {
    constexpr int chunk = kLines * kUnit;  // bytes that a thread has of a row
    using Piece = typename Unsigned<chunk < kVector ? chunk : kVector>::Type;
    const unsigned vector = threadIdx.x % kDownVectors, line = threadIdx.x / kDownVectors * kLines;
    const unsigned columns = launch.acrosses[square.nest] - square.across;
    const unsigned bytes = (launch.downs[square.nest] - square.down) * kUnit;
    const unsigned byte = min(vector, (bytes - 1) / kVector) * kVector;  // the last one again beyond the end
    const long long stride = launch.across_strides[square.nest];
    const Byte* src = launch.input + square.from + (square.across + line) * stride + (square.down * kUnit + byte);
    uint4 held[kLines] = {};
#pragma unroll
    for (unsigned i = 0; i < kLines; ++i, src += stride)
        if (kMayPass || line + i < columns) held[i] = read_vector<kMayPass>(src, static_cast<int>(bytes - byte));

    alignas(kVector) unsigned rows[16];
    transpose_words(held, rows);
    Byte* const row = shared + vector * (kElements * kRowBytes);
    const unsigned place = line * kUnit ^ swizzle(vector * kElements);
#pragma unroll
    for (unsigned i = 0; i < kLines * kVector; i += sizeof(Piece))
        *reinterpret_cast<Piece*>(row + i / chunk * kRowBytes + (place ^ i % chunk)) =
            *reinterpret_cast<const Piece*>(rows + i / 4);
}

template <bool kWhole>
__device__ inline void write_square(const Byte* shared, const Parameters& launch, const Square& square) {
    using Part = typename Unsigned<kWrite>::Type;
    using Element = typename Unsigned<kUnit>::Type;
    constexpr unsigned row_parts = kRowBytes / kWrite;
    constexpr unsigned step = kThreads / row_parts;  // rows that are written at the same time
    static_assert(step > 0);
    const unsigned first = threadIdx.x / row_parts, byte = threadIdx.x % row_parts * kWrite;
    const unsigned rows = launch.downs[square.nest] - square.down;
    const int left = static_cast<int>((launch.acrosses[square.nest] - square.across) * kUnit) - static_cast<int>(byte);
    const Byte* const row_src = shared + first * kRowBytes;
    const unsigned place = byte ^ swizzle(first);

    const long long stride = launch.down_strides[square.nest];
    const long long to = square.to + square.across * kUnit + byte;
    Byte* dst = launch.outputs[square.output] + to + (square.down + first) * stride;
#pragma unroll
    for (unsigned row = 0; row < kDown; row += step, dst += step * stride) {
        if (!kWhole && first + row >= rows) break;
        if constexpr (kPointers) dst = launch.outputs[square.down + first + row] + to;
        // The swizzle of a sum is that of both, as they have no bit in common.
        const Byte* const src = row_src + row * kRowBytes;
        if (kWhole || left >= kWrite)
            store(dst, *reinterpret_cast<const Part*>(src + (place ^ swizzle(row))), launch.policy);
        else
#pragma unroll 1
            for (int i = 0; i < left; i += kUnit)
                store(dst + i, *reinterpret_cast<const Element*>(src + (place ^ swizzle(row)) + i), launch.policy);
    }
}

template <bool kWhole>
__device__ inline void transpose_square(Byte* shared, const Parameters& launch, const Square& square) {
    const unsigned next = square.across + kAcross;
    if (kWhole || (next < launch.acrosses[square.nest] && launch.across_strides[square.nest] >= kVector))
        read_square<true>(shared, launch, square);
    else
        read_square<false>(shared, launch, square);
    __syncthreads();
    write_square<kWhole>(shared, launch, square);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) transpose(const __grid_constant__ Parameters launch) {
    __shared__ uint4 memory[kDown * kRowBytes / kVector];
    Byte* const shared = reinterpret_cast<Byte*>(memory);
    const Square square = find_square(launch);
    const bool has_rows = square.down + kDown <= launch.downs[square.nest];
    if (has_rows && square.across + kAcross <= launch.acrosses[square.nest])
        transpose_square<true>(shared, launch, square);
    else
        transpose_square<false>(shared, launch, square);
}
