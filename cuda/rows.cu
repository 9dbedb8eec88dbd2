// Copies wide outputs at any alignment, such as queries, keys and values, or the tokens of each expert.
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
// kOneRow: a chunk is one row, which may have 2^32 bytes or more. Otherwise a chunk has fewer than 2^30 bytes of an
// output. If there are several rows, each has 16 bytes or more of every output: no vector extends over more than two.

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
    U64 policy;

    __device__ unsigned row_of(unsigned byte) const {
        if constexpr (kOneRow) return 0;
        else return quotient(byte, by_width);
    }
    // Where the input has a byte of the part, which is in `row`.
    __device__ const Byte* source(unsigned byte, U64 row) const { return src + byte + row * gap; }
    // Vectors that begin before this byte are copied. A vector belongs to the chunk in which it begins, and may end in
    // the next one, but not after the output.
    __device__ unsigned end_byte() const { return kAligned || !is_last ? bytes : whole_end_byte(); }
    // Vectors that begin at this byte or later extend past the part. It is bytes - 15, or 0 if that is negative.
    __device__ unsigned whole_end_byte() const { return max(bytes, kVector - 1u) - (kVector - 1); }
};

// A vector at any address, as the two aligned vectors that hold it. Each of these is read only if it holds one of the
// bytes `first_byte` to `end_byte` - 1 of the vector.
struct UnalignedVector {
    uint4 low = {}, high = {};
    unsigned shift = 0;  // bytes of `low` before the vector

