// Wide outputs at any alignment: QKV, gates, channels, vocabularies, parameters, experts.
//
// The input is rows of `pitch` bytes. An output takes the same columns of each row, and has them one row after
// the other. Rows are taken in chunks, and a chunk's bytes of one output are cut into tiles. A block copies
// one tile: everything about its output is the same for all threads. A tile is vectors of 16 bytes at
// aligned addresses of the output. A warp copies kLoads * 32 consecutive ones, and its lane l takes
// l, l + 32, ... of them. All loads are under way before the first store.
//
// The blocks of a chunk cover all outputs before the next chunk begins, so that sectors and pages of memory
// that outputs share are still at hand. All sizes are arguments.
//
// kAligned: pointers, widths, offsets and pitch are multiples of 16 bytes. Otherwise a vector is read as
// aligned words, which are shifted together in registers. Then two things are left, each for a few threads of
// few blocks: vectors that the end of a row falls into, and the first and last bytes of an output.
// kOneRow: a chunk is one row, of any width. Otherwise outputs have at least 16 bytes in a row, so that a
// vector reaches two rows at most, and a chunk fewer than 2^30 bytes of an output.

template <bool kWide> struct PlaceOf { using Type = unsigned; };
template <> struct PlaceOf<true> { using Type = Wide; };
using Place = typename PlaceOf<kOneRow>::Type;

constexpr unsigned kWarp = 32;

// One output's part of a chunk. Places count its bytes.
struct Part {
    const Byte* src;
    Byte* dst;
    Place width;  // of a row
    Place gap;    // bytes of a row of the input that are not the output's
    Divisor by_width;

    __device__ Place row(Place at) const {
        if constexpr (kOneRow) return 0;
        else return quotient(at, by_width);
    }
    __device__ const Byte* from(Place at, Place row) const { return src + at + static_cast<Wide>(row) * gap; }
};

// The words that hold a vector which begins at any byte of the first. The fifth is read only if needed.
struct Window {
    unsigned words[5];
    unsigned shift;

    __device__ void read(const Byte* from) {
        shift = phase(from, 4);
        from -= shift;
#pragma unroll
        for (int word = 0; word < 4; ++word) words[word] = load<unsigned>(from + 4 * word);
        words[4] = shift ? load<unsigned>(from + kVector) : 0;
    }
    __device__ uint4 vector() const { return funnel(words, shift); }
};

// `count` bytes of one word, then the other's.
__device__ inline unsigned joined(unsigned one, unsigned other, int count) {
    const unsigned mask = count >= 4 ? ~0u : count <= 0 ? 0u : ~(~0u << 8 * count);
    return (one & mask) | (other & ~mask);
}

// Copies the vectors, among those from `first` up to `end`, that hold the end of a row and the start of the
// next. Thread t takes the t-th end of a row.
__device__ inline void join_rows(const Part& part, Place first, Place end) {
    for (Place row = part.row(first) + threadIdx.x; kOneRow ? row == 0 : true; row += blockDim.x) {
        const Place next = (row + 1) * part.width;
        const int count = static_cast<int>((next - first) % kVector);
        const Place at = next - count;
        if (at >= end) break;
        if (count == 0 || at < first) continue;
        Window one, other;
        one.read(part.from(at, row));
        other.read(part.from(at, row + 1));
        const uint4 a = one.vector(), b = other.vector();
        store(part.dst + at, make_uint4(joined(a.x, b.x, count), joined(a.y, b.y, count - 4),
                                        joined(a.z, b.z, count - 8), joined(a.w, b.w, count - 12)));
    }
}

// Copies the vectors from `first` up to `end` that are inside one row.
__device__ inline void copy_vectors(const Part& part, Place first, Place end) {
    const unsigned thread = threadIdx.x / kWarp * (kWarp * kLoads) + threadIdx.x % kWarp;
    const Place at = first + thread * kVector;
    const Byte* from = part.src + at;
    Byte* to = part.dst + at;
    Window windows[kLoads];
    uint4 held[kLoads];
    bool whole[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int step = i * (kWarp * kVector);
        const Place row = part.row(at + step);
        whole[i] = at + step < end;
        if constexpr (!kAligned) whole[i] = whole[i] && at + step + kVector <= (row + 1) * part.width;
        if (!whole[i]) continue;
        const Byte* vector = from + static_cast<Wide>(row) * part.gap + step;
        if constexpr (kAligned) held[i] = load<uint4>(vector);
        else windows[i].read(vector);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
        if (whole[i]) store(to + i * (kWarp * kVector), kAligned ? held[i] : windows[i].vector());
}

// Copies a few bytes, by as many threads.
__device__ inline void copy_bytes(Byte* dst, const Byte* src, unsigned count) {
    if (threadIdx.x < count) store(dst + threadIdx.x, load<Byte>(src + threadIdx.x));
}

// A template, because a launch of one row has no such table.
template <class Launch> __device__ inline Divisor by_width(const Launch& launch, int output) {
    if constexpr (kOneRow) return {};
    else return launch.by_width[output];
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) rows(const __grid_constant__ Parameters launch) {
    const unsigned chunk = quotient(blockIdx.x, launch.by_chunk_tiles);
    const unsigned tile = blockIdx.x - chunk * launch.chunk_tiles;
    const int output = find<kOutputs>(launch.tile_starts, tile);
    const bool is_last = chunk == launch.last_chunk;

    Part part;
    part.width = launch.widths[output];
    part.gap = launch.pitch - part.width;
    part.by_width = by_width(launch, output);
    part.src = launch.input + launch.offsets[output] + static_cast<Wide>(chunk) * launch.chunk_pitch;
    part.dst = launch.outputs[output] + static_cast<Wide>(chunk) * (launch.chunk_rows * part.width);
    const unsigned rows = is_last ? launch.last_rows : launch.chunk_rows;
    const Place bytes = rows * part.width;

    // A vector belongs to the chunk in which it starts, if it is all inside the output.
    const unsigned tile_bytes = blockDim.x * (kLoads * kVector);
    const unsigned lead = kAligned ? 0 : -phase(part.dst, kVector) % kVector;
    const Place first = lead + static_cast<Place>(tile - launch.tile_starts[output]) * tile_bytes;
    const Place cut = !kAligned && is_last ? min(bytes, static_cast<Place>(kVector - 1)) : 0;
    const Place end = min(bytes - cut, first + tile_bytes);
    copy_vectors(part, first, end);
    if constexpr (!kAligned) {
        join_rows(part, first, end);
        if (chunk == 0 && first == lead) copy_bytes(part.dst, part.src, min(static_cast<Place>(lead), bytes));
        if (is_last && bytes > lead) {
            const unsigned count = (bytes - lead) % kVector;
            const Place tail = bytes - count;
            if (tail >= first && tail < first + tile_bytes) copy_bytes(part.dst + tail, part.from(tail, rows - 1), count);
        }
    }
}
