// Wide outputs at any alignment: QKV, gates, channels, vocabularies, parameters, experts.
//
// The input is rows of `pitch` bytes. An output takes the same columns of each row, and stores them row after row.
// Rows are grouped into chunks, and a chunk's bytes of one output are cut into tiles. A block copies one tile, so that
// everything about its output is the same for all of its threads. A tile consists of vectors of 16 bytes at aligned
// addresses of the output. A block copies it in rounds: in each, a warp takes kLoads * 32 consecutive vectors, of
// which its lane l takes vectors l, l + 32, ... All loads of a round are in flight before its first store.
//
// The blocks of one chunk, for all outputs, begin before those of the next chunk. A sector of the input that two
// outputs share is therefore still in the L2 cache when it is needed again. All sizes are arguments.
//
// kAligned: pointers, widths, offsets and pitch are multiples of 16 bytes. Otherwise, a vector of the output is read
// as the two aligned vectors that hold it in the input, which are shifted together in registers. The L1 cache then
// serves two bytes for each byte copied, unless the vector happens to be aligned in the input, too. Two kinds
// of bytes are copied separately: vectors that hold the end of a row, by one thread each, in every block whose tile
// has such ends; and the first and last bytes of an output, in its first and last block.
// kShort: rows have at most MAX_SHORT bytes (planner/wide.py). A block then copies whole rows, through shared memory.
// Reading two vectors for each one stored would cost too much, and many would hold the end of a row: one in six if
// rows have 96 bytes.
// kOneRow: a chunk is one row, of any width. Otherwise an output has at least 16 bytes in a row, so that no vector
// extends over more than two rows, and a chunk has fewer than 2^30 bytes of an output.

constexpr unsigned kWarp = 32;

// One output's part of a chunk. If the chunk is one row, skip_to moves it to where the tile begins.
struct ChunkPart {
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
    // Vectors that begin before this are copied. A vector belongs to the chunk in which it begins, and may end in the
    // next one, but not after the output.
    __device__ unsigned end() const { return kAligned || !is_last ? bytes : whole_end(); }
    __device__ unsigned whole_end() const { return max(bytes, kVector - 1u) - (kVector - 1); }
};

// A vector at any address, as the two aligned vectors that hold it. Each of these is read only if it holds one of the
// bytes `begin` to `end` - 1 of the vector.
struct UnalignedVector {
    uint4 low = {}, high = {};
    unsigned shift = 0;