    // `step_bytes` is a multiple of 16, and known to the compiler, so that the load instruction adds it.
    __device__ void read(const Byte* src, int step_bytes = 0, unsigned first_byte = 0, unsigned end_byte = kVector) {
        shift = opaque(phase(src));
        const Byte* const vector = vector_around(src) + step_bytes;
        if (first_byte == 0 || shift + first_byte < kVector) low = load<uint4>(vector);
        // The second condition holds for whole vectors, too, but takes an addition.
        if (end_byte == kVector ? shift != 0 : shift + end_byte > kVector) high = load<uint4>(vector + kVector);
    }
    __device__ uint4 vector() const {
        unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        shift_down<1>(words, shift);
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// Copies those vectors between `first_byte` and `end_byte` that hold the end of a row and the start of the next one.
// Thread t takes the t-th of these rows, and every blockDim.x-th after it. Vectors begin at multiples of 16 after
// `first_byte`, so the last one that begins in a row has row_end - first_byte modulo 16 bytes of the row, its head.
__device__ inline void join_rows(const ChunkPart& part, unsigned first_byte, unsigned end_byte) {
    for (unsigned row = part.row_of(first_byte) + threadIdx.x; row < part.rows; row += blockDim.x) {
        const unsigned row_end = (row + 1) * part.width;
        if (kOneRow && row_end <= first_byte) break;  // the tile before copies these bytes, or copy_ends does
        const unsigned head_bytes = (row_end - first_byte) % kVector, vector_byte = row_end - head_bytes;
        if (vector_byte >= end_byte) break;
        if (head_bytes == 0) continue;
        UnalignedVector head, tail;
        head.read(part.source(vector_byte, row), 0, 0, head_bytes);
        tail.read(part.source(vector_byte, row + 1), 0, head_bytes);
        store(part.dst + vector_byte, joined(head.vector(), tail.vector(), head_bytes), part.policy);
    }
}

// Copies a thread's vectors of a round, the first at byte `start`. It stores those that begin before `end` and are
// inside one row: they begin at least 16 bytes before the row ends. In a kFull round, all begin before `end`.
template <bool kFull>
__device__ inline void copy_round(const ChunkPart& part, unsigned start, unsigned end, const Byte* src, Byte* dst) {
    UnalignedVector unaligned[kLoads];
    uint4 loaded[kLoads];
    bool is_stored[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int step_bytes = i * (kWarp * kVector);
        const unsigned byte = start + step_bytes, row = part.row_of(byte);
        const Byte* const vector = opaque(src + static_cast<U64>(row) * part.gap);  // the load adds step_bytes
        const bool is_read = kFull || byte < end;
        // The vector is inside its row. NVRTC needs more instructions for column + 16 <= width.
        const auto minus_column = [&] { return static_cast<int>(row * part.width) - static_cast<int>(byte); };
        is_stored[i] = is_read && (kAligned || kOneRow || minus_column() >= kVector - static_cast<int>(part.width));
        if (!is_read) continue;
        if constexpr (kAligned) loaded[i] = load<uint4>(vector + step_bytes);
        else unaligned[i].read(vector, step_bytes);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        if constexpr (!kAligned) loaded[i] = unaligned[i].vector();
        if (is_stored[i]) store(dst + i * (kWarp * kVector), loaded[i], part.policy);
    }
}

// Copies the vectors that begin between `first_byte` and `end_byte`, in rounds.
__device__ inline void copy_vectors(const ChunkPart& part, unsigned first_byte, unsigned end_byte) {
    const unsigned first_vector = threadIdx.x / kWarp * (kWarp * kLoads) + threadIdx.x % kWarp;  // of a thread's round
    const unsigned thread_byte = first_vector * kVector, round_bytes = blockDim.x * (kLoads * kVector);
    const Byte* src = opaque(part.src + (first_byte + thread_byte));
    Byte* dst = opaque(part.dst + (first_byte + thread_byte));
#pragma unroll 1
    for (; first_byte < end_byte; first_byte += round_bytes, src += round_bytes, dst += round_bytes) {
        if (first_byte + round_bytes <= end_byte) copy_round<true>(part, first_byte + thread_byte, end_byte, src, dst);
        else copy_round<false>(part, first_byte + thread_byte, end_byte, src, dst);
    }
}

__device__ inline void copy_bytes(Byte* dst, const Byte* src, unsigned count, U64 policy) {
    if (threadIdx.x < count) store(dst + threadIdx.x, load<Byte>(src + threadIdx.x), policy);
}

// Copies the bytes of an output before its first aligned vector (`lead` bytes) and after its last whole one, a byte per
// thread. The latter are copied by the block in whose tile they begin, and the former if the tile `is_start`.
__device__ inline void copy_ends(const ChunkPart& part, bool is_start, unsigned lead, unsigned first_byte,
                                 unsigned tile_bytes) {
    if (is_start) copy_bytes(part.dst, part.src, min(lead, part.bytes), part.policy);
    if (!part.is_last || part.bytes <= lead) return;
    const unsigned tail_bytes = (part.bytes - lead) % kVector, tail = part.bytes - tail_bytes;
    if (tail >= first_byte && tail < first_byte + tile_bytes)
        copy_bytes(part.dst + tail, part.source(tail, part.rows - 1), tail_bytes, part.policy);
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
        output.index = last_at_most<kOutputs>(launch.tile_starts, tile);
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
    part.src = launch.input + output.offset + static_cast<U64>(chunk) * launch.chunk_pitch;
    part.dst = launch.outputs[output.index] + static_cast<U64>(chunk) * chunk_bytes;
    return part;
}

// Advances `part`, which is a single row, to a byte of the row, and limits it, because the row may have 2^32 bytes or
// more. A tile has fewer bytes than the limit.
__device__ inline void skip_to(ChunkPart& part, Position byte, Position width) {
    constexpr Position kMaxBytes = 1 << 30;  // MAX_CHUNK_BYTES in planner/wide.py
    part.src += byte;
    part.dst += byte;
    part.bytes = part.width = static_cast<unsigned>(min(width - min(byte, width), kMaxBytes));
}

// A short row has a slot in shared memory: vectors that hold it at any phase, and a spare vector, which moves the next
// slot to other banks. The row begins in its slot at the phase that it has in the input.
constexpr unsigned kShortThreads = kThreads / 2;  // of a block
constexpr unsigned kSlotMore = 15 + 4 + (kVector - 1);  // bytes before a row, the word after it, and rounding up

// The vectors of a slot, without the spare one.
__device__ inline unsigned slot_vectors(unsigned width) { return (width + kSlotMore) / kVector; }

struct Slots {
    const Byte* shared;
    unsigned bytes;  // from slot to slot
    unsigned first_phase, pitch_phase;

    // Where a row begins in shared memory.
    __device__ unsigned place(unsigned row) const { return row * bytes + (first_phase + row * pitch_phase) % kVector; }

    __device__ uint4 vector(unsigned place) const {
        const auto* const aligned = reinterpret_cast<const unsigned*>(shared + place / 4 * 4);
        const unsigned words[5] = {aligned[0], aligned[1], aligned[2], aligned[3], aligned[4]};
        return funnel(words, place);
    }
};

// Reads kLoads * `load_rows` rows, the first at `corner`, into their slots. If only `rows_left` exist, the last one is
// read again instead of those after it. A thread reads one vector of a row, and the same one of every load_rows-th row.
__device__ inline void read_rows(uint4* shared, const Byte* corner, unsigned load_rows, unsigned rows_left,
                                 unsigned width, unsigned pitch, Divisor by_slot) {
    const unsigned vectors = slot_vectors(width), row = quotient(threadIdx.x, by_slot);
    if (row >= load_rows) return;
    const unsigned vector_byte = (threadIdx.x - row * vectors) * kVector, corner_phase = phase(corner);
    const Byte* const aligned_corner = opaque(corner - corner_phase);
    uint4 loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const unsigned row_byte = corner_phase + min(row + i * load_rows, rows_left - 1) * pitch;
        // A slot's vector may begin after the row, perhaps outside the input. The row's last vector is loaded instead.
        const unsigned byte = min(row_byte / kVector * kVector + vector_byte, row_byte + width - 1);
        loaded[i] = load<uint4>(aligned_corner + byte / kVector * kVector);
    }
    // Vector v of row r belongs at r * (vectors + 1) + v, and threadIdx.x is r * vectors + v.
    uint4* vector = shared + threadIdx.x + row;
#pragma unroll
    for (int i = 0; i < kLoads; ++i, vector += load_rows * (vectors + 1)) *vector = loaded[i];
}

// Copies the vectors that begin in a round of `rows` short rows, a multiple of 16. Phases repeat every 16 rows, so a
// thread computes the place of a vector once, and uses it again for the vectors that begin `repeat_rows`,
// 2 * `repeat_rows`, ... rows later. Bytes of the output are counted from the round's first one.
__device__ inline void copy_short(const ChunkPart& part, unsigned first_row, unsigned rows, unsigned lead,
                                  unsigned pitch, Divisor by_slot, bool is_first_round) {
    __shared__ uint4 shared[kLoads * kShortThreads * 4 / 3 + 64];  // SHORT_BYTES in planner/wide.py
    const unsigned width = part.width, round_byte = first_row * width;
    const Byte* const corner = opaque(part.src + static_cast<U64>(first_row) * pitch);
    // The last vector of a chunk ends in the row after it, which is read, too.
    read_rows(shared, corner, rows / kLoads, part.rows - first_row + !part.is_last, width, pitch, by_slot);
    const unsigned slot = slot_vectors(width) + 1;
    // Clears the spare vectors: loads at the end of a row reach into them, but those bytes are never stored.
    if (is_first_round)
        for (unsigned end = (threadIdx.x + 1) * slot; end <= rows * slot; end += kShortThreads * slot)
            shared[end - 1] = {};
    __syncthreads();

    const Slots slots = {reinterpret_cast<const Byte*>(shared), slot * kVector, phase(corner), pitch % kVector};
    // A multiple of 16, and about a quarter of the rows: up to four vectors are then stored for each computed place.
    const unsigned repeat_rows = (rows / 4 + 15) / 16 * 16;
    const unsigned repeat_bytes = repeat_rows * width, repeat_slots = repeat_rows * slots.bytes;
    const unsigned whole_end = rows * width - (kVector - 1);  // vectors that begin here or later extend past the round
    const unsigned end_byte = min(max(part.end_byte(), round_byte) - round_byte, whole_end);
    Byte* const dst = opaque(part.dst + round_byte);
    // The vectors that are inside a row.
    for (unsigned first = lead + threadIdx.x * kVector; first < repeat_bytes; first += kShortThreads * kVector) {
        const unsigned row = quotient(first, part.by_width), column = first - row * width;
        if (width - column < kVector) continue;
        const unsigned place = slots.place(row) + column;
        Slots later = slots;
        Byte* vector = dst + first;
#pragma unroll 4
        for (unsigned byte = first; byte < end_byte; byte += repeat_bytes, vector += repeat_bytes) {
            store(vector, later.vector(place), part.policy);
            later.shared += repeat_slots;
        }
    }
    // The vectors that hold the end of a row and the start of the next one, as in join_rows.
    for (unsigned row = threadIdx.x; row < repeat_rows; row += kShortThreads) {
        const unsigned row_end = (row + 1) * width, head_bytes = (row_end - lead) % kVector;
        if (head_bytes == 0) continue;
        const unsigned head = slots.place(row) + width - head_bytes, tail = slots.place(row + 1) - head_bytes;
        Slots later = slots;
        for (unsigned byte = row_end - head_bytes; byte < end_byte; byte += repeat_bytes, later.shared += repeat_slots)
            store(dst + byte, joined(later.vector(head), later.vector(tail), head_bytes), part.policy);
    }
    // At an unaligned output, the round's last vector ends in the row after the round, which is not in shared memory.
    const unsigned last_vector = round_byte + whole_end - 1 + lead;
    if (lead > 0 && last_vector < part.end_byte()) join_rows(part, last_vector, last_vector + kVector);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) rows(const __grid_constant__ Parameters launch) {
    const unsigned chunk = quotient(blockIdx.x, launch.by_chunk_tiles);
    const unsigned tile = blockIdx.x - chunk * launch.chunk_tiles;
    const Output output = output_of(launch, tile);
    ChunkPart part = part_of(launch, output, chunk);
    const unsigned lead = kAligned ? 0u : (kVector - phase(part.dst)) % kVector;  // bytes before an aligned vector
    const unsigned tile_bytes = launch.tile_bytes;
    if constexpr (kShort) {
        // Each of the eight loads of a round reads an even number of rows, which makes a multiple of 16.
        const unsigned rows = quotient(kShortThreads, output.by_slot) / 2 * (2 * kLoads);
        const unsigned tile_rows = tile_bytes / (kShortThreads * kLoads * kVector) * rows;  // of one to four rounds
        const unsigned first_row = (tile - output.first_tile) * tile_rows;
        const unsigned end_row = min(part.rows, first_row + tile_rows);
        copy_ends(part, chunk == 0 && first_row == 0, lead, first_row * part.width + lead, tile_rows * part.width);
#pragma unroll 2
        for (unsigned row = first_row; row < end_row; row += rows) {
            if (row > first_row) __syncthreads();
            copy_short(part, row, rows, lead, static_cast<unsigned>(launch.pitch), output.by_slot, row == first_row);
        }
        return;
    }
    const Position tile_byte = static_cast<Position>(tile - output.first_tile) * tile_bytes;
    if constexpr (kOneRow) skip_to(part, tile_byte, output.width);
    const unsigned first_byte = lead + (kOneRow ? 0u : static_cast<unsigned>(tile_byte));
    const unsigned end_byte = min(part.end_byte(), first_byte + tile_bytes);
    if constexpr (!kAligned) copy_ends(part, chunk == 0 && tile_byte == 0, lead, first_byte, tile_bytes);
    // A vector that extends past a single row is left to join_rows.
    const unsigned whole_end = kOneRow && !kAligned ? min(part.whole_end_byte(), first_byte + tile_bytes) : end_byte;
    copy_vectors(part, first_byte, whole_end);
    if constexpr (!kAligned) join_rows(part, first_byte, end_byte);
}
