// Copies any number of narrow outputs, one byte wide or more, such as labels or the heads of a detector.
//
// A block copies a tile through shared memory. A tile is a number of rows, cut to the columns of one group of outputs,
// and consists of slabs that are alike: corresponding bytes of two slabs have the same phase (address modulo 16) in the
// input and in the outputs, and a slab's share of each output is whole vectors of 16 bytes. What a thread computes for
// the first slab is therefore true of all of them:
//
// - which vector of the input it reads, and where that belongs in shared memory. A slab is read in runs of vectors:
//   one run for each row, or a single run if the tile is whole rows.
// - which vector of an output it writes, and where each part of it is in shared memory. Neighbouring threads write
//   neighbouring vectors of an output. A part has kPartBytes, which divides every width, offset, pitch and address.
//   Parts are loaded one by one, because rows may end anywhere in a vector. But if parts are single bytes and the
//   output is at least a vector wide, a vector is in two rows at most. A thread then loads words and shifts them: 5
//   loads, or 10 if a row ends in the vector, instead of 16 (kWide: some outputs are loaded so).
//
// In a round, a block reads kLoads slabs at once, and then writes them. All sizes are arguments.
//
// Of the rows that a slab reads, those before it included (see below), byte c of row r's columns of the group has the
// offset corner_phase + r * row_pitch + c in shared memory, where corner_phase is the phase of the first byte read.
// row_pitch and the input's pitch are congruent modulo 16, so that aligned vectors of the input stay aligned. kPadded:
// after every 2^pad_bits bytes, pad_bytes unused bytes move the rest to other banks, against bank conflicts.
//
// A vector of an unaligned output belongs to the slab in which it ends. Its first bytes may be in earlier rows, so a
// slab also reads the `rows_before` rows in front of it. At both ends of an output, a thread stores only the parts
// that belong to the output.
constexpr int kParts = kVector / kPartBytes;
using Part = typename Unsigned<kPartBytes>::Type;
constexpr int kVectorWords = 5;  // words that hold a vector at any address

// An offset in shared memory, moved by the padding before it.
__device__ inline unsigned padded(unsigned offset, const Parameters& launch) {
    return kPadded ? offset + (offset >> launch.pad_bits) * launch.pad_bytes : offset;
}

// The vector of each slab that a thread reads.
struct Source {
    const Byte* src;
    unsigned first_row, last_row;  // of its first and last byte, counted from the first row that the tile reads
    unsigned shared_vector;  // its index in shared memory
    bool is_read;

    __device__ Source(const Byte* corner, unsigned run_bytes, const Parameters& launch) {
        const unsigned run = quotient(threadIdx.x, launch.by_run_vectors);
        const unsigned byte = (threadIdx.x - run * launch.run_vectors) * kVector;  // from the run's first vector
        const Byte* const run_begin = corner + static_cast<U64>(run) * launch.pitch;
        const unsigned run_phase = phase(run_begin);
        is_read = threadIdx.x < launch.read_vectors && byte < run_phase + run_bytes;
        src = run_begin - run_phase + byte;
        // The run's first vector may begin before the run.
        first_row = run + quotient(max(byte, run_phase) - run_phase, launch.by_pitch);
        last_row = run + quotient(byte + (kVector - 1) - run_phase, launch.by_pitch);
        shared_vector = padded(phase(corner) + run * launch.row_pitch - run_phase + byte, launch) / kVector;
    }

    // Moves on to the next slab.
    __device__ void next(const Parameters& launch) {
        src += launch.slab_pitch;
        first_row += launch.slab_rows;
        last_row += launch.slab_rows;
    }
};

