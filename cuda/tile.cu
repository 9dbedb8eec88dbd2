// Narrow rows of any width from one byte up, and any number of outputs: heads, labels, channels.
//
// A block takes kTileRows rows of the columns of one group of outputs. It reads them as aligned
// 16-byte vectors into shared memory, in runs: one run where the tile is whole rows or a single row
// (kRuns == 1), else one run per row. Then it writes, for each output, the contiguous bytes of
// these rows, as 16-byte vectors at aligned addresses of the output, gathered from shared memory.
//
// kTileRows is a multiple of 32 if there are that many rows: no two blocks share a 32-byte sector of
// an aligned output. kPad bytes after every kPadRows rows spread what the lanes of a warp read together
// over the banks of shared memory.

constexpr int kRunVectors = (kRunBytes + 2 * (kVector - kItem)) / kVector;
constexpr int kRunPitch = kRunVectors * kVector;
constexpr int kTileVectors = kRuns * kRunVectors;
constexpr int kLoads = (kTileVectors + kThreads - 1) / kThreads;

// Where bytes of the tile are in shared memory; rows and columns count from the tile's first byte.
struct Layout {
    unsigned low;  // low bits of the address of the tile's first byte

    __device__ unsigned place(unsigned row, unsigned column) const {
        const unsigned pads = row / kPadRows * kPad;
        if constexpr (kRuns > 1)
            return row * kRunPitch + pads + ((low + row * static_cast<unsigned>(kPitch)) & (kVector - 1)) + column;
        else if constexpr (kPad > 0)
            return row * static_cast<unsigned>(kPitch) + pads + column;
        else
            return low + row * static_cast<unsigned>(kPitch) + column;
    }
};

// Stores one vector of a run, `at` bytes after the aligned address at or before the run. With padding in
// a run of whole rows, its words go to their rows one by one. No word is cut: the rows between two
// paddings have a multiple of four bytes.
__device__ inline void put(unsigned* shared, unsigned run, unsigned at, uint4 held, unsigned low, unsigned bytes) {
    constexpr unsigned padded_bytes = kPadRows * static_cast<unsigned>(kPitch);
    const unsigned words[4] = {held.x, held.y, held.z, held.w};
    if constexpr (kRuns > 1) at += run * kRunPitch + run / kPadRows * kPad;
    if constexpr (kRuns == 1 && kItem == kVector) at += at / padded_bytes * kPad;
    if constexpr (kRuns == 1 && kItem < kVector && kPad > 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned byte = at + 4 * i - low;  // wraps below the first row, and is then too large
            if (byte < bytes) shared[(byte + byte / padded_bytes * kPad) / 4] = words[i];
        }
    } else if constexpr (kPad % kVector != 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) shared[at / 4 + i] = words[i];
    } else {
        *reinterpret_cast<uint4*>(shared + at / 4) = held;
    }
}

__device__ inline void load_tile(unsigned* shared, const Byte* corner, unsigned rows, unsigned run_bytes) {
    uint4 held[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned index = threadIdx.x + i * kThreads;
        const unsigned run = index / kRunVectors, at = index % kRunVectors * kVector;
        const Byte* from = corner + static_cast<Wide>(run) * kPitch;
        const unsigned low = phase(from, kVector);
        if (run < rows && at < low + run_bytes) held[i] = load<uint4>(from - low + at);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned index = threadIdx.x + i * kThreads;
        const unsigned run = index / kRunVectors, at = index % kRunVectors * kVector;
        const unsigned low = phase(corner + static_cast<Wide>(run) * kPitch, kVector);
        if (run < rows && at < low + run_bytes) put(shared, run, at, held[i], low, run_bytes);
    }
}

// Part of a word. Every width, offset, pitch and address is a multiple of kItem bytes.
constexpr int kPart = kItem < 4 ? kItem : 4;

__device__ inline unsigned part(const unsigned* shared, unsigned at) {
    using Part = typename Unsigned<kPart>::Type;
    return *reinterpret_cast<const Part*>(reinterpret_cast<const Byte*>(shared) + at);
}

