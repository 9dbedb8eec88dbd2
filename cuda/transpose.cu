// Transposes elements of 1 to 16 bytes that are contiguous along one dimension in the input ("down"), and along another
// one in the outputs ("across"). This serves transposed tensors, and splits into outputs that are one element wide.
// There, a row of the input is a line down, and each output is a line across, with a pointer of its own (kPointers).
//
// A block copies a tile of at most 16 KiB, kDown by kAcross elements. It reads the aligned vectors that hold lines of
// the input into shared memory. A thread then gathers vectors of the output; each element of such a vector is in
// another line of the input:
//
// - if all lines of outputs are aligned (kOutputAligned), the thread loads words, each with elements of kNear
//   neighbouring lines of the output, and transposes them in registers. Elements of
//   a word or more are loaded one by one, and need no transposition.
// - otherwise it loads elements. All lines of the output that it writes have the same phase, because they are a
//   multiple of kElements lines apart, and lines a multiple of kUnit bytes: together a multiple of 16. It therefore
//   computes only once where the elements are. A vector may begin up to kElements - 1 elements before the tile, so a
//   whole group of kBefore = kElements more lines of the input is read: shared memory then has the tile's own lines
//   from the start of a group.
//
// Sizes are arguments. Only what changes the code is compiled in: the element (kUnit), the shape of a tile
// (kDownVectors, kAcross), the number of loops (kLoops), the room for entries of the tables and for planes (kEntries,
// kPlanes), and the alignment of lines. The addresses of all lines of the input are multiples of kInputAlign: 16, 4 or
// 1. If it is not 16, a line of a tile may begin inside a vector, so its kDown elements are one vector fewer than the
// kDownVectors that are read.
// Assumes at most 2^31 - 2^14 bytes down and across, and fewer than 2^31 tiles, each of which is a block.

constexpr int kElements = kVector / kUnit;  // of a vector
constexpr unsigned kDown = (kDownVectors - (kInputAlign < kVector)) * kElements;  // elements of an input line
constexpr int kLineVectors = kAcross / kElements;  // of an output line in a tile
constexpr int kInWord = kUnit < 4 ? 4 / kUnit : 1;  // elements that a word holds, at least one
constexpr int kNear = kOutputAligned ? kInWord : 1;  // neighbouring output lines that a thread writes together
constexpr int kBefore = kOutputAligned ? 0 : kElements;  // lines of the input before the tile
constexpr int kLoadLines = kThreads / kDownVectors;  // lines that a block reads with one load per thread
constexpr int kLoads = (kAcross + kBefore + kLoadLines - 1) / kLoadLines;
using Element = typename Unsigned<kUnit>::Type;

struct Tile {
    int entry;  // of the tables: an output, or with kPointers all outputs
    unsigned plane;  // index of the entry's plane in the tables
    unsigned down, across;  // where the tile begins in its plane, in elements
    long long input_offset, output_offset;  // of its plane's first element, in bytes
};

// Splits the lowest digit off a number in mixed radix, and returns it. Its base is counts[`count_index`].
__device__ inline unsigned take_digit(const Parameters& launch, unsigned count_index, unsigned& number) {
    const unsigned rest = quotient(number, launch.by_counts[count_index]);
    const unsigned digit = number - rest * launch.counts[count_index];
    number = rest;
    return digit;
}

// Tiles of an output are numbered down, then across, then along the loops around their plane.
__device__ inline Tile find_tile(const Parameters& launch) {
    Tile tile{last_at_most<kEntries>(launch.starts, static_cast<unsigned>(blockIdx.x))};
    if (kPlanes > 1) tile.plane = launch.planes[tile.entry];
    unsigned number = blockIdx.x - launch.starts[tile.entry], count_index = tile.plane * (kLoops + 1);
    tile.down = take_digit(launch, count_index, number) * kDown;
    tile.across = (kLoops ? take_digit(launch, ++count_index, number) : number) * kAcross;
    tile.input_offset = launch.offsets[tile.entry];
#pragma unroll(kLoops == 2 ? 2 : 1)  // more loops, unrolled, would need too many registers
    for (int d = 0; d < kLoops; ++d) {
        const unsigned digit = d + 1 < kLoops ? take_digit(launch, ++count_index, number) : number;
        tile.input_offset += digit * launch.input_strides[tile.plane * kLoops + d];
        tile.output_offset += digit * launch.output_strides[tile.plane * kLoops + d];
    }
    return tile;
}

// Where the lines of the input are in shared memory. Each begins at the phase that it has in the input, and phases
// repeat after a group of kElements lines.
struct SharedLines {
    unsigned begin;  // the first line's offset
    unsigned line_pitch, group_pitch;  // bytes from line to line in a group, and from group to group

    __device__ unsigned offset(unsigned line) const {
        return begin + line % kElements * line_pitch + line / kElements * group_pitch;
    }
};