// The vector of each slab that a thread writes (an item), and where its parts are in shared memory.
struct Target {
    Byte* dst;
    int first_byte;  // where the vector begins in the tile's share of the output
    int width;
    U64 policy;
    int shared_offsets[kParts];  // of its parts, or of words of two rows, from the start of a slab in shared memory
    // Without padding, byte i of the vector is at row_offset + i in shared memory if i < row_bytes_left, and at
    // next_row_offset + i in the next row. Every further row that the vector reaches adds next_row_offset - row_offset
    // again.
    unsigned row_offset, next_row_offset, row_bytes_left;

    __device__ Target(unsigned group, U64 tile, unsigned corner_phase, const Parameters& launch)
        : policy(launch.policy) {
        const unsigned items = launch.group_first_items[group + 1] - launch.group_first_items[group];
        const unsigned item = launch.group_first_items[group] + min(threadIdx.x, items - 1);
        const int output = last_at_most<kOutputs>(launch.output_first_items, item);
        // The offset in the run is in the upper 32 bits, and the width in the lower ones.
        const unsigned output_width = static_cast<unsigned>(launch.offsets_and_widths[output] & ~0u);
        const unsigned offset = static_cast<unsigned>(launch.offsets_and_widths[output] >> 32);
        dst = launch.outputs[output] + tile * (launch.tile_rows * output_width);
        const unsigned output_item = item - launch.output_first_items[output];
        first_byte = static_cast<int>(output_item * kVector) - static_cast<int>(phase(dst));
        width = static_cast<int>(output_width);
        dst += first_byte;
        // From here on, bytes and rows are counted from the first row that is read.
        const unsigned byte = static_cast<unsigned>(first_byte + static_cast<int>(launch.rows_before) * width);
        const unsigned row = quotient(byte, launch.by_width[output]), gap = launch.row_pitch - output_width;
        row_offset = corner_phase + offset + byte + row * gap, next_row_offset = row_offset + gap;
        row_bytes_left = (row + 1) * output_width - byte;
        if (is_wide()) find_words(launch);
        else find_parts(gap, launch);
    }

    __device__ bool is_wide() const { return kWide && width >= kVector; }

    // Computes the offsets of the parts. `offset` moves on by `gap` wherever a row ends between two parts.
    __device__ void find_parts(unsigned gap, const Parameters& launch) {
        unsigned offset = row_offset, row_end = row_bytes_left;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            shared_offsets[i] = opaque(static_cast<int>(padded(offset + i * kPartBytes, launch)));
            if (i + 1 == kParts || row_end > static_cast<unsigned>((i + 1) * kPartBytes)) continue;
            offset = opaque(offset + gap);
            row_end += static_cast<unsigned>(width);
        }
    }

    // Computes the offsets of the words, five in each of the two rows. A word without a byte of its row may be outside
    // shared memory, so the row's nearest word replaces it.
    __device__ void find_words(const Parameters& launch) {
        const unsigned row_last = row_offset + row_bytes_left - 1, next_first = next_row_offset + row_bytes_left;
#pragma unroll
        for (unsigned i = 0; i < kVectorWords; ++i) {
            const unsigned in_row = min(row_offset + 4 * i, row_last);
            const unsigned in_next_row = max(next_row_offset + 4 * i, next_first);
            shared_offsets[i] = opaque(static_cast<int>(padded(in_row / 4 * 4, launch)));
            shared_offsets[kVectorWords + i] = opaque(static_cast<int>(padded(in_next_row / 4 * 4, launch)));
        }
    }

    // The five words that begin with number `first_word`, shifted so that the first byte is that at `offset`.
    __device__ uint4 unaligned_vector(const uint4* slab, int first_word, unsigned offset) const {
        const auto* const bytes = reinterpret_cast<const Byte*>(slab);
        unsigned words[kVectorWords];
#pragma unroll
        for (int i = 0; i < kVectorWords; ++i)
            words[i] = *reinterpret_cast<const unsigned*>(bytes + shared_offsets[first_word + i]);
        return funnel(words, offset);
    }

    // The vector, loaded as words. If its row ends inside it, the rest is the start of the next row.
    __device__ uint4 vector_of_words(const uint4* slab) const {
        const uint4 head = unaligned_vector(slab, 0, row_offset);
        return row_bytes_left < kVector
                   ? joined(head, unaligned_vector(slab, kVectorWords, next_row_offset), row_bytes_left)
                   : head;
    }

    // Moves on to the next slab.
    __device__ void next(unsigned slab_rows) {
        const int bytes = static_cast<int>(slab_rows) * width;
        dst += bytes;
        first_byte += bytes;
    }

    // Stores the vector, or only its parts between `begin` and `end`, where the output begins or ends in the tile.
    template <bool kFull> __device__ void copy(const uint4* slab, int begin, int end) const {
        if (kFull || (first_byte >= begin && first_byte + kVector <= end)) return store(dst, vector(slab), policy);
        const uint4 parts = vector(slab);
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            if (first_byte + i * kPartBytes >= begin && first_byte + i * kPartBytes < end)
                store(dst + i * kPartBytes, reinterpret_cast<const Part*>(&parts)[i], policy);
    }

    __device__ uint4 vector(const uint4* slab) const {
        if (is_wide()) return vector_of_words(slab);
        Part parts[kParts];
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            parts[i] = *reinterpret_cast<const Part*>(reinterpret_cast<const Byte*>(slab) + shared_offsets[i]);
        return vector_of(parts);
    }
};

