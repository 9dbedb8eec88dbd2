// Copies any number of narrow outputs, one byte wide or more, such as labels or the heads of a detector.
//
// A block copies a tile through shared memory. A tile is some rows of the columns of one group of outputs, and consists
// of slabs that are alike: phases in memory repeat after the rows of a slab, and a slab's share of each output is whole
// vectors of 16 bytes. What a thread computes for the first slab is therefore true of all of them:
//
// - which vector of the input it reads, and where that belongs in shared memory. A slab is read in runs of vectors:
//   one run for each row, or a single run if the tile is whole rows.
// - which vector of an output it writes, and where each part of it is in shared memory. Neighbouring threads write
//   neighbouring vectors of an output. A part has kPartBytes, which divides every width, offset, pitch and address.
//   Parts are loaded one by one, because rows may end anywhere in a vector. If parts are single bytes, but all outputs
//   are at least a vector wide, a thread loads words instead and shifts them (kShiftWords): 5 loads, or 10 if a row
//   ends in the vector, which is then in two rows at most, instead of 16.
//
// In a round, a block reads kLoads slabs at once, and then writes them. All sizes are arguments.
//
// Byte c of a slab's row r is at corner_phase + r * row_pitch + c in shared memory, where corner_phase is that of the
// slab's first byte. row_pitch equals the input's pitch modulo 16, so that vectors stay aligned. kPadded: after every
// 2^pad_bits bytes, unused vectors move the rest to other banks.
//
// A vector of an unaligned output belongs to the slab in which it ends. Its first bytes may be in earlier rows, so a
// slab also reads the `rows_before` rows in front of it. At both ends of an output, a thread stores only the parts
// that belong to the output.
constexpr int kParts = kVector / kPartBytes;
using Part = typename Unsigned<kPartBytes>::Type;
constexpr int kVectorWords = 5;  // words that hold a vector at any address

__device__ inline unsigned padded(unsigned place, const Parameters& launch) {
    return kPadded ? place + (place >> launch.pad_bits) * launch.pad_bytes : place;
}

// The vector of each slab that a thread reads.
struct Source {
    const Byte* src;
    unsigned first_row, last_row;  // of its first and last byte, counted from the first row that the tile reads
    unsigned place;  // in shared memory, in vectors
    bool is_read;

    __device__ Source(const Byte* corner, unsigned run_bytes, const Parameters& launch) {
        const unsigned run = quotient(threadIdx.x, launch.by_run_vectors);
        const unsigned byte = (threadIdx.x - run * launch.run_vectors) * kVector;  // from the run's first vector on
        const Byte* const run_begin = corner + static_cast<U64>(run) * launch.pitch;
        const unsigned run_phase = phase(run_begin);
        is_read = threadIdx.x < launch.read_vectors && byte < run_phase + run_bytes;
        src = run_begin - run_phase + byte;
        first_row = run + quotient(max(byte, run_phase) - run_phase, launch.by_pitch);  // a vector may begin before it
        last_row = run + quotient(byte + (kVector - 1) - run_phase, launch.by_pitch);
        place = padded(phase(corner) + run * launch.row_pitch - run_phase + byte, launch) / kVector;
    }

    // Moves on to the next slab.
    __device__ void next(const Parameters& launch) {
        src += launch.slab_pitch;
        first_row += launch.slab_rows;
        last_row += launch.slab_rows;
    }
};

// The vector of each slab that a thread writes, and where its parts are in shared memory.
struct Target {
    Byte* dst;
    int first_byte;  // where the vector begins in the tile's share of the output
    int width;
    U64 policy;
    int places[kParts];  // of its parts or words in shared memory, from the start of a slab
    // Byte i of the vector is there at in_row + i if i < row_left, else at in_next + i, in the next row.
    unsigned in_row, in_next, row_left;

    __device__ Target(unsigned group, U64 tile, unsigned corner_phase, const Parameters& launch)
        : policy(launch.policy) {
        const unsigned items = launch.group_items[group + 1] - launch.group_items[group];
        const unsigned item = launch.group_items[group] + min(threadIdx.x, items - 1);
        const int output = last_at_most<kOutputs>(launch.first_items, item);
        // The offset in the run is in the upper 32 bits, and the width in the lower ones.
        const unsigned output_width = static_cast<unsigned>(launch.offsets_and_widths[output] & ~0u);
        const unsigned offset = static_cast<unsigned>(launch.offsets_and_widths[output] >> 32);
        dst = launch.outputs[output] + tile * (launch.tile_rows * output_width);
        first_byte = static_cast<int>((item - launch.first_items[output]) * kVector) - static_cast<int>(phase(dst));
        width = static_cast<int>(output_width);
        dst += first_byte;
        // From here on, bytes and rows are counted from the first row that is read.
        const unsigned byte = static_cast<unsigned>(first_byte + static_cast<int>(launch.rows_before) * width);
        const unsigned row = quotient(byte, launch.by_width[output]), gap = launch.row_pitch - output_width;
        in_row = corner_phase + offset + byte + row * gap, in_next = in_row + gap;
        row_left = (row + 1) * output_width - byte;
        if (kShiftWords) find_words(launch);
        else find_parts(gap, launch);
    }

