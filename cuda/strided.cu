// Copies outputs of any layout, with any number of dimensions: broadcast, padded, permuted and reversed ones.
//
// An output is a nest of loops, with strides in bytes in the input and in the output. The innermost loop is a row:
// units of kUnit bytes, equally far apart in the input (a step). Rows are cut into items, each of kItemBytes that are
// contiguous in the output. Items are numbered in the order of the loops over them, of which there are kDimensions:
// those around rows, and one over the items of a row. (If all rows are single items, the last one is left out, and
// item_at and row_at take the innermost loop around rows for it.) A block copies kTile items. A thread copies kItems of
// them, which are kThreads apart; all of its loads are in flight before its first store.
//
// An item is filled by one load for each of its units, any step apart. With kWindow, the step is a small constant
// (kStep, in units), and an item is filled from a window instead: the bytes of the input from its first unit to its
// last. A thread loads the vectors that hold them, and byte permutations gather the units. kChannels outputs, whose
// units are adjacent in the input, share one window. kAlign is the largest power of two, up to 16, that divides the
// addresses of all windows.
//
// If outputs are interleaved unit by unit, like the channels of RGB pixels, units may have any width, and outputs any
// address. Items then go through shared memory (kStagedAlign, the alignment of the outputs), unless units have 1, 2, 4
// or 8 bytes and all memory is aligned: outputs to 16 bytes, the input to a unit. A staged item is as many units as
// fill whole vectors: 48 bytes for units of 3. Threads write their items to shared memory, and neighbouring threads
// store neighbouring vectors of it, which begin at multiples of 16 in the output. If outputs are unaligned, the first
// of these also holds bytes of the item before the block's first one.
//
// Without kStagedAlign, items of 16 bytes begin at multiples of 16 in the output. If rows begin or end inside such an
// item (kEdges), a block copies the units there last, one per thread. If threads copied them with their items, whole
// warps would wait for the few that have edges. Without kLeads, rows begin at multiples of 16: only ends are edges.
//
// Sizes, strides and offsets are arguments. An entry of the tables stands for kChannels outputs. Each entry has its own
// nest, unless all nests are equal (kNests is 1). Index counts items and the units of a row: it has 64 bits only if
// there are 2^30 or more. Signed is for their differences.
// Assumes that a row with edges is longer than two items.

using Unit = typename Unsigned<kUnit & -kUnit>::Type;  // staged units have any width, but are never loaded as a Unit

constexpr int kUnits = kItemBytes / kUnit;  // of an item
constexpr int kWords = kItemBytes < 4 ? 1 : kItemBytes / 4;  // of an item
constexpr int kEntries = kOutputs / kChannels;
constexpr int kAbsStep = kStep < 0 ? -kStep : kStep;
// Bytes of a window, and the vectors that may hold some of them. A window begins up to kVector - kAlign bytes after a
// multiple of 16, so these are (kWindowBytes + kVector - kAlign) / kVector, rounded up.
constexpr int kWindowBytes = ((kUnits - 1) * kAbsStep + kChannels) * kUnit;
constexpr int kWindowVectors = (kWindowBytes + 2 * kVector - 1 - kAlign) / kVector;
constexpr int kWindowWords = kWindowVectors * 4 + 2;  // two more, which shift_down reads in vain

// Division by the size of a loop.
__device__ inline unsigned quotient(unsigned number, unsigned magic, unsigned shift) {
    return quotient(number, Divisor{magic, shift});
}
__device__ inline U64 quotient(U64 number, U64 magic, unsigned shift) {
    return __umul64hi(2 * number, magic) >> shift;
}

// Where units are: in the input, and as an offset in bytes in each output of an entry.
struct Location {
    const Byte* src;
    long long output_offset;
};

// The beginning of a row. Its number, in mixed radix, has a digit for each loop around rows, that of the innermost loop
// last. The digits are split off from the last to the first, which is what remains and needs no division.
__device__ inline Location row_at(const Parameters& launch, int entry, int nest, Index row) {
    Location location = {launch.input + launch.offsets[entry], 0};
#pragma unroll
    for (int d = kDimensions - 2; d >= 0; --d) {
        const int loop = nest * kDimensions + d;
        const Index rest = d == 0 ? 0u : quotient(row, launch.magics[loop], launch.shifts[loop]);
        const Signed digit = remainder(row, rest, launch.minus_sizes[loop]);
        location.src += static_cast<long long>(digit) * launch.input_strides[loop];
        location.output_offset += static_cast<long long>(digit) * launch.output_strides[loop];
        row = rest;
    }
    return location;
}