// Copies a tile, round by round. kFull: it has all of its rows, and the rows before it that it needs exist.
template <bool kFull>
__device__ inline void copy_tile(uint4* shared, unsigned tile, unsigned group, const Parameters& launch) {
    // Where the tile, with the rows before it that it needs, begins in the input.
    const Byte* corner = launch.input + (launch.run_offsets[group] + static_cast<long long>(tile * launch.tile_pitch));
    // A tile after all rows has only the ends of the outputs' last vectors. `rows` is then 0 or negative: the last row
    // is before the tile.
    const int rest =
        static_cast<int>(launch.rest_rows) - (tile > launch.full_tiles ? static_cast<int>(launch.tile_rows) : 0);
    const int rows = tile < launch.full_tiles ? static_cast<int>(launch.tile_rows) : rest;
    // Rows before the split's first one and after its last one are not read.
    const unsigned first_row = tile == 0 ? launch.rows_before : 0u;
    const unsigned end_row = static_cast<unsigned>(static_cast<int>(launch.rows_before) + rows);
    Source source(corner, launch.run_bytes[group], launch);
    Target target(group, tile, phase(corner), launch);
    // A vector belongs to the tile in which it ends, so in later tiles, one may begin before the tile.
    const int begin = tile == 0 ? 0 : -kVector, end = rows * target.width;
    const bool is_writer = threadIdx.x < launch.group_first_items[group + 1] - launch.group_first_items[group];
#pragma unroll 1
    for (unsigned round = 0; round < launch.rounds; ++round) {
        uint4 loaded[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i, source.next(launch)) {
            if constexpr (!kFull) loaded[i] = {};
            if (source.is_read && (kFull || (source.last_row >= first_row && source.first_row < end_row)))
                loaded[i] = load<uint4>(source.src);
        }
        if (round > 0) __syncthreads();
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            if (source.is_read) shared[i * kSlabVectors + source.shared_vector] = loaded[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kLoads; ++i, target.next(launch.slab_rows))
            if (is_writer) target.copy<kFull>(shared + i * kSlabVectors, begin, end);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) tile(const __grid_constant__ Parameters launch) {
    __shared__ uint4 shared[kLoads * kSlabVectors];
    const unsigned tile = quotient(blockIdx.x, launch.by_groups), group = blockIdx.x - tile * launch.groups;
    const bool is_full = tile < launch.full_tiles && (tile > 0 || launch.rows_before == 0);
    is_full ? copy_tile<true>(shared, tile, group, launch) : copy_tile<false>(shared, tile, group, launch);
}