// Reads the lines of the input that a tile needs. kFull: all of them exist.
template <bool kFull>
__device__ inline SharedLines read_tile(Byte* shared, const Parameters& launch, const Tile& tile) {
    const long long stride = launch.across_strides[tile.plane];
    const int first_line = static_cast<int>(tile.across) - kBefore;  // may be negative
    const int count = static_cast<int>(launch.across_sizes[tile.plane]);
    const Byte* const corner = launch.input + tile.input_offset + (first_line * stride + tile.down * kUnit);
    // The phase advances from line to line. Groups are an odd number of vectors apart. The eight successive ones from
    // which a warp loads at once therefore begin in different sets of four banks.
    const unsigned advance = static_cast<unsigned>(stride & (kVector - 1)), pitch = kDownVectors * kVector + advance;
    const unsigned odd_vector = advance / kUnit % 2 ? 0u : static_cast<unsigned>(kVector);
    const SharedLines input_lines = {phase(corner), pitch, kElements * pitch + odd_vector};

    // The thread reads the same vector of every kLoadLines-th line. kLoadLines is a multiple of kElements, because
    // kDownVectors is at most 8 * kUnit, so these lines have the same phase.
    const unsigned vector = threadIdx.x % kDownVectors, line = threadIdx.x / kDownVectors;
    const Byte* const line_begin = corner + line * stride;
    const unsigned line_phase = phase(line_begin), elements = min(launch.down_sizes[tile.plane] - tile.down, kDown);
    const bool is_read = vector * kVector < elements * kUnit + line_phase;
    const Byte* src = opaque(line_begin - line_phase + vector * kVector);
    constexpr int last_load = kLoads - 1, last_lines = kAcross + kBefore - last_load * kLoadLines;
    const auto has_line = [&](int i) { return i < last_load || last_lines == kLoadLines || line < last_lines; };
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i, src += kLoadLines * stride) {
        const int plane_line = first_line + static_cast<int>(line), skip = i * kLoadLines;
        if constexpr (!kFull) loaded[i] = {};
        if (is_read && has_line(i) && (kFull || (plane_line >= -skip && plane_line < count - skip)))
            loaded[i] = load<uint4>(src);
    }
    Byte* const dst = shared + (input_lines.offset(line) - line_phase + vector * kVector);
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
        if ((is_read || !kFull) && has_line(i))
            *reinterpret_cast<uint4*>(dst + i * (kLoadLines / kElements) * input_lines.group_pitch) = loaded[i];
    return input_lines;
}

// Loads an element or a word. If lines are not aligned to words, a word is shifted out of the two that hold it.
template <class Part> __device__ inline Part part_at(const Byte* shared, unsigned offset) {
    const auto load_part = [&](unsigned multiple) { return *reinterpret_cast<const Part*>(shared + multiple); };
    if constexpr (kNear > 1 && kInputAlign < 4)
        return __funnelshift_r(load_part(offset / 4 * 4), load_part((offset + 3) / 4 * 4), offset * 8);
    else return load_part(offset);
}

// Selectors of __byte_perm, as in common.cuh: the upper halves of two words, or the interleaved bytes of their halves.
constexpr unsigned kHighHalves = 0x7632, kInterleavedLow = 0x5140, kInterleavedHigh = 0x7362;

// Transposes parts, each of which has one element of each of kNear neighbouring output lines, into one vector of each
// of these lines. With kOutputAligned, kNear is four for bytes and two for 16-bit elements. Otherwise it is one.
template <class Part> __device__ inline void transpose_parts(const Part (&parts)[kElements], uint4 (&vectors)[kNear]) {
    if constexpr (kNear == 1) {
        vectors[0] = vector_of(parts);
    } else {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            const Part* const in_word = parts + w * kNear;
            const auto joined_pair = [&](int i, unsigned by) { return __byte_perm(in_word[i], in_word[i + 1], by); };
#pragma unroll
            for (int n = 0; n < kNear; ++n) {
                const unsigned halves = n % 2 ? kHighHalves : kLowHalves;
                const unsigned interleaved = n < 2 ? kInterleavedLow : kInterleavedHigh;
                unsigned& word = reinterpret_cast<unsigned*>(&vectors[n])[w];
                if (kNear == 2) word = joined_pair(0, halves);
                else word = __byte_perm(joined_pair(0, interleaved), joined_pair(2, interleaved), halves);
            }
        }
    }
}