// Units of a row before its first item, which begins at a multiple of 16.
__device__ inline int lead_units(const Parameters& launch, int entry, const Location& row) {
    if constexpr (!kLeads) return 0;
    return (kVector - phase(launch.outputs[entry * kChannels] + row.output_offset)) % kVector / kUnit;
}

struct Item {
    Location location;
    bool is_stored;
};

// Item number `number`. If it is past the last item, or the end of its row cuts it off, it is not stored. Its location
// is then that of the nearest whole item before it, so that its loads are valid.
template <bool kFull>
__device__ inline Item item_at(const Parameters& launch, int entry, int nest, Index number, long long step_bytes) {
    const int loop = nest * kDimensions + kDimensions - 1;
    const bool is_item = kFull || number < launch.counts[nest];
    if (!is_item) number = launch.counts[nest] - 1;
    const Index row = kDimensions == 1 ? 0u : quotient(number, launch.magics[loop], launch.shifts[loop]);
    Signed column = remainder(number, row, launch.minus_sizes[loop]);
    Location location = row_at(launch, entry, nest, row);
    const int lead = lead_units(launch, entry, location);
    const bool is_whole = !kLeads || column * kUnits + lead <= launch.row_units[nest] - kUnits;
    if (!is_whole) --column;
    location.src += static_cast<long long>(column) * launch.input_strides[loop] + lead * step_bytes;
    location.output_offset += static_cast<long long>(column) * launch.output_strides[loop] + lead * kUnit;
    return {location, is_whole && is_item};
}

// The byte of the window that is byte `byte` of a channel's item.
__device__ constexpr int window_byte(int channel, int byte) {
    const int unit = kStep < 0 ? kUnits - 1 - byte / kUnit : byte / kUnit;
    return (unit * kAbsStep + channel) * kUnit + byte % kUnit;
}

// Makes words seem necessary of which no item has a byte: otherwise, NVRTC splits the vectors that hold them into loads
// of single words. `zero` is 0, which only the launch knows.
__device__ inline void use_all(unsigned (&words)[kWindowWords], unsigned zero) {
    unsigned unused = 0;
#pragma unroll
    for (int i = 0; i < kWindowVectors * 4; ++i) {
        const bool is_between = i * 4 / kUnit % kAbsStep >= kChannels && (i * 4 + 3) / kUnit % kAbsStep >= kChannels;
        if (is_between || i * 4 >= kWindowBytes) unused |= words[i];
    }
    words[window_byte(0, 0) / 4] ^= unused & zero;
}

// Loads a window, whose first byte becomes the first byte of `words`.
__device__ inline void load_window(const Byte* src, unsigned (&words)[kWindowWords], U64 policy) {
    // If the step is negative, the last unit has the lowest address.
    const Byte* lowest = src + (kStep < 0 ? (kUnits - 1) * kStep * kUnit : 0);
    const unsigned shift = kAlign == kVector ? 0u : opaque(phase(lowest));
    const Byte* const vectors = kAlign == kVector ? lowest : vector_around(lowest);
    const Byte* const last = kAlign == kVector ? vectors + (kWindowBytes - 1) / kVector * kVector
                                               : vector_around(lowest + (kWindowBytes - 1));
#pragma unroll
    for (int i = 0; i < kWindowVectors; ++i) {
        // The window may end in the last vector but one, which is then loaded twice: the last may be outside the input.
        const uint4 loaded = load<uint4>(i < kWindowVectors - 1 ? vectors + i * kVector : last);
        words[4 * i] = loaded.x, words[4 * i + 1] = loaded.y, words[4 * i + 2] = loaded.z, words[4 * i + 3] = loaded.w;
    }
    shift_down<kAlign>(words, shift);
    // Windows at any word need all of them.
    if constexpr (kAlign > 4 && kAbsStep > kChannels) use_all(words, static_cast<unsigned>(policy & 0xFFFFFFFF));
}

// Gathers a word of an item from the words of the window that have its bytes, the sources. Each source after the first
// takes one byte permutation, which adds its bytes; the first permutation also puts those of the first source in order.
// If one source has all four bytes, one permutation orders them, unless units are whole words.
__device__ inline unsigned gathered_word(const unsigned (&window)[kWindowWords], int channel, int word) {
    unsigned gathered = window[window_byte(channel, 4 * word) / 4];
    bool is_ordered = kUnit % 4 == 0;  // units of whole words are in order in their source
#pragma unroll
    for (int i = 1; i < 4; ++i) {
        const int source = window_byte(channel, 4 * word + i) / 4;
        if (source == window_byte(channel, 4 * word + i - 1) / 4 && (is_ordered || i < 3)) continue;
        unsigned selector = 0;
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
            const int from = window_byte(channel, 4 * word + byte);
            selector |= (from / 4 == source ? 4 + from % 4 : is_ordered ? byte : from % 4) << 4 * byte;
        }
        gathered = __byte_perm(gathered, window[source], selector);
        is_ordered = true;
    }
    return gathered;
}