// The 16 bytes at byte `at` of an output's share of the tile.
__device__ inline uint4 gather(const unsigned* shared, Layout layout, unsigned offset, unsigned width, unsigned at) {
    unsigned row = at / width, column = at % width;
    unsigned place = layout.place(row, offset + column);
    if constexpr (kItem == kVector) return *reinterpret_cast<const uint4*>(shared + place / 4);
    if (kWidest >= kVector && column + kVector <= width) {
        const unsigned shift = kItem == 4 ? 0 : place % 4;
        const unsigned* from = shared + place / 4;
        const unsigned words[5] = {from[0], from[1], from[2], from[3], shift ? from[4] : 0};
        return funnel(words, shift);
    }
    unsigned words[4] = {};
#pragma unroll
    for (int i = 0; i < kVector; i += kPart) {
        words[i / 4] |= part(shared, place) << (i % 4 * 8);
        column += kPart;
        place += kPart;
        if (column == width && i + kPart < kVector) {
            column = 0;
            place = layout.place(++row, offset);
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Stores the items of a vector at the edge of an output's share, one at a time.
__device__ inline void store_items(const unsigned* shared, Layout layout, unsigned offset, unsigned width,
                                   Byte* dst, int at, unsigned bytes) {
#pragma unroll 1
    for (int i = 0; i < kVector; i += kItem) {
        const unsigned byte = at + i;  // wraps below the first byte, and is then too large
        if (byte >= bytes) continue;
        const Byte* from = reinterpret_cast<const Byte*>(shared) + layout.place(byte / width, offset + byte % width);
        store(dst + byte, *reinterpret_cast<const typename Unsigned<kItem>::Type*>(from));
    }
}

constexpr unsigned kDivisor = kEqualVectors ? kEqualVectors : 1;

extern "C" __global__ void __launch_bounds__(kThreads, kResident) tile(const __grid_constant__ Parameters launch) {
    __shared__ uint4 memory[kSharedVectors];
    unsigned* shared = reinterpret_cast<unsigned*>(memory);

    const Wide first_row = static_cast<Wide>(blockIdx.x / kGroups) * kTileRows;
    const unsigned group = blockIdx.x % kGroups;
    const unsigned rows = static_cast<unsigned>(min(static_cast<Wide>(kTileRows), launch.rows - first_row));
    const unsigned first_output = kGroupOutputs[group], last_output = kGroupOutputs[group + 1];
    const Wide column = kOffsets[first_output];
    const unsigned columns = static_cast<unsigned>(kOffsets[last_output - 1] + kWidths[last_output - 1] - column);
    const Byte* corner = launch.input + first_row * kPitch + column;

    if constexpr (kRuns == 1)
        load_tile(shared, corner, 1, kTileRows > 1 ? rows * static_cast<unsigned>(kPitch) : columns);
    else
        load_tile(shared, corner, rows, columns);
    __syncthreads();

    const Layout layout{phase(corner, kVector)};
    const unsigned first_vector = kVectorStarts[first_output];
    const unsigned vectors = kVectorStarts[last_output] - first_vector;
    for (unsigned i = threadIdx.x; i < vectors; i += kThreads) {
        const int output = kEqualVectors ? first_output + i / kDivisor
                                         : find<kOutputs>(kVectorStarts, first_vector + i);
        const unsigned width = kEqualVectors ? kWidest : kWidths[output];
        const unsigned bytes = rows * width;
        Byte* dst = launch.outputs[output] + first_row * width;
        const int at = static_cast<int>((first_vector + i - kVectorStarts[output]) * kVector) - static_cast<int>(phase(dst, kVector));
        const unsigned offset = static_cast<unsigned>(kOffsets[output] - column);
        if (at >= 0 && static_cast<unsigned>(at) + kVector <= bytes)
            store(dst + at, gather(shared, layout, offset, width, at));
        else
            store_items(shared, layout, offset, width, dst, at, bytes);
    }
}