    // Finds the places of the parts. `place` moves on by `gap` wherever a row ends between two parts.
    __device__ void find_parts(unsigned gap, const Parameters& launch) {
        unsigned place = in_row, row_end = row_left;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            places[i] = opaque(static_cast<int>(padded(place + i * kPartBytes, launch)));
            if (i + 1 == kParts || row_end > static_cast<unsigned>((i + 1) * kPartBytes)) continue;
            place = opaque(place + gap);
            row_end += static_cast<unsigned>(width);
        }
    }

    // Finds the places of the words, in either row. One that holds no byte of the vector may be outside shared memory;
    // the nearest one that does replaces it.
    __device__ void find_words(const Parameters& launch) {
        const unsigned row_last = in_row + min(row_left, static_cast<unsigned>(kVector)) - 1;
        const unsigned next_first = in_next + min(row_left, kVector - 1u);
#pragma unroll
        for (unsigned i = 0; i < kVectorWords; ++i) {
            places[i] = opaque(static_cast<int>(padded(min(in_row + 4 * i, row_last) / 4 * 4, launch)));
            const unsigned place = min(max(in_next + 4 * i, next_first), in_next + (kVector - 1));
            places[kVectorWords + i] = opaque(static_cast<int>(padded(place / 4 * 4, launch)));
        }
    }

    // The vector at `place`, from the five words whose places begin with number `first_word`.
    __device__ uint4 unaligned_vector(const uint4* slab, int first_word, unsigned place) const {
        unsigned words[kVectorWords];
#pragma unroll
        for (int i = 0; i < kVectorWords; ++i)
            words[i] = *reinterpret_cast<const unsigned*>(reinterpret_cast<const Byte*>(slab) + places[first_word + i]);
        return funnel(words, place);
    }

    // The vector, loaded as words. If its row ends inside it, the rest is the start of the next row.
    __device__ uint4 vector_of_words(const uint4* slab) const {
        const uint4 head = unaligned_vector(slab, 0, in_row);
        return row_left < kVector ? joined(head, unaligned_vector(slab, kVectorWords, in_next), row_left) : head;
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
        if (kShiftWords) return vector_of_words(slab);
        Part parts[kParts];
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            parts[i] = *reinterpret_cast<const Part*>(reinterpret_cast<const Byte*>(slab) + places[i]);
        return vector_of(parts);
    }
};

// kFull: the tile has all of its rows, and there are rows before it if it needs any.
template <bool kFull>
__device__ inline void copy_rows(uint4* shared, unsigned tile, unsigned group, const Parameters& launch) {
    // Where the tile begins, or the rows before it that it needs.
    const Byte* corner = launch.input + (launch.run_offsets[group] + static_cast<long long>(tile * launch.tile_pitch));
    // A tile after all rows has only the ends of the outputs' last vectors. `rows` is then negative.
    const int rest =
        static_cast<int>(launch.rest_rows) - (tile > launch.full_tiles ? static_cast<int>(launch.tile_rows) : 0);
    const int rows = tile < launch.full_tiles ? static_cast<int>(launch.tile_rows) : rest;
    // Rows before the split's first one and after its last one are not read.
    const unsigned first_row = tile == 0 ? launch.rows_before : 0u;
    const unsigned end_row = static_cast<unsigned>(static_cast<int>(launch.rows_before) + rows);
    Source source(corner, launch.run_bytes[group], launch);
    Target target(group, tile, phase(corner), launch);
    // In later tiles, a vector may begin in the tile before: it belongs where it ends.
    const int begin = tile == 0 ? 0 : -kVector, end = rows * target.width;
    const bool is_writer = threadIdx.x < launch.group_items[group + 1] - launch.group_items[group];
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
            if (source.is_read) shared[i * kSlabVectors + source.place] = loaded[i];
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
    is_full ? copy_rows<true>(shared, tile, group, launch) : copy_rows<false>(shared, tile, group, launch);
}