// Fills an item of each channel: from a window, or, if there is a single channel, with a load for each unit.
__device__ inline void fill(const Byte* src, long long step_bytes, unsigned (&words)[kChannels][kWords], U64 policy) {
    if constexpr (kWindow) {
        unsigned window[kWindowWords] = {};
        load_window(src, window, policy);
#pragma unroll
        for (int i = 0; i < kChannels * kWords; ++i)
            words[i / kWords][i % kWords] = gathered_word(window, i / kWords, i % kWords);
    } else {
#pragma unroll
        for (int i = 0; i < kUnits; ++i) reinterpret_cast<Unit*>(words[0])[i] = load<Unit>(src + i * step_bytes);
    }
}

// Copies the units of a row before its first item and after its last whole one, one per thread. A block does this for
// the rows whose first item is one of its own, `first_item` to `end_item` - 1.
__device__ inline void copy_edges(const Parameters& launch, int entry, int nest, Index first_item, Index end_item,
                                  long long step_bytes) {
    constexpr int kMaxEdgeUnits = 2 * kUnits;  // of a row: kUnits before its items, and kUnits after them
    const int loop = nest * kDimensions + kDimensions - 1;
    // The rows whose first item is in the block: item numbers, divided by the items of a row and rounded up.
    const Index round_up = ~launch.minus_sizes[loop];  // the items of a row less 1
    const Index first_row = quotient(first_item + round_up, launch.magics[loop], launch.shifts[loop]);
    const Index end = min(end_item, launch.counts[nest]);
    const Index end_row = quotient(end + round_up, launch.magics[loop], launch.shifts[loop]);
    for (Index edge_unit = threadIdx.x; edge_unit < (end_row - first_row) * kMaxEdgeUnits; edge_unit += kThreads) {
        const Location row = row_at(launch, entry, nest, first_row + edge_unit / kMaxEdgeUnits);
        const Signed units = launch.row_units[nest], lead = lead_units(launch, entry, row);
        const Signed tail = lead + (units - lead) / kUnits * kUnits;  // the first unit after the last whole item
        const Signed edge = edge_unit % kMaxEdgeUnits;
        const Signed unit = edge < kUnits ? edge : tail + edge - kUnits;
        if (unit >= (edge < kUnits ? lead : units)) continue;
#pragma unroll
        for (int channel = 0; channel < kChannels; ++channel)
            store(launch.outputs[entry * kChannels + channel] + row.output_offset +
                      static_cast<long long>(unit) * kUnit,
                  load<Unit>(row.src + unit * step_bytes + channel * kUnit), launch.policy);
    }
}

// Copies a thread's items, the first being `item`. kFull: all exist. Only the last tile of an output may have fewer.
template <bool kFull>
__device__ inline void copy_tile(const Parameters& launch, int entry, int nest, Index item, long long step_bytes) {
    using Stored = typename Unsigned<kStagedAlign ? kVector : kItemBytes>::Type;
    Item items[kItems];
    alignas(kVector) unsigned words[kItems][kChannels][kWords];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        items[i] = item_at<kFull>(launch, entry, nest, item + i * kThreads, step_bytes);
        fill(items[i].location.src, step_bytes, words[i], launch.policy);
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        if (!items[i].is_stored) continue;
#pragma unroll
        for (int channel = 0; channel < kChannels; ++channel)
            store(launch.outputs[entry * kChannels + channel] + items[i].location.output_offset,
                  *reinterpret_cast<const Stored*>(words[i][channel]), launch.policy);
    }
}

constexpr int kItemVectors = kItemBytes < kVector ? 1 : kItemBytes / kVector;  // of an item
// 1 if a block also gathers the item before its first one, whose last bytes are in the block's first vector; else 0.
constexpr int kRepeated = kStagedAlign < kVector;

