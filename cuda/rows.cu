// Copies wide outputs at any alignment, such as queries, keys and values, or the tokens of each expert.
//
// The input is rows of `pitch` bytes. An output takes the same columns of each row, and stores them row after row.
// Consecutive rows form a chunk, and a chunk's bytes of one output are cut into tiles. A block copies one tile, so that
// everything about its output is the same for all of its threads. A tile consists of vectors of 16 bytes at aligned
// addresses of the output. A block copies it in rounds: in each, a warp takes kLoads * 32 consecutive vectors, of
// which its lane l takes vectors l, l + 32, ... All loads of a round are in flight before its first store.
//
// Blocks are numbered chunk by chunk, and within a chunk output by output, and GPUs start them in about this order. If
// two outputs share a sector of the input, it is thus usually still in the L2 cache when needed again. All sizes are
// arguments.
//
// kAligned: pointers, widths, offsets and pitch are multiples of 16 bytes. Otherwise, a vector of the output is read as
// the two aligned vectors that hold it in the input, which are shifted together in registers. The L1 cache then serves
// two bytes for each byte copied, unless the vector happens to be aligned in the input, too. Two kinds of bytes are
// copied separately: vectors that hold the end of a row and the start of the next one, by one thread each, in every
// block whose tile has such vectors (join_rows); and the bytes of an output before its first vector and after its last
// (copy_ends).
// kOneRow: a chunk is one row, which may have 2^32 bytes or more. Otherwise a chunk has fewer than 2^30 bytes of an
// output. Position counts bytes of a row: it has 64 bits with kOneRow, otherwise 32.
// kEqual: all outputs have the same width and are adjacent in the input. The tables then have one entry, and a block
// finds its output by a division instead of a search.
//
// Assumes: if there are several rows, each has 16 bytes or more of every output. A vector of an output is then in two
// rows at most.

constexpr unsigned kWarp = 32;

// One output's bytes of a chunk. With kOneRow, skip_to() makes them begin where the tile begins.
struct ChunkPart {
    const Byte* src;
    Byte* dst;
    unsigned bytes;
    unsigned rows;
    unsigned width;  // of a row
    Position gap;    // bytes of a row of the input that belong to other outputs, or to none
    Divisor by_width;
    bool is_last;    // whether this is the last chunk
    U64 policy;

    __device__ unsigned row_of(unsigned byte) const {
        if constexpr (kOneRow) return 0;
        else return quotient(byte, by_width);
    }
    // The input's address of a byte of the part, if the byte is in `row`. For a vector that begins in the row before,
    // the address from which its bytes in `row` are counted (join_rows).
    __device__ const Byte* source(unsigned byte, U64 row) const { return src + byte + row * gap; }
    // Vectors that begin before this byte are copied. A vector belongs to the chunk in which it begins, and may extend
    // into the next chunk, but not past the output.
    __device__ unsigned end_byte() const { return kAligned || !is_last ? bytes : whole_end_byte(); }
    // Vectors that begin at this byte or later extend past the part: bytes - 15, or 0 if that is negative.
    __device__ unsigned whole_end_byte() const { return max(bytes, kVector - 1u) - (kVector - 1); }
};

// A vector at any address, as the two aligned vectors that hold it. Each of these is read only if it holds one of the
// bytes `first_byte` to `end_byte` - 1 of the vector.
struct UnalignedVector {
    uint4 low = {}, high = {};
    unsigned shift = 0;  // bytes of `low` before the vector

