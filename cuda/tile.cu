// Narrow outputs: columns from one byte up, and any number of them. Heads, labels, points, channels.
//
// A block takes a tile: some rows of the columns of one group of outputs. It reads them as aligned vectors
// of 16 bytes into shared memory, in runs: one run where the tile is whole rows (kWhole), else one for each
// row. Then it writes each output's share of the tile, which is contiguous: vectors at aligned addresses,
// gathered from shared memory. Shares are handed out in chunks, each to a team of 2^team_bits threads.
//
// In shared memory, byte c of row r is at low + r * row_pitch + c. row_pitch equals the input's pitch
// modulo 16, so that vectors stay vectors. kPadded: 16 bytes after every 2^pad_bits rows move them to other
// banks; no vector of an output crosses such a place.
//
// Nothing is compiled for columns or for a number of rows. A tile has a multiple of 32 rows where there are
// as many: no two blocks share a 32-byte sector of an aligned output (kAligned). Of other outputs, a block
// writes the vectors that begin in its rows, and also reads the few rows after them that the last of these
// vectors need (fill_rows). Where the input has no such rows, any vector takes their place, because bytes after
// the end of an output are not stored.

// Threads with nothing to load repeat the last vector of the run, which does no harm.
__device__ inline void load_tile(uint4* shared, const Byte* corner, unsigned low, unsigned rows, unsigned run_bytes,
                                 const Parameters& launch) {
    uint4 held[kLoads];
    unsigned places[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned index = threadIdx.x + i * kThreads;
        if constexpr (kWhole) {
            const unsigned last = low + run_bytes - 1;
            held[i] = load<uint4>(corner - low + min(index * kVector, last / kVector * kVector));
            places[i] = kPadded ? index + quotient(index, launch.by_pad_vectors) : index;
        } else {
            const unsigned run = quotient(index, launch.by_run_vectors);
            const unsigned vector = less_multiple(index, run, launch.minus_run_vectors);
            const Byte* row = corner + static_cast<Wide>(min(run, rows - 1)) * launch.pitch;
            const unsigned row_low = kItem == kVector ? 0u : phase(row, kVector);
            const unsigned last = (row_low + run_bytes - 1) / kVector;
            held[i] = load<uint4>(row - row_low + static_cast<Wide>(min(vector, last)) * kVector);
            places[i] = kItem == kVector ? index + run * launch.run_skip
                                         : (low + run * launch.row_pitch) / kVector + vector;
            if constexpr (kPadded) places[i] += run >> launch.pad_bits;
        }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) shared[places[i]] = held[i];
}

// The 16 bytes at any place.
__device__ inline uint4 window(const Byte* shared, unsigned place) {
    const auto word = [&](unsigned at) { return *reinterpret_cast<const unsigned*>(shared + at / 4 * 4); };
    const auto* from = reinterpret_cast<const unsigned*>(shared + place / 4 * 4);
    // The word after a run may be unwritten, even if vectors are repeated: read the last byte's word again.
    const unsigned last = kWhole && !kPadded ? from[4] : word(place + 15);
    const unsigned words[5] = {from[0], from[1], from[2], from[3], last};
    return funnel(words, place);
}

// The 16 bytes at a place, of which those before `least` and after `most` may be anything.
__device__ inline uint4 window(const Byte* shared, unsigned place, unsigned least, unsigned most) {
    if constexpr (kWhole) return window(shared, place);
    unsigned words[5];
#pragma unroll
    for (int i = 0; i < 5; ++i)
        words[i] = *reinterpret_cast<const unsigned*>(shared + min(max(place + 4 * i, least), most) / 4 * 4);
    return funnel(words, place);
}

