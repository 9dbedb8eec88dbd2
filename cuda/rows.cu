// Wide outputs at any alignment: QKV, gates, channels, vocabularies, parameters, experts.
//
// The input is rows of `pitch` bytes. An output takes the same columns of each row, and has them one row after the
// other. Rows are taken in chunks, and a chunk's bytes of one output are cut into tiles. A block copies one tile:
// everything about its output is the same for all threads. A tile is vectors of 16 bytes at aligned addresses of the
// output. It is copied in rounds, in each of which a warp takes kLoads * 32 consecutive ones, and its lane l takes l,
// l + 32, ... of them. All loads of a round are in flight before its first store.
//
// The blocks of a chunk cover all outputs before the next chunk begins, so that sectors and pages of memory that
// outputs share are still in the L2 cache. All sizes are arguments.
//
// kAligned: pointers, widths, offsets and pitch are multiples of 16 bytes. Otherwise a vector is read as the two
// aligned vectors that hold it, which are shifted together in registers. The first-level cache then serves two bytes
// for each byte copied, unless the vector happens to be aligned. Two things remain, each for a few threads of few
// blocks: vectors that hold the end of a row, and the first and last bytes of an output.
// kShort: rows of at most MOST_SHORT bytes (planner/wide.py) go through shared memory, and a block copies whole rows.
// Reading two vectors for each one stored would cost too much: of 96 bytes, one in six also holds the end of a row.
// kOneRow: a chunk is one row, of any width. Otherwise outputs have at least 16 bytes in a row, so that a vector
// reaches two rows at most, and a chunk fewer than 2^30 bytes of an output.

constexpr unsigned kWarp = 32;

// One output's part of a chunk. In a chunk of one row, skip_to moves it to where the tile begins.
struct Part {
    const Byte* src;
    Byte* dst;
    unsigned bytes;
    unsigned rows;
    unsigned width;  // of a row
    Position gap;    // bytes of a row of the input that are not the output's
    Divisor by_width;
    bool is_last;    // whether this is the last chunk
    Wide policy;

    __device__ unsigned row(unsigned at) const {
        if constexpr (kOneRow) return 0;
        else return quotient(at, by_width);
    }
    __device__ const Byte* source(unsigned at, unsigned row) const { return src + at + static_cast<Wide>(row) * gap; }
    // A vector belongs to the chunk in which it starts. The last one of an output must be inside the output.
    __device__ unsigned end() const { return kAligned || !is_last ? bytes : whole_end(); }
    __device__ unsigned whole_end() const { return max(bytes, kVector - 1u) - (kVector - 1); }
};

// The two aligned vectors that hold a vector at any address. Each is read only if it holds one of the bytes
// `begin` to `end` - 1 of that vector.
struct Window {
    uint4 low = {}, high = {};
    unsigned shift = 0;