// The vector at any byte of shared memory, shifted out of the two aligned vectors that hold it.
__device__ inline uint4 staged_vector(const uint4* shared, unsigned shared_offset) {
    const uint4 low = shared[shared_offset / kVector];
    if constexpr (kStagedAlign == kVector) return low;
    const uint4 high = shared[shared_offset / kVector + 1];
    unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    shift_down<kStagedAlign>(words, shared_offset % kVector);
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Copies a staged output's first `lead` bytes, and those after its last vector, byte by byte: what the vectors leave of
// the items, and the units that fill no whole item. Assumes that the bytes after the last vector are at most kThreads -
// `lead` if `lead` is not 0, because threads below `lead` copy none of them.
__device__ inline void copy_ends(const Parameters& launch, int channel, unsigned lead) {
    const U64 bytes = static_cast<U64>(launch.row_units[0]) * kUnit;
    const U64 whole_end = lead + (static_cast<U64>(launch.counts[0]) * kItemVectors - kRepeated) * kVector;
    const U64 first = threadIdx.x < lead ? threadIdx.x : whole_end + (threadIdx.x - lead);
    for (U64 byte = first; byte < bytes; byte += kThreads) {
        const Byte* const src = launch.input + byte / kUnit * (kStep * kUnit) + (channel * kUnit + byte % kUnit);
        store(launch.outputs[channel] + byte, load<Byte>(src), launch.policy);
        if (byte < lead) break;
    }
}

// Copies kTile * kItemVectors vectors of each output. If outputs are unaligned, the first vector begins in the last 16
// bytes of the item before the block's first one, and one that begins in the last 16 bytes of its last item is left to
// the next block, or after the row's last item to copy_ends.
__device__ inline void copy_staged(uint4* shared, const Parameters& launch, Index first_item) {
    // Thread t gathers item first_item + t, or with kRepeated the one before; threads without one gather the nearest.
    const Index count = launch.counts[0];
    const Index next_item = first_item + min(threadIdx.x, static_cast<unsigned>(kTile - 1 + kRepeated));
    const Index item = min(max(next_item, static_cast<Index>(kRepeated)) - kRepeated, count - 1);
    // The vectors that the block stores: those inside whole items, from the first one that begins in the output.
    const int first = kRepeated && first_item == 0;
    const int end = min(count - first_item, static_cast<Index>(kTile)) * kItemVectors;
    // Where the thread's first vector begins in an output that is aligned to 16 bytes.
    const int thread_vector = static_cast<int>(threadIdx.x) - kRepeated;
    const long long thread_byte = opaque(static_cast<long long>(first_item) * kItemBytes + thread_vector * kVector);
    unsigned window[kWindowWords] = {};
    load_window(launch.input + static_cast<U64>(item) * (kUnits * kStep * kUnit), window, launch.policy);
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
        if (channel > 0) __syncthreads();
#pragma unroll
        for (int i = 0; i < kItemVectors; ++i) {
            const auto word = [&](int j) { return gathered_word(window, channel, 4 * i + j); };
            shared[threadIdx.x * kItemVectors + i] = make_uint4(word(0), word(1), word(2), word(3));
        }
        __syncthreads();
        const int lead = kRepeated ? (kVector - phase(launch.outputs[channel])) % kVector : 0u;
        Byte* const dst = launch.outputs[channel] + (thread_byte + lead);
        // In shared memory, the item before the block's first one comes first.
        const unsigned shared_offset = kRepeated * (kItemBytes - kVector) + lead + threadIdx.x * kVector;
#pragma unroll
        for (int i = 0; i < kItemVectors; ++i) {
            const int vector = threadIdx.x + i * kThreads;
            const int offset = i * kThreads * kVector;
            if (vector >= first && vector < end)
                store(dst + offset, staged_vector(shared, shared_offset + offset), launch.policy);
        }
        if (first_item + kTile > count) copy_ends(launch, channel, lead);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) strided(const __grid_constant__ Parameters launch) {
    if constexpr (kStagedAlign > 0) {
        __shared__ uint4 shared[kThreads * kItemVectors];
        return copy_staged(shared, launch, static_cast<Index>(blockIdx.x) * kTile);
    }
    const int entry = last_at_most<kEntries>(launch.tile_starts, static_cast<unsigned>(blockIdx.x));
    const int nest = kNests == 1 ? 0 : entry;
    const Index first_item = static_cast<Index>(blockIdx.x - launch.tile_starts[entry]) * kTile;
    const long long step_bytes = kWindow ? kStep * kUnit : launch.steps[nest];
    if (first_item + kTile <= launch.counts[nest])
        copy_tile<true>(launch, entry, nest, first_item + threadIdx.x, step_bytes);
    else
        copy_tile<false>(launch, entry, nest, first_item + threadIdx.x, step_bytes);
    // A single row begins in the first block.
    if (kEdges && (kDimensions > 1 || first_item == 0))
        copy_edges(launch, entry, nest, first_item, first_item + kTile, step_bytes);
}