    // `step` is a multiple of 16, and known to the compiler, so that the load instruction adds it.
    __device__ void read(const Byte* from, int step = 0, unsigned begin = 0, unsigned end = kVector) {
        shift = settled(phase(from));
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

// Copies those vectors between `first` and `end` that hold the end of a row and the start of the next one. Thread t
// takes the t-th of these rows, and every blockDim.x-th after it.
__device__ inline void join_rows(const ChunkPart& part, unsigned first, unsigned end) {
    for (unsigned row = part.row(first) + threadIdx.x; row < part.rows; row += blockDim.x) {
        const unsigned next = (row + 1) * part.width;
        if (kOneRow && next <= first) break;  // copy_ends copies these bytes
        const unsigned count = (next - first) % kVector, at = next - count;
        if (at >= end) break;
        if (count == 0) continue;
        UnalignedVector head, tail;
        head.read(part.source(at, row), 0, 0, count);
        tail.read(part.source(at, row + 1), 0, count);
        store(part.dst + at, joined(head.vector(), tail.vector(), count), part.policy);
    }
}

// Copies a thread's vectors of a round, the first at `at`. It stores those that begin before `end` and are inside one
// row: they begin at least 16 bytes before the row ends. In a kFull round, all begin before `end`.
template <bool kFull>
__device__ inline void copy_round(const ChunkPart& part, unsigned at, unsigned end, const Byte* src, Byte* dst) {
    UnalignedVector unaligned[kLoads];
    uint4 held[kLoads];
    bool is_stored[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int step = i * (kWarp * kVector);
        const unsigned row = part.row(at + step);
        const Byte* const vector = settled(src + static_cast<Wide>(row) * part.gap);  // the load adds the step
        const bool is_read = kFull || at + step < end;
        const auto to_row = [&] { return static_cast<int>(row * part.width) - static_cast<int>(at + step); };
        is_stored[i] = is_read && (kAligned || kOneRow || to_row() >= kVector - static_cast<int>(part.width));
        if (!is_read) continue;
        if constexpr (kAligned) held[i] = load<uint4>(vector + step);
        else unaligned[i].read(vector, step);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        if constexpr (!kAligned) held[i] = unaligned[i].vector();
        if (is_stored[i]) store(dst + i * (kWarp * kVector), held[i], part.policy);
    }
}

__device__ inline void copy_vectors(const ChunkPart& part, unsigned first, unsigned end) {
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

// Copies the bytes of an output before its first whole vector and after its last one, a byte per thread.
__device__ inline void copy_ends(const ChunkPart& part, bool is_start, unsigned lead, unsigned first,
                                 unsigned tile_bytes) {
    if (is_start) copy_bytes(part.dst, part.src, min(lead, part.bytes), part.policy);
    if (!part.is_last || part.bytes <= lead) return;
    const unsigned count = (part.bytes - lead) % kVector, tail = part.bytes - count;
    if (tail >= first && tail < first + tile_bytes)
        copy_bytes(part.dst + tail, part.source(tail, part.rows - 1), count, part.policy);
}

// An output's columns, and the first of its tiles.
struct Output {
    int index;
    unsigned first_tile;
    Position offset, width;
    Divisor by_width, by_slot;
};

// A template, so that code for tables that a launch does not have is not compiled.
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

template <class Launch>
__device__ inline ChunkPart part_of(const Launch& launch, const Output& output, unsigned chunk) {
    ChunkPart part;
    part.policy = launch.policy;
    part.is_last = chunk == launch.last_chunk;
    part.rows = kOneRow ? 1u : part.is_last ? launch.last_rows : launch.chunk_rows;
    part.width = kOneRow ? 0u : static_cast<unsigned>(output.width);  // skip_to sets that of a single row
    part.bytes = part.rows * part.width;
    part.gap = launch.pitch - output.width;
    part.by_width = output.by_width;
    const Position chunk_bytes = kOneRow ? output.width : launch.chunk_rows * output.width;
    part.src = launch.input + output.offset + static_cast<Wide>(chunk) * launch.chunk_pitch;
    part.dst = launch.outputs[output.index] + static_cast<Wide>(chunk) * chunk_bytes;
    return part;
}

// Advances `part`, which is a single row, to the row's byte `begin`, and limits it to 2^30 bytes, because the row may
// have 2^32 bytes or more. A tile has fewer than the limit.
__device__ inline void skip_to(ChunkPart& part, Position begin, Position width) {
    part.src += begin;
    part.dst += begin;
    part.bytes = part.width = static_cast<unsigned>(min(width - min(begin, width), static_cast<Position>(1 << 30)));
}

// A short row has a slot in shared memory: vectors that hold it at any phase, and a spare vector, which moves the next
// slot to other banks. The row begins in its slot at the phase that it has in the input.
constexpr unsigned kShortThreads = kThreads / 2;  // of a block

// Without the spare one: for up to 15 bytes before the row and one word after it.
__device__ inline unsigned row_vectors(unsigned width) { return (width + 34) / kVector; }

struct Slots {
    const Byte* memory;
    unsigned bytes;  // from slot to slot
    unsigned first_phase, pitch_phase;

    // Where a row begins.
    __device__ unsigned place(unsigned row) const { return row * bytes + (first_phase + row * pitch_phase) % kVector; }

    __device__ uint4 vector(unsigned place) const {
        const auto* at = reinterpret_cast<const unsigned*>(memory + place / 4 * 4);
        const unsigned words[5] = {at[0], at[1], at[2], at[3], at[4]};
        return funnel(words, place);
    }
};

// Reads kLoads * `step` rows, the first at `corner`, into their slots. If only `rows` are left, the last one is read
// again instead of those after it.
__device__ inline void read_rows(uint4* memory, const Byte* corner, unsigned step, unsigned rows, unsigned width,
                                 unsigned pitch, Divisor by_slot) {
    const unsigned vectors = row_vectors(width), row = quotient(threadIdx.x, by_slot);
    if (row >= step) return;
    const unsigned vector = (threadIdx.x - row * vectors) * kVector, corner_phase = phase(corner);
    const Byte* const around = settled(corner - corner_phase);
    uint4 held[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned begin = corner_phase + min(row + i * step, rows - 1) * pitch, last = begin + width - 1;
        held[i] = load<uint4>(around + min(begin / kVector * kVector + vector, last) / kVector * kVector);
    }
    uint4* slots = memory + threadIdx.x + row;
#pragma unroll
    for (int i = 0; i < kLoads; ++i, slots += step * (vectors + 1)) *slots = held[i];
}

// Copies the vectors that begin in `rows` short rows, the first being `first`; `rows` is a multiple of 16. Phases
// repeat every 16 rows. A thread therefore computes the place of a vector once, and uses it again for the vectors that
// begin `repeat`, 2 * `repeat`, ... rows later.
__device__ inline void copy_short(const ChunkPart& part, unsigned first, unsigned rows, unsigned lead, unsigned pitch,
                                  Divisor by_slot, bool is_first_round) {
    __shared__ uint4 memory[kLoads * kShortThreads * 4 / 3 + 64];  // SHORT_BYTES in planner/wide.py
    const unsigned width = part.width, begin = first * width;
    const Byte* const corner = settled(part.src + static_cast<Wide>(first) * pitch);
    // The last vector of a chunk ends in the row after it, which is read, too.
    read_rows(memory, corner, rows / kLoads, part.rows - first + !part.is_last, width, pitch, by_slot);
    const unsigned slot = row_vectors(width) + 1;
    if (is_first_round)  // words of the spare vector are loaded at the end of a row, but not stored
        for (unsigned end = (threadIdx.x + 1) * slot; end <= rows * slot; end += kShortThreads * slot)
            memory[end - 1] = {};
    __syncthreads();

    const auto* bytes = reinterpret_cast<const Byte*>(memory);
    const Slots slots = {bytes, slot * kVector, phase(corner), pitch % kVector};
    const unsigned repeat = (rows / 4 + 15) / 16 * 16;
    const unsigned repeat_bytes = repeat * width, repeat_slots = repeat * slots.bytes;
    const unsigned whole = rows * width - (kVector - 1);  // vectors that begin here or later extend past the last row
    const unsigned end = min(max(part.end(), begin) - begin, whole);
    Byte* const dst = settled(part.dst + begin);
    // First the vectors that are inside a row, then those that hold the end of one and the start of the next.
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
    ChunkPart part = part_of(launch, output, chunk);

    const unsigned lead = kAligned ? 0u : (kVector - phase(part.dst)) % kVector;
    const unsigned tile_bytes = launch.tile_bytes;
    if constexpr (kShort) {
        const unsigned rows = quotient(kShortThreads, output.by_slot) / 2 * (2 * kLoads);
        const unsigned tile_rows = tile_bytes / (kShortThreads * kLoads * kVector) * rows;  // of one to four rounds
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