    // `step`, a multiple of 16, is a constant, so that adding it is part of the load instruction.
    __device__ void read(const Byte* from, int step = 0, unsigned begin = 0, unsigned end = kVector) {
        shift = settled(phase(from, kVector));
        const Byte* const vector = vector_around(from) + step;
        if (begin == 0 || shift + begin < kVector) low = load<uint4>(vector);
        if (end == kVector ? shift != 0 : shift + end > kVector) high = load<uint4>(vector + kVector);
    }
    __device__ uint4 vector() const {
        unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        shift_down<1>(words, shift);
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// Copies the vectors, among those from `first` up to `end`, that hold the end of a row and the start of the
// next. Thread t takes the t-th end of a row.
__device__ inline void join_rows(const Part& part, unsigned first, unsigned end) {
    for (unsigned row = part.row(first) + threadIdx.x; row < part.rows; row += blockDim.x) {
        const unsigned next = (row + 1) * part.width;
        if (kOneRow && next <= first) break;  // copy_ends copies these bytes
        const unsigned count = (next - first) % kVector, at = next - count;
        if (at >= end) break;
        if (count == 0) continue;
        Window head, tail;
        head.read(part.source(at, row), 0, 0, count);
        tail.read(part.source(at, row + 1), 0, count);
        store(part.dst + at, joined(head.vector(), tail.vector(), count), part.policy);
    }
}

// Copies a thread's vectors of a round, the first at `at`. It stores those that begin before `end` and are
// inside one row. In a kFull round, all of them begin before `end`.
template <bool kFull>
__device__ inline void copy_round(const Part& part, unsigned at, unsigned end, const Byte* src, Byte* dst) {
    Window windows[kLoads];
    uint4 held[kLoads];
    bool is_stored[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int step = i * (kWarp * kVector);
        const unsigned row = part.row(at + step);
        const Byte* const vector = settled(src + static_cast<Wide>(row) * part.gap);  // the step is part of the load
        const bool is_read = kFull || at + step < end;
        const auto to_row = [&] { return static_cast<int>(row * part.width) - static_cast<int>(at + step); };
        is_stored[i] = is_read && (kAligned || kOneRow || to_row() >= kVector - static_cast<int>(part.width));
        if (!is_read) continue;
        if constexpr (kAligned) held[i] = load<uint4>(vector + step);
        else windows[i].read(vector, step);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        if constexpr (!kAligned) held[i] = windows[i].vector();
        if (is_stored[i]) store(dst + i * (kWarp * kVector), held[i], part.policy);
    }
}

__device__ inline void copy_vectors(const Part& part, unsigned first, unsigned end) {
    const unsigned thread = threadIdx.x / kWarp * (kWarp * kLoads) + threadIdx.x % kWarp;
    const unsigned round = blockDim.x * (kLoads * kVector);
    const Byte* src = settled(part.src + (first + thread * kVector));
    Byte* dst = settled(part.dst + (first + thread * kVector));
#pragma unroll 1
    for (; first < end; first += round, src += round, dst += round) {
        if (first + round <= end) copy_round<true>(part, first + thread * kVector, end, src, dst);
        else copy_round<false>(part, first + thread * kVector, end, src, dst);
    }
}

__device__ inline void copy_bytes(Byte* dst, const Byte* src, unsigned count, Wide policy) {
    if (threadIdx.x < count) store(dst + threadIdx.x, load<Byte>(src + threadIdx.x), policy);
}

// Copies the bytes of an output before its first whole vector and after its last, each by a thread of its own.
__device__ inline void copy_ends(const Part& part, bool is_start, unsigned lead, unsigned first, unsigned tile_bytes) {
    if (is_start) copy_bytes(part.dst, part.src, min(lead, part.bytes), part.policy);
    if (!part.is_last || part.bytes <= lead) return;
    const unsigned count = (part.bytes - lead) % kVector, tail = part.bytes - count;
    if (tail >= first && tail < first + tile_bytes)
        copy_bytes(part.dst + tail, part.source(tail, part.rows - 1), count, part.policy);
}

// Where an output's columns and tiles begin.
struct Output {
    int index;
    unsigned first_tile;
    Position offset, width;
    Divisor by_width, by_slot;
};

// A template, because a launch has only the tables that it needs.
template <class Launch> __device__ inline Output output_of(const Launch& launch, unsigned tile) {
    Output output;
    if constexpr (kEqual) {
        output.index = static_cast<int>(quotient(tile, launch.by_output_tiles));
        output.first_tile = output.index * launch.output_tiles;
    } else {
        output.index = find<kOutputs>(launch.tile_starts, tile);
        output.first_tile = launch.tile_starts[output.index];
    }
    const int entry = kEqual ? 0 : output.index;
    output.width = static_cast<Position>(launch.widths[entry]);
    output.offset = static_cast<Position>(launch.offsets[entry]) + (output.index - entry) * output.width;
    if constexpr (!kOneRow) output.by_width = launch.by_width[entry];
    if constexpr (kShort) output.by_slot = launch.by_slot[entry];
    return output;
}

template <class Launch> __device__ inline Part part_of(const Launch& launch, const Output& output, unsigned chunk) {
    Part part;
    part.policy = launch.policy;
    part.is_last = chunk == launch.last_chunk;
    part.rows = kOneRow ? 1u : part.is_last ? launch.last_rows : launch.chunk_rows;
    part.width = kOneRow ? 0u : static_cast<unsigned>(output.width);  // of one row: see skip_to
    part.bytes = part.rows * part.width;
    part.gap = launch.pitch - output.width;
    part.by_width = output.by_width;
    const Position chunk_bytes = kOneRow ? output.width : launch.chunk_rows * output.width;
    part.src = launch.input + output.offset + static_cast<Wide>(chunk) * launch.chunk_pitch;
    part.dst = launch.outputs[output.index] + static_cast<Wide>(chunk) * chunk_bytes;
    return part;
}

// Advances `part`, which is a single row, to its byte `begin`, and limits it to 2^30 bytes. The row may have 2^32
// or more; a tile has fewer than the limit.
__device__ inline void skip_to(Part& part, Position begin, Position width) {
    part.src += begin;
    part.dst += begin;
    part.bytes = part.width = static_cast<unsigned>(min(width - min(begin, width), static_cast<Position>(1 << 30)));
}

// A short row has a slot of whole vectors in shared memory, and one more that moves the next slot to other
// banks. It begins in its slot at the phase that it has in the input.
constexpr unsigned kShortThreads = kThreads / 2;  // of a block

__device__ inline unsigned slot_vectors(unsigned width) { return (width + 34) / kVector; }

struct Slots {
    const Byte* memory;
    unsigned bytes;  // from slot to slot
    unsigned first_phase, pitch_phase;

    __device__ unsigned place(unsigned row) const { return row * bytes + (first_phase + row * pitch_phase) % kVector; }

    __device__ uint4 vector(unsigned place) const {
        const auto* at = reinterpret_cast<const unsigned*>(memory + place / 4 * 4);
        const unsigned words[5] = {at[0], at[1], at[2], at[3], at[4]};
        return funnel(words, place);
    }
};

// Reads kLoads * `step` rows from `corner` on, of which `rows` are left. Past these, the last one is read again.
__device__ inline void read_rows(uint4* memory, const Byte* corner, unsigned step, unsigned rows, unsigned width,
                                 unsigned pitch, Divisor by_slot) {
    const unsigned slot = slot_vectors(width), row = quotient(threadIdx.x, by_slot);
    if (row >= step) return;
    const unsigned vector = (threadIdx.x - row * slot) * kVector, corner_phase = phase(corner, kVector);
    const Byte* const around = settled(corner - corner_phase);
    uint4 held[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned begin = corner_phase + min(row + i * step, rows - 1) * pitch, last = begin + width - 1;
        held[i] = load<uint4>(around + min(begin / kVector * kVector + vector, last) / kVector * kVector);
    }
    uint4* slots = memory + threadIdx.x + row;
#pragma unroll
    for (int i = 0; i < kLoads; ++i, slots += step * (slot + 1)) *slots = held[i];
}

// Copies the vectors that begin in `rows` short rows, a multiple of 16, beginning with row `first`. Phases repeat every
// 16 rows, so what a thread finds out about a vector is true of those `repeat` rows later, which it also copies.
__device__ inline void copy_short(const Part& part, unsigned first, unsigned rows, unsigned lead, unsigned pitch,
                                  Divisor by_slot, bool is_first_round) {
    __shared__ uint4 memory[kLoads * kShortThreads * 4 / 3 + 64];
    const unsigned width = part.width, begin = first * width;
    const Byte* const corner = settled(part.src + static_cast<Wide>(first) * pitch);
    // The row after a chunk completes the chunk's last vector.
    read_rows(memory, corner, rows / kLoads, part.rows - first + !part.is_last, width, pitch, by_slot);
    const unsigned slot = slot_vectors(width) + 1;
    if (is_first_round)  // vectors at the end of a row read this spare one as well; its bytes are not stored
        for (unsigned end = (threadIdx.x + 1) * slot; end <= rows * slot; end += kShortThreads * slot)
            memory[end - 1] = {};
    __syncthreads();

    const auto* bytes = reinterpret_cast<const Byte*>(memory);
    const Slots slots = {bytes, slot * kVector, phase(corner, kVector), pitch % kVector};
    const unsigned repeat = (rows / 4 + 15) / 16 * 16;
    const unsigned repeat_bytes = repeat * width, repeat_slots = repeat * slots.bytes;
    const unsigned whole = rows * width - (kVector - 1);  // vectors that begin here or later reach past the last row
    const unsigned end = min(max(part.end(), begin) - begin, whole);
    Byte* const dst = settled(part.dst + begin);
    for (unsigned start = lead + threadIdx.x * kVector; start < repeat_bytes; start += kShortThreads * kVector) {
        const unsigned row = quotient(start, part.by_width), column = start - row * width;
        if (width - column < kVector) continue;
        const unsigned in_slot = slots.place(row) + column;
        Slots later = slots;
        Byte* stored = dst + start;
#pragma unroll 4
        for (unsigned at = start; at < end; at += repeat_bytes, stored += repeat_bytes, later.memory += repeat_slots)
            store(stored, later.vector(in_slot), part.policy);
    }
    for (unsigned row = threadIdx.x; row < repeat; row += kShortThreads) {
        const unsigned next = (row + 1) * width, count = (next - lead) % kVector;
        if (count == 0) continue;
        const unsigned head = slots.place(row) + width - count, tail = slots.place(row + 1) - count;
        Slots later = slots;
        for (unsigned at = next - count; at < end; at += repeat_bytes, later.memory += repeat_slots)
            store(dst + at, joined(later.vector(head), later.vector(tail), count), part.policy);
    }
    const unsigned at = begin + whole - 1 + lead;
    if (lead > 0 && at < part.end()) join_rows(part, at, at + kVector);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) rows(const __grid_constant__ Parameters launch) {
    const unsigned chunk = quotient(blockIdx.x, launch.by_chunk_tiles);
    const unsigned tile = blockIdx.x - chunk * launch.chunk_tiles;
    const Output output = output_of(launch, tile);
    Part part = part_of(launch, output, chunk);

    const unsigned lead = kAligned ? 0u : (kVector - phase(part.dst, kVector)) % kVector;
    const unsigned tile_bytes = launch.tile_bytes;
    if constexpr (kShort) {
        const unsigned rows = quotient(kShortThreads, output.by_slot) / 2 * (2 * kLoads);
        const unsigned tile_rows = tile_bytes / (kShortThreads * kLoads * kVector) * rows;  // in one round to four
        const unsigned row = (tile - output.first_tile) * tile_rows, end = min(part.rows, row + tile_rows);
        copy_ends(part, chunk == 0 && row == 0, lead, row * part.width + lead, tile_rows * part.width);
#pragma unroll 2
        for (unsigned first = row; first < end; first += rows) {
            if (first > row) __syncthreads();
            copy_short(part, first, rows, lead, static_cast<unsigned>(launch.pitch), output.by_slot, first == row);
        }
        return;
    }
    const Position begin = static_cast<Position>(tile - output.first_tile) * tile_bytes;
    if constexpr (kOneRow) skip_to(part, begin, output.width);
    const unsigned first = lead + (kOneRow ? 0u : static_cast<unsigned>(begin));
    const unsigned end = min(part.end(), first + tile_bytes);
    if constexpr (!kAligned) copy_ends(part, chunk == 0 && begin == 0, lead, first, tile_bytes);
    copy_vectors(part, first, kOneRow && !kAligned ? min(part.whole_end(), first + tile_bytes) : end);
    if constexpr (!kAligned) join_rows(part, first, end);
}
