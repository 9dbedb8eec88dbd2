// Narrow outputs: columns from one byte up, and any number of them. Heads, labels, points, channels.
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
//   are at least a vector wide, a thread loads words instead and shifts them (kShiftWords), which takes half the time.
//   A vector is then in two rows at most.
//
// In a round, a block reads kLoads slabs at once, and then writes them. All sizes are arguments.
//
// Byte c of a slab's row r is at low + r * row_pitch + c in shared memory, where `low` is the phase of the slab's first
// byte. row_pitch equals the input's pitch modulo 16, so that vectors stay aligned. kPadded: after every 2^pad_bits
// bytes, unused vectors move the rest to other banks.
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
    const Byte* from;
    unsigned row, last_row;  // of its first and last byte
    unsigned place;  // in shared memory, in vectors
    bool is_read;

    __device__ Source(const Byte* corner, unsigned run_bytes, const Parameters& launch) {
        const unsigned run = quotient(threadIdx.x, launch.by_run_vectors);
        const unsigned vector = (threadIdx.x - run * launch.run_vectors) * kVector;
        const Byte* const begin = corner + static_cast<Wide>(run) * launch.pitch;
        const unsigned low = phase(begin);
        is_read = threadIdx.x < launch.read_vectors && vector < low + run_bytes;
        from = begin - low + vector;
        row = run + quotient(max(vector, low) - low, launch.by_pitch);
        last_row = run + quotient(vector + (kVector - 1) - low, launch.by_pitch);
        place = padded(phase(corner) + run * launch.row_pitch - low + vector, launch) / kVector;
    }

    // Moves on to the next slab.
    __device__ void next(const Parameters& launch) {
        from += launch.slab_pitch;
        row += launch.slab_rows;
        last_row += launch.slab_rows;
    }
};

// The vector of each slab that a thread writes, and where its parts are in shared memory.
struct Target {
    Byte* dst;
    int at;  // where the vector begins in the tile's share of the output
    int width;
    Wide policy;
    int places[kParts];
    // In shared memory, byte i of the vector is at in_row + i if i < row_left, else at in_next + i, in the next row.
    unsigned in_row, in_next, row_left;

    // `number` is the tile's among those of its group, and `low` the phase of a slab's first byte.
    __device__ Target(unsigned group, Wide number, unsigned low, const Parameters& launch) : policy(launch.policy) {
        const unsigned items = launch.group_items[group + 1] - launch.group_items[group];
        const unsigned item = launch.group_items[group] + min(threadIdx.x, items - 1);
        const int output = find<kOutputs>(launch.first_items, item);
        const unsigned columns = static_cast<unsigned>(launch.places[output] & ~0u);
        const unsigned offset = static_cast<unsigned>(launch.places[output] >> 32);
        dst = launch.outputs[output] + number * (launch.tile_rows * columns);
        at = static_cast<int>((item - launch.first_items[output]) * kVector) - static_cast<int>(phase(dst));
        width = static_cast<int>(columns);
        dst += at;
        const unsigned byte = static_cast<unsigned>(at + static_cast<int>(launch.rows_before) * width);
        const unsigned row = quotient(byte, launch.by_width[output]), gap = launch.row_pitch - columns;
        in_row = low + offset + byte + row * gap, in_next = in_row + gap, row_left = (row + 1) * columns - byte;
        if (kShiftWords) find_words(launch);
        else find_parts(gap, launch);
    }

