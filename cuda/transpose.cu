// Elements of 1 to 16 bytes that are contiguous along one dimension in the input ("down"), and along another one in the
// outputs ("across"). They are transposed tensors, or rows of outputs that are one element wide. In the latter, rows
// are across and outputs are down, so that each line of the output has its own pointer.
//
// A block copies a square of at most 16 KiB, kDown by kAcross elements. It reads the aligned vectors that hold lines of
// the input into shared memory. A thread then gathers vectors of the output; each element of such a vector is in
// another line of the input:
//
// - if all lines of outputs are aligned (kOutputAligned), the thread loads words, each with elements of kNear
//   neighbouring lines of the output, and transposes them in registers.
// - otherwise it loads elements. All lines of the output that it writes have the same phase, so that it computes the
//   places of the elements only once. A vector may begin up to kElements - 1 elements before the square, so kBefore
//   more lines of the input are read.
//
// Sizes are arguments. Only what changes the code is compiled in: the element (kUnit), the shape of a square
// (kDownVectors, kAcross), the numbers of outputs, planes and loops, and the alignment of lines. The addresses of all
// lines of the input are multiples of kInputAlign: 16, 4 or 1. If it is not 16, a line takes one vector more.
// Assumes at most 2^31 - 2^14 bytes down and across, and fewer than 2^31 squares.

constexpr int kElements = kVector / kUnit;
constexpr unsigned kDown = (kDownVectors - (kInputAlign < kVector)) * kElements;
constexpr int kRowVectors = kAcross / kElements;
constexpr int kInWord = kUnit < 4 ? 4 / kUnit : 1;
constexpr int kNear = kOutputAligned ? kInWord : 1;
constexpr int kBefore = kOutputAligned ? 0 : kElements;
constexpr int kLoadLines = kThreads / kDownVectors;  // lines that a block reads with one load per thread
constexpr int kLoads = (kAcross + kBefore + kLoadLines - 1) / kLoadLines;
using Element = typename Unsigned<kUnit>::Type;

struct Square {
    int output;
    unsigned plane;         // in which the output's elements are
    unsigned down, across;  // its first elements
    long long input_offset, output_offset;  // of its plane's first element, in bytes
};

// Removes the lowest digit of a number, whose base is the size of a loop.
__device__ inline unsigned digit(const Parameters& launch, unsigned entry, unsigned& number) {
    const unsigned rest = quotient(number, launch.by_counts[entry]);
    const unsigned last = number - rest * launch.counts[entry];
    number = rest;
    return last;
}

// Squares of an output are numbered down, then across, then along the loops around their plane.
__device__ inline Square find_square(const Parameters& launch) {
    Square square{find<kEntries>(launch.starts, static_cast<unsigned>(blockIdx.x))};
    if (kPlanes > 1) square.plane = launch.planes[square.output];
    unsigned number = blockIdx.x - launch.starts[square.output], entry = square.plane * (kLoops + 1);
    square.down = digit(launch, entry, number) * kDown;
    square.across = (kLoops ? digit(launch, ++entry, number) : number) * kAcross;
    square.input_offset = launch.offsets[square.output];
#pragma unroll(kLoops == 2 ? 2 : 1)  // more loops, unrolled, would need too many registers
    for (int d = 0; d < kLoops; ++d) {
        const unsigned at = d + 1 < kLoops ? digit(launch, ++entry, number) : number;
        square.input_offset += at * launch.input_strides[square.plane * kLoops + d];
        square.output_offset += at * launch.output_strides[square.plane * kLoops + d];
    }
    return square;
}

// Where lines are in shared memory. Each begins at the phase that it has in the input, and phases repeat after a group
// of kElements lines. A warp loads from eight groups at once, so groups begin in different banks.
struct Lines {
    unsigned low, pitch, group;  // the first line's phase; bytes from line to line, and from group to group

    __device__ unsigned place(unsigned line) const { return low + line % kElements * pitch + line / kElements * group; }
};

template <bool kWhole>
__device__ inline Lines read_square(Byte* shared, const Parameters& launch, const Square& square) {
    const long long stride = launch.across_strides[square.plane];
    const int first = static_cast<int>(square.across) - kBefore;
    const int count = static_cast<int>(launch.across_sizes[square.plane]);
    const Byte* const corner = launch.input + square.input_offset + (first * stride + square.down * kUnit);
    const unsigned ahead = static_cast<unsigned>(stride & (kVector - 1)), pitch = kDownVectors * kVector + ahead;
    const Lines lines = {phase(corner), pitch, kElements * pitch + (ahead / kUnit % 2 ? 0u : kVector + 0u)};

    const unsigned vector = threadIdx.x % kDownVectors, line = threadIdx.x / kDownVectors;
    const Byte* const begin = corner + line * stride;
    const unsigned low = phase(begin), columns = min(launch.down_sizes[square.plane] - square.down, kDown);
    const bool is_read = vector * kVector < columns * kUnit + low;
    const Byte* src = settled(begin - low + vector * kVector);
    constexpr int last = kLoads - 1, rest = kAcross + kBefore - last * kLoadLines;  // lines of the last load
    const auto has = [&](int i) { return i < last || rest == kLoadLines || line < rest; };
    uint4 held[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i, src += kLoadLines * stride) {
        const int from = first + static_cast<int>(line), step = i * kLoadLines;
        if constexpr (!kWhole) held[i] = {};
        if (is_read && has(i) && (kWhole || (from >= -step && from < count - step))) held[i] = load<uint4>(src);
    }
    Byte* const place = shared + (lines.place(line) - low + vector * kVector);
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
        if ((is_read || !kWhole) && has(i))
            *reinterpret_cast<uint4*>(place + i * (kLoadLines / kElements) * lines.group) = held[i];
    return lines;
}