// Stores the vector that begins with number `first` of a line's `count` elements, or only those that the line has.
__device__ inline void store_vector(Byte* dst, const uint4& vector, int first, int count, U64 policy) {
    using Word = typename Unsigned<kInWord * kUnit>::Type;
    if (first >= 0 && first <= count - kElements) return store(dst, vector, policy);
#pragma unroll
    for (int i = 0; i < kElements; i += kInWord) {
        // The line has the whole word, or some of its elements.
        if (first >= -i && first <= count - kInWord - i)
            store(dst + i * kUnit, reinterpret_cast<const Word*>(&vector)[i / kInWord], policy);
        else if (kInWord > 1 && first > -kInWord - i && first < count - i)
#pragma unroll
            for (int n = i; n < i + kInWord; ++n)
                if (first >= -n && first < count - n)
                    store(dst + n * kUnit, reinterpret_cast<const Element*>(&vector)[n], policy);
    }
}

// Copies a tile. A thread writes one vector of each of kNear neighbouring lines, and the same vector of every
// step_lines-th line after them.
template <bool kFull>
__device__ inline void copy_tile(Byte* shared, const Parameters& launch, const Tile& tile) {
    const SharedLines input_lines = read_tile<kFull>(shared, launch, tile);
    __syncthreads();
    // The block writes several sets of kNear lines at once, and a warp eight neighbouring vectors of each of four sets.
    // These are set_distance apart, so that their elements are in different words; other warps write the sets between
    // them. A load of words, or of narrower elements, therefore reads one word from each of the 32 banks.
    //
    // Thread t of a warp takes vector t % 8 of the warp's eight, and set t / 8 of its four. The next warps take the
    // next eight vectors of the same lines, then the next sets.
    constexpr int line_sets = kThreads / kLineVectors, step_lines = line_sets * kNear;
    constexpr int set_distance = kNear > 1 ? 1 : kInWord < line_sets / 4 ? kInWord : line_sets / 4;
    const unsigned vector = threadIdx.x % 8 + threadIdx.x / 32 % (kLineVectors / 8) * 8;
    const unsigned thread_set = threadIdx.x / 8 % 4 + threadIdx.x / (kLineVectors * 4) * 4;
    const unsigned line_set = thread_set % 4 * set_distance + thread_set / 4 % set_distance +
                              thread_set / (4 * set_distance) * (4 * set_distance);
    const unsigned first_line = line_set * kNear;
    const long long stride = launch.down_strides[tile.plane];
    const unsigned across = tile.across + vector * kElements;
    const long long offset = tile.output_offset + across * kUnit;
    Byte* dst = launch.outputs[tile.entry] + offset + (tile.down + first_line) * stride;
    const unsigned dst_phase = kOutputAligned ? 0u : phase(dst) / kUnit;  // in elements
    dst -= dst_phase * kUnit;

    // The vector's first dst_phase elements are in the last lines of a group of the input, and the rest in the first
    // lines of the next group.
    unsigned shared_offsets[kElements];
    unsigned next_offset = input_lines.offset(kBefore + vector * kElements - dst_phase) + first_line * kUnit;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
        shared_offsets[i] = opaque(next_offset);
        next_offset += input_lines.line_pitch;
        if (!kOutputAligned && i + 1u == dst_phase)
            next_offset += input_lines.group_pitch - kElements * input_lines.line_pitch;
    }
    const unsigned lines_left = min(launch.down_sizes[tile.plane] - tile.down, kDown);
    const int first_element = static_cast<int>(across) - static_cast<int>(dst_phase);
    const int count = static_cast<int>(launch.across_sizes[tile.plane]);
    if (!kFull && (first_element >= count || first_element <= -kElements)) return;
#pragma unroll
    for (unsigned line = 0; line < kDown; line += step_lines) {
        if ((!kFull || line + step_lines > kDown) && first_line + line >= lines_left) break;
        using Part = typename Unsigned<kNear * kUnit>::Type;
        Part parts[kElements];
        uint4 vectors[kNear];
#pragma unroll
        for (int i = 0; i < kElements; ++i) parts[i] = part_at<Part>(shared, shared_offsets[i] + line * kUnit);
        transpose_parts(parts, vectors);
#pragma unroll
        for (int n = 0; n < kNear; ++n, dst += stride) {
            if (!kFull && kNear > 1 && first_line + line + n >= lines_left) break;
            if constexpr (kPointers) dst = launch.outputs[tile.down + first_line + line + n] + offset;
            if (kFull) store(dst, vectors[n], launch.policy);
            else store_vector(dst, vectors[n], first_element, count, launch.policy);
        }
        dst += (step_lines - kNear) * stride;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) transpose(const __grid_constant__ Parameters launch) {
    alignas(kVector) __shared__ Byte shared[kSharedVectors * kVector];
    const Tile tile = find_tile(launch);
    const bool has_lines = tile.across >= kBefore && tile.across + kAcross <= launch.across_sizes[tile.plane];
    const bool is_full = has_lines && tile.down + kDown <= launch.down_sizes[tile.plane];
    is_full ? copy_tile<true>(shared, launch, tile) : copy_tile<false>(shared, launch, tile);
}