    __device__ void find_parts(unsigned gap, const Parameters& launch) {
        unsigned place = in_row, end = row_left;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            places[i] = settled(static_cast<int>(padded(place + i * kPartBytes, launch)));
            if (i + 1 == kParts || end > static_cast<unsigned>((i + 1) * kPartBytes)) continue;
            place = settled(place + gap);
            end += static_cast<unsigned>(width);
        }
    }

    // A word that holds no byte of the vector may be outside shared memory. The nearest one that does replaces it.
    __device__ void find_words(const Parameters& launch) {
        const unsigned last = in_row + min(row_left, kVector + 0u) - 1, first = in_next + min(row_left, kVector - 1u);
#pragma unroll
        for (unsigned i = 0; i < kVectorWords; ++i) {
            places[i] = settled(static_cast<int>(padded(min(in_row + 4 * i, last) / 4 * 4, launch)));
            const unsigned place = min(max(in_next + 4 * i, first), in_next + 15);
            places[kVectorWords + i] = settled(static_cast<int>(padded(place / 4 * 4, launch)));
        }
    }

    __device__ uint4 unaligned_vector(const uint4* slab, int first, unsigned place) const {
        unsigned words[kVectorWords];
#pragma unroll
        for (int i = 0; i < kVectorWords; ++i)
            words[i] = *reinterpret_cast<const unsigned*>(reinterpret_cast<const Byte*>(slab) + places[first + i]);
        return funnel(words, place);
    }

    // The vector, loaded as words. If its row ends inside it, the rest is the start of the next row.
    __device__ uint4 vector_of_words(const uint4* slab) const {
        const uint4 head = unaligned_vector(slab, 0, in_row);
        return row_left < kVector ? joined(head, unaligned_vector(slab, kVectorWords, in_next), row_left) : head;
    }

    __device__ Part part(const uint4* slab, int i) const {
        return *reinterpret_cast<const Part*>(reinterpret_cast<const Byte*>(slab) + places[i]);
    }

    // Moves on to the next slab.
    __device__ void next(unsigned slab_rows) {
        const int bytes = static_cast<int>(slab_rows) * width;
        dst += bytes;
        at += bytes;
    }

    // Stores the vector, or only the parts between `least` and `most`, where the output ends in the tile.
    template <bool kFull> __device__ void copy(const uint4* slab, int least, int most) const {
        if (kFull || (at >= least && at + kVector <= most)) return store(dst, vector(slab), policy);
        const uint4 held = vector(slab);
#pragma unroll
        for (int i = 0; i < kParts; ++i)
            if (at + i * kPartBytes >= least && at + i * kPartBytes < most)
                store(dst + i * kPartBytes, reinterpret_cast<const Part*>(&held)[i], policy);
    }

    __device__ uint4 vector(const uint4* slab) const {
        if (kShiftWords) return vector_of_words(slab);
        Part parts[kParts];
#pragma unroll
        for (int i = 0; i < kParts; ++i) parts[i] = part(slab, i);
        return vector_of(parts);
    }
};

// kFull: the tile has all of its rows, and there are rows before it if it needs any.
template <bool kFull>
__device__ inline void copy_rows(uint4* memory, unsigned number, unsigned group, const Parameters& launch) {
    const Byte* corner = launch.input + (launch.columns[group] + static_cast<long long>(number * launch.tile_pitch));
    // The last tile may only have the ends of outputs, which then end before it begins: `rows` is negative.
    const int rest = static_cast<int>(launch.rest_rows) -
                     (number > launch.full_tiles ? static_cast<int>(launch.tile_rows) : 0);
    const int rows = number < launch.full_tiles ? static_cast<int>(launch.tile_rows) : rest;
    const unsigned first_row = number == 0 ? launch.rows_before : 0u;
    const unsigned end_row = static_cast<unsigned>(static_cast<int>(launch.rows_before) + rows);
    Source source(corner, launch.run_bytes[group], launch);
    Target target(group, number, phase(corner), launch);
    const int least = number == 0 ? 0 : -kVector, most = rows * target.width;
    const bool is_writer = threadIdx.x < launch.group_items[group + 1] - launch.group_items[group];
#pragma unroll 1
    for (unsigned round = 0; round < launch.rounds; ++round) {
        uint4 held[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i, source.next(launch)) {
            if constexpr (!kFull) held[i] = {};
            if (source.is_read && (kFull || (source.last_row >= first_row && source.row < end_row)))
                held[i] = load<uint4>(source.from);
        }
        if (round > 0) __syncthreads();
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            if (source.is_read) memory[i * kSlabVectors + source.place] = held[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kLoads; ++i, target.next(launch.slab_rows))
            if (is_writer) target.copy<kFull>(memory + i * kSlabVectors, least, most);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) tile(const __grid_constant__ Parameters launch) {
    __shared__ uint4 memory[kLoads * kSlabVectors];
    const unsigned number = quotient(blockIdx.x, launch.by_groups), group = blockIdx.x - number * launch.groups;
    const bool is_full = number < launch.full_tiles && (number > 0 || launch.rows_before == 0);
    is_full ? copy_rows<true>(memory, number, group, launch) : copy_rows<false>(memory, number, group, launch);
}