    // `step_bytes` is a multiple of 16 and, after unrolling, a constant: it becomes the immediate offset of the loads.
    __device__ void read(const Byte* src, int step_bytes = 0, unsigned first_byte = 0, unsigned end_byte = kVector) {
        shift = opaque(phase(src));
        const Byte* const vector = vector_around(src) + step_bytes;
        if (first_byte == 0 || shift + first_byte < kVector) low = load<uint4>(vector);
        // For a whole vector, shift + 16 > 16 means shift != 0, which needs no addition.
        if (end_byte == kVector ? shift != 0 : shift + end_byte > kVector) high = load<uint4>(vector + kVector);
    }
    __device__ uint4 vector() const {
        unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        shift_down<1>(words, shift);
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// Copies those vectors between `first_byte` and `end_byte` that hold the end of a row and the start of the next one.
// Thread t looks at the t-th row from the one that holds `first_byte`, and at every blockDim.x-th row after it. Vectors
// begin at `first_byte` plus multiples of 16. The last one that begins in a row therefore has row_end - first_byte
// modulo 16 bytes of that row, its head.
__device__ inline void join_rows(const ChunkPart& part, unsigned first_byte, unsigned end_byte) {
    for (unsigned row = part.row_of(first_byte) + threadIdx.x; row < part.rows; row += blockDim.x) {
        const unsigned row_end = (row + 1) * part.width;
        if (kOneRow && row_end <= first_byte) break;  // copied by the block of the tile before, or by copy_ends
        const unsigned head_bytes = (row_end - first_byte) % kVector, vector_byte = row_end - head_bytes;
        if (vector_byte >= end_byte) break;
        if (head_bytes == 0) continue;
        UnalignedVector head, tail;
        head.read(part.source(vector_byte, row), 0, 0, head_bytes);
        tail.read(part.source(vector_byte, row + 1), 0, head_bytes);
        store(part.dst + vector_byte, joined(head.vector(), tail.vector(), head_bytes), part.policy);
    }
}

// Copies a thread's vectors of a round, the first at `thread_byte`. It stores those that begin before `end_byte` and do
// not extend into the next row, which is left to join_rows. In a kFull round, all begin before `end_byte`.
template <bool kFull>
__device__ inline void copy_round(const ChunkPart& part, unsigned thread_byte, unsigned end_byte, const Byte* src,
                                  Byte* dst) {
    UnalignedVector unaligned[kLoads];
    uint4 loaded[kLoads];
    bool is_stored[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const int step_bytes = i * (kWarp * kVector);
        const unsigned byte = thread_byte + step_bytes, row = part.row_of(byte);
        const Byte* const row_src = opaque(src + static_cast<U64>(row) * part.gap);  // step_bytes is the load's offset
        const bool is_read = kFull || byte < end_byte;
        // The vector ends in its row: column + 16 <= width, in the form that takes NVRTC the fewest instructions.
        const auto minus_column = [&] { return static_cast<int>(row * part.width) - static_cast<int>(byte); };
        is_stored[i] = is_read && (kAligned || kOneRow || minus_column() >= kVector - static_cast<int>(part.width));
        if (!is_read) continue;
        if constexpr (kAligned) loaded[i] = load<uint4>(row_src + step_bytes);
        else unaligned[i].read(row_src, step_bytes);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        if constexpr (!kAligned) loaded[i] = unaligned[i].vector();
        if (is_stored[i]) store(dst + i * (kWarp * kVector), loaded[i], part.policy);
    }
}

// Copies the vectors that begin between `first_byte` and `end_byte`, in rounds.
__device__ inline void copy_vectors(const ChunkPart& part, unsigned first_byte, unsigned end_byte) {
    const unsigned first_vector = threadIdx.x / kWarp * (kWarp * kLoads) + threadIdx.x % kWarp;  // in each round
    const unsigned first_offset = first_vector * kVector, round_bytes = blockDim.x * (kLoads * kVector);
    const Byte* src = opaque(part.src + (first_byte + first_offset));
    Byte* dst = opaque(part.dst + (first_byte + first_offset));
#pragma unroll 1
    for (; first_byte < end_byte; first_byte += round_bytes, src += round_bytes, dst += round_bytes) {
        if (first_byte + round_bytes <= end_byte) copy_round<true>(part, first_byte + first_offset, end_byte, src, dst);
        else copy_round<false>(part, first_byte + first_offset, end_byte, src, dst);
    }
}

__device__ inline void copy_bytes(Byte* dst, const Byte* src, unsigned count, U64 policy) {
    if (threadIdx.x < count) store(dst + threadIdx.x, load<Byte>(src + threadIdx.x), policy);
}

// Copies the bytes of an output before its first aligned vector (`lead` bytes), if its first tile is the block's, and
// those after its last whole vector, if they begin in the block's tile; one byte per thread.
__device__ inline void copy_ends(const ChunkPart& part, bool is_first_tile, unsigned lead, unsigned first_byte,
                                 unsigned tile_bytes) {
    if (is_first_tile) copy_bytes(part.dst, part.src, min(lead, part.bytes), part.policy);
    if (!part.is_last || part.bytes <= lead) return;
    const unsigned tail_bytes = (part.bytes - lead) % kVector, tail = part.bytes - tail_bytes;
    if (tail >= first_byte && tail < first_byte + tile_bytes)
        copy_bytes(part.dst + tail, part.source(tail, part.rows - 1), tail_bytes, part.policy);
}

// What the tables say about an output.
struct Output {
    int index;
    unsigned first_tile;  // in a chunk
    Position offset, width;  // of its columns
    Divisor by_width;
};

// The output to which a tile of a chunk belongs. A template, because `launch` does not have every table that is named
// here: only in templates does `if constexpr` leave out what would not compile.
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
    return output;
}

template <class Launch>
__device__ inline ChunkPart part_of(const Launch& launch, const Output& output, unsigned chunk) {
    ChunkPart part;
    part.policy = launch.policy;
    part.is_last = chunk == launch.last_chunk;
    part.rows = kOneRow ? 1u : part.is_last ? launch.last_rows : launch.chunk_rows;
    part.width = kOneRow ? 0u : static_cast<unsigned>(output.width);  // with kOneRow, skip_to() sets it
    part.bytes = part.rows * part.width;
    part.gap = launch.pitch - output.width;
    part.by_width = output.by_width;
    const Position chunk_bytes = kOneRow ? output.width : launch.chunk_rows * output.width;
    part.src = launch.input + output.offset + static_cast<U64>(chunk) * launch.chunk_pitch;
    part.dst = launch.outputs[output.index] + static_cast<U64>(chunk) * chunk_bytes;
    return part;
}

// Makes `part`, which is a single row, begin at a byte of the row. The row may have 2^32 bytes or more, so the part is
// also cut off after kMaxBytes, which is more than a tile has.
__device__ inline void skip_to(ChunkPart& part, Position byte, Position width) {
    constexpr Position kMaxBytes = 1 << 30;  // MAX_CHUNK_BYTES in planner/rows.py
    part.src += byte;
    part.dst += byte;
    part.bytes = part.width = static_cast<unsigned>(min(width - min(byte, width), kMaxBytes));
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) rows(const __grid_constant__ Parameters launch) {
    const unsigned chunk = quotient(blockIdx.x, launch.by_chunk_tiles);
    const unsigned tile = blockIdx.x - chunk * launch.chunk_tiles;
    const Output output = output_of(launch, tile);
    ChunkPart part = part_of(launch, output, chunk);
    const unsigned lead = kAligned ? 0u : (kVector - phase(part.dst)) % kVector;  // bytes before an aligned vector
    const unsigned tile_bytes = launch.tile_bytes;
    const Position tile_byte = static_cast<Position>(tile - output.first_tile) * tile_bytes;
    if constexpr (kOneRow) skip_to(part, tile_byte, output.width);
    const unsigned first_byte = lead + (kOneRow ? 0u : static_cast<unsigned>(tile_byte));
    const unsigned end_byte = min(part.end_byte(), first_byte + tile_bytes);
    if constexpr (!kAligned) copy_ends(part, chunk == 0 && tile_byte == 0, lead, first_byte, tile_bytes);
    // With kOneRow, a vector that extends past the row is left to join_rows.
    const unsigned whole_end = kOneRow && !kAligned ? min(part.whole_end_byte(), first_byte + tile_bytes) : end_byte;
    copy_vectors(part, first_byte, whole_end);
    if constexpr (!kAligned) join_rows(part, first_byte, end_byte);
}