// Stores the first `count` bytes of a vector, fewer than 16, at any address, in pieces of kBytes and more:
// first what aligns the address, last what is left over.
template <int kBytes> __device__ inline void store_part(Byte*& dst, uint4& vector, unsigned& count, Wide policy) {
    const auto store_piece = [&] {
        const unsigned words[5] = {vector.x, vector.y, vector.z, vector.w, 0};
        if constexpr (kBytes == 8)
            store(dst, make_uint2(words[0], words[1]), policy);
        else
            store(dst, static_cast<typename Unsigned<kBytes>::Type>(words[0]), policy);
        vector = kBytes < 4 ? funnel(words, kBytes)
                            : make_uint4(words[kBytes / 4], words[kBytes / 4 + 1], words[kBytes == 4 ? 3 : 4], 0);
        dst += kBytes;
        count -= kBytes;
    };
    if (count >= kBytes && phase(dst, 2 * kBytes) >= kBytes) store_piece();
    if constexpr (kBytes < 8) store_part<2 * kBytes>(dst, vector, count, policy);
    if (count >= kBytes) store_piece();
}

// Vectors that hold ends of rows are copied separately, by warps that have no others.
constexpr bool kJoins = kItem < 4 && !kAligned;

// Part of a word. Every width, offset, pitch and address is a multiple of kItem bytes.
constexpr unsigned kPart = kItem < 4 ? kItem : 4;
using Part = typename Unsigned<kPart>::Type;

// An output's share of the tile. kWidth is its width, 16 for any width of at least 16, or 0 for any width.
struct Share {
    const Byte* shared;
    Byte* dst;
    unsigned first, width, gap;  // place of its first byte; from the end of one row to the next there
    Divisor by_width;
    int have;  // bytes that the tile has
    bool is_head;
    Wide policy;