// Loads a word from any place, or an element from a multiple of its size.
template <class Part> __device__ inline Part part_at(const Byte* shared, unsigned place) {
    const auto at = [&](unsigned multiple) { return *reinterpret_cast<const Part*>(shared + multiple); };
    if constexpr (kNear > 1 && kInputAlign < 4)
        return __funnelshift_r(at(place / 4 * 4), at((place + 3) / 4 * 4), place * 8);
    else return at(place);
}

// Transposes parts, each of which has one element of kNear neighbouring lines, into one vector of each line. kNear is
// four for bytes, two for 16-bit elements, and otherwise one. Of two words, the permutation 0x5410 joins the lower
// halves and 0x7632 the upper ones; 0x5140 interleaves the bytes of the lower halves and 0x7362 those of the upper.
template <class Part> __device__ inline void transpose_parts(const Part (&parts)[kElements], uint4 (&vectors)[kNear]) {
    if constexpr (kNear == 1) {
        vectors[0] = vector_of(parts);
    } else {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const Part* const in_word = parts + w * kNear;
            const auto two = [&](int i, unsigned order) { return __byte_perm(in_word[i], in_word[i + 1], order); };
#pragma unroll
            for (int n = 0; n < kNear; ++n) {
                const unsigned order = n % 2 ? 0x7632 : 0x5410;
                unsigned& word = reinterpret_cast<unsigned*>(&vectors[n])[w];
                if (kNear == 2) word = two(0, order);
                else word = __byte_perm(two(0, n < 2 ? 0x5140 : 0x7362), two(2, n < 2 ? 0x5140 : 0x7362), order);
            }
        }
    }
}

// Stores the vector whose first element is number `at` of a line of `count`, or only the elements that the line has.
__device__ inline void store_vector(Byte* dst, const uint4& held, int at, int count, Wide policy) {
    using Word = typename Unsigned<kInWord * kUnit>::Type;
    if (at >= 0 && at <= count - kElements) return store(dst, held, policy);
#pragma unroll
    for (int i = 0; i < kElements; i += kInWord) {
        if (at >= -i && at <= count - kInWord - i)
            store(dst + i * kUnit, reinterpret_cast<const Word*>(&held)[i / kInWord], policy);
        else if (kInWord > 1 && at > -kInWord - i && at < count - i)
#pragma unroll
            for (int n = i; n < i + kInWord; ++n)
                if (at >= -n && at < count - n)
                    store(dst + n * kUnit, reinterpret_cast<const Element*>(&held)[n], policy);
    }
}

template <bool kWhole>
__device__ inline void copy_square(Byte* shared, const Parameters& launch, const Square& square) {
    const Lines lines = read_square<kWhole>(shared, launch, square);
    __syncthreads();
    // A warp writes eight neighbouring vectors of each of four lines, whose elements are in different words. A load of
    // words, or of narrower elements, therefore reads one word from each of the 32 banks.
    constexpr int at_once = kThreads / kRowVectors, step = at_once * kNear;
    constexpr int apart = kNear > 1 ? 1 : kInWord < at_once / 4 ? kInWord : at_once / 4;
    const unsigned vector = threadIdx.x % 8 + threadIdx.x / 32 % (kRowVectors / 8) * 8;
    const unsigned number = threadIdx.x / 8 % 4 + threadIdx.x / (kRowVectors * 4) * 4;
    const unsigned first = (number % 4 * apart + number / 4 % apart + number / (4 * apart) * (4 * apart)) * kNear;
    const long long stride = launch.down_strides[square.plane];
    const unsigned across = square.across + vector * kElements;
    const long long offset = square.output_offset + across * kUnit;
    Byte* dst = launch.outputs[square.output] + offset + (square.down + first) * stride;
    const unsigned shift = kOutputAligned ? 0u : phase(dst) / kUnit;
    dst -= shift * kUnit;

    unsigned places[kElements], place = lines.place(kBefore + vector * kElements - shift) + first * kUnit;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
        places[i] = settled(place);
        place += lines.pitch;
        if (!kOutputAligned && i + 1u == shift) place += lines.group - kElements * lines.pitch;
    }
    const unsigned rows = min(launch.down_sizes[square.plane] - square.down, kDown);
    const int at = static_cast<int>(across) - static_cast<int>(shift);
    const int count = static_cast<int>(launch.across_sizes[square.plane]);
    if (!kWhole && (at >= count || at <= -kElements)) return;
#pragma unroll
    for (unsigned row = 0; row < kDown; row += step) {
        if ((!kWhole || row + step > kDown) && first + row >= rows) break;
        using Part = typename Unsigned<kNear * kUnit>::Type;
        Part parts[kElements];
        uint4 held[kNear];
#pragma unroll
        for (int i = 0; i < kElements; ++i) parts[i] = part_at<Part>(shared, places[i] + row * kUnit);
        transpose_parts(parts, held);
#pragma unroll
        for (int n = 0; n < kNear; ++n, dst += stride) {
            if (!kWhole && kNear > 1 && first + row + n >= rows) break;
            if constexpr (kPointers) dst = launch.outputs[square.down + first + row + n] + offset;
            if (kWhole) store(dst, held[n], launch.policy);
            else store_vector(dst, held[n], at, count, launch.policy);
        }
        dst += (step - kNear) * stride;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) transpose(const __grid_constant__ Parameters launch) {
    alignas(kVector) __shared__ Byte shared[kShared * kVector];
    const Square square = find_square(launch);
    const bool has_lines = square.across >= kBefore && square.across + kAcross <= launch.across_sizes[square.plane];
    const bool is_whole = has_lines && square.down + kDown <= launch.down_sizes[square.plane];
    is_whole ? copy_square<true>(shared, launch, square) : copy_square<false>(shared, launch, square);
}