    template <unsigned kWidth> __device__ uint4 gather(unsigned at, unsigned pad_bits) const {
        constexpr bool kKnown = 0 < kWidth && kWidth < kVector;
        const unsigned row = kKnown ? at / kWidth : quotient(at, by_width);
        unsigned place = first + at + row * gap;
        if constexpr (kPadded) place += (row >> pad_bits) * kVector;
        unsigned left = (row + 1) * width - at;  // bytes to the end of the row
        if constexpr (kItem == kVector) return *reinterpret_cast<const uint4*>(shared + place);
        if constexpr (kItem < 4 && kWidth == kVector) {
            if (left >= kVector) return window(shared, place);
            const uint4 one = window(shared, place, place, place + left - 1);
            const uint4 other = window(shared, place + gap, place + gap + left, place + gap + kVector);
            return joined(one, other, left);
        }
        unsigned words[4] = {};
#pragma unroll
        for (unsigned i = 0; i < kVector; i += kPart) {
            words[i / 4] |= *reinterpret_cast<const Part*>(shared + (place + i)) << (i % 4 * 8);
            if (kKnown ? (i + kPart) % kWidth == 0 : i + kPart == left) {
                place += gap;
                left += width;
            }
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }

    // Copies a vector that does not hold the end of a row.
    __device__ void copy_inside(unsigned at, unsigned pad_bits) const {
        const unsigned row = quotient(at, by_width), column = at - row * width;
        // Bytes after a run may be unwritten, so the end of a row reads the bytes before it.
        const unsigned inside = kWhole ? at : row * width + min(column, width - kVector);
        unsigned place = first + inside + row * gap;
        if constexpr (kPadded) place += (row >> pad_bits) * kVector;
        const uint4 vector = window(shared, place);
        // Settled after the window is read, which takes fewer instructions than a branch around it.
        const int begun = static_cast<int>(settled(column));  // bytes of the row before the vector
        if (begun <= static_cast<int>(width) - kVector) store(dst + at, vector, policy);
    }

    // Copies those that hold an end of `rows` rows, and the start of the next one.
    __device__ void join_rows(unsigned rows, unsigned lane, unsigned pad_bits) const {
        for (unsigned row = lane; row < rows; row += 32) {
            const unsigned end = (row + 1) * width, at = end - phase(dst + end, kVector);
            if (at < end && at + kVector <= static_cast<unsigned>(have)) store(dst + at, gather<kVector>(at, pad_bits), policy);
        }
    }

    template <unsigned kWidth> __device__ void store_edge(unsigned at, unsigned count, unsigned pad_bits) const {
        Byte* to = dst + at;
        uint4 vector = gather<kWidth>(at, pad_bits);
        if constexpr (kItem < kVector) store_part<kItem>(to, vector, count, policy);
    }

    // Copies every vector `step` bytes from the one at `at`, which may be before the first byte, up to `end`.
    template <unsigned kWidth> __device__ void copy(int at, int end, int step, unsigned pad_bits) const {
        if (!kAligned && at < 0) {
            // The block before this one writes the vector, if there is one.
            if (is_head) store_edge<kWidth>(0, min(at + kVector, have), pad_bits);
            at += step;
        }
        const int whole = kAligned ? end - kVector + 1 : min(end, have - kVector + 1);
        Byte* to = dst + static_cast<unsigned>(at);
#pragma unroll kItem == kVector ? 4 : 1
        for (; at < whole; at += step, to += step)
            if (!kJoins || kWidth != kVector) store(to, gather<kWidth>(at, pad_bits), policy);
            else copy_inside(at, pad_bits);
        if (at < end) store_edge<kWidth>(at, have - at, pad_bits);
    }
};

extern "C" __global__ void __launch_bounds__(kThreads, kResident) tile(const __grid_constant__ Parameters launch) {
    __shared__ uint4 memory[kSharedVectors];

    const unsigned number = kWhole ? blockIdx.x : quotient(blockIdx.x, launch.by_groups);
    const unsigned group = kWhole ? 0u : blockIdx.x - number * launch.groups;
    const Byte* corner = launch.input + number * launch.tile_pitch + (kWhole ? 0u : launch.columns[group]);
    const unsigned low = kItem == kVector ? 0u : phase(corner, kVector);
    const unsigned rows = number < launch.full_tiles
                              ? launch.fill_rows
                              : launch.rest_rows - (number - launch.full_tiles) * launch.tile_rows;
    load_tile(memory, corner, low, rows, kWhole ? rows * launch.row_pitch : launch.run_bytes[group], launch);
    __syncthreads();

    const unsigned member = threadIdx.x & launch.last_member, last = launch.chunk_starts[group + 1];
    unsigned chunk = launch.chunk_starts[group] + (threadIdx.x >> launch.team_bits);
    const auto share_of = [&](unsigned output) {
        const unsigned width = static_cast<unsigned>(launch.places[output] & ~0u);
        const unsigned offset = static_cast<unsigned>(launch.places[output] >> 32);
        Byte* dst = launch.outputs[output] + static_cast<Wide>(number) * (launch.tile_rows * width);
        return Share{reinterpret_cast<const Byte*>(memory), dst,
                     low + offset, width, launch.row_pitch - width, launch.by_width[output],
                     static_cast<int>(rows * width), number == 0, launch.policy};
    };
    const unsigned own_rows = kAligned ? rows : min(rows, launch.tile_rows);
    for (; chunk < last; chunk += launch.teams) {
        const unsigned begin = launch.chunks[chunk] >> 16;
        const Share share = share_of(launch.chunks[chunk] & 0xffff);
        const unsigned width = share.width;
        const int start = static_cast<int>(begin) - (kAligned ? 0 : static_cast<int>(phase(share.dst, kVector)));
        const int end = min(start + launch.chunk_bytes, static_cast<int>(own_rows * width));
        const int at = start + static_cast<int>(member * kVector);
        if (kItem == kVector || width >= kVector) share.copy<kVector>(at, end, launch.team_bytes, launch.pad_bits);
        else if (kItem == 1 && width == 1) share.copy<1>(at, end, launch.team_bytes, launch.pad_bits);
        else if ((kAligned ? kItem <= 2 : kItem == 2) && width == 2) share.copy<2>(at, end, launch.team_bytes, launch.pad_bits);
        else if ((kAligned || kItem == 4) && width == 4) share.copy<4>(at, end, launch.team_bytes, launch.pad_bits);
        else if (kAligned && width == 8) share.copy<8>(at, end, launch.team_bytes, launch.pad_bits);
        else share.copy<0>(at, end, launch.team_bytes, launch.pad_bits);
    }
    // The widest outputs come first. Each has a warp, whose lanes are all busy.
    for (chunk = launch.chunk_starts[group] + threadIdx.x / 32; kJoins && chunk < last; chunk += kThreads / 32) {
        if (launch.chunks[chunk] >> 16 > 0) break;
        const Share share = share_of(launch.chunks[chunk] & 0xffff);
        if (share.width < kVector) break;
        share.join_rows(own_rows, threadIdx.x % 32, launch.pad_bits);
    }
}
