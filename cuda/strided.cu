// Any layout, with any number of dimensions: broadcast, padded, permuted and reversed.
//
// An output is a loop nest, with strides in bytes in the input and in the output. The innermost loop of the nest is a
// row: units of kUnit bytes, one step apart in the input. Rows are cut into items of kItemBytes, which are contiguous
// in the output and numbered in its order. A block copies kTile items; a thread copies kItems of them, which are
// kThreads apart. All of its loads are in flight before its first store.
//
// An item is filled by one load for each of its units, which may be any step apart. If the step is a small constant
// (kStep), the item is filled from a window instead: the vectors of the input that hold all of its units, from which
// byte permutations gather them. kChannels outputs, whose units are adjacent in the input, share one window.
//
// In rows of one element for each output, elements may have any width, and outputs any address: items then go through
// shared memory (kStaged, the alignment of the outputs). An item is as many elements as fill whole vectors: 48 bytes
// for elements of 3. Threads write their items to shared memory, and neighbouring threads store neighbouring vectors
// of it, which begin at multiples of 16 in the output. If outputs are unaligned, the first of these also holds bytes
// of the item before the block's first one.
//
// Without kStaged, items of 16 bytes begin at multiples of 16 in the output. If rows begin or end inside such an item
// (kEdges), a block copies the units there last, one per thread. If threads copied them with their items, whole
// warps would wait for the few that have edges. Without kLeads, rows begin at multiples of 16: only ends are edges.
//
// Sizes, strides and offsets are parameters: no split is compiled for its sizes. An entry of the tables stands for
// kChannels outputs. Each entry has its own nest, unless all nests are equal (kNests is 1).
// Assumes that a row with edges is longer than two items.

using Unit = typename Unsigned<kUnit & -kUnit>::Type;  // the whole unit, wherever units are loaded one by one

constexpr int kUnits = kItemBytes / kUnit;  // of an item
constexpr int kWords = kItemBytes < 4 ? 1 : kItemBytes / 4;
constexpr int kEntries = kOutputs / kChannels;
constexpr int kDistance = kStep < 0 ? -kStep : kStep;
// Bytes of a window, and the vectors that may hold some of them.
constexpr int kSpan = ((kUnits - 1) * kDistance + kChannels) * kUnit;
constexpr int kVectors = (kSpan + 2 * kVector - 1 - kAlign) / kVector;
constexpr int kWindowWords = kVectors * 4 + 2;  // shift_down reads two more, which are not used

// Division by a size. Items are numbered with 64 bits (Index) only if there are too many for 31 bits.
__device__ inline unsigned quotient(unsigned number, unsigned magic, unsigned shift) {
    return quotient(number, Divisor{magic, shift});
}
__device__ inline Wide quotient(Wide number, Wide magic, unsigned shift) {
    return __umul64hi(2 * number, magic) >> shift;
}

// A place in the input, and the corresponding offset, in bytes, in each output of an entry.
struct Place {
    const Byte* src;
    long long output_offset;
};

// The beginning of a row. Its number has one digit for each loop around rows.
__device__ inline Place row_at(const Parameters& launch, int entry, int nest, Index row) {
    Place place = {launch.input + launch.offsets[entry], 0};
#pragma unroll
    for (int d = kDimensions - 2; d >= 0; --d) {
        const int at = nest * kDimensions + d;
        const Index rest = d == 0 ? 0u : quotient(row, launch.magics[at], launch.shifts[at]);
        const Signed digit = less_multiple(row, rest, launch.minus_sizes[at]);
        place.src += static_cast<long long>(digit) * launch.input_strides[at];
        place.output_offset += static_cast<long long>(digit) * launch.output_strides[at];
        row = rest;
    }
    return place;
}

// Units of a row before its first item.
__device__ inline int units_before(const Parameters& launch, int entry, const Place& row) {
    if constexpr (!kLeads) return 0;
    return (kVector - phase(launch.outputs[entry * kChannels] + row.output_offset)) % kVector / kUnit;
}

struct Item {
    Place place;
    bool is_stored;
};

// Item `number`. If it does not exist or is not whole, it is not stored, and has the place of one that can be loaded.
template <bool kFull>
__device__ inline Item item_at(const Parameters& launch, int entry, int nest, Index number, long long step) {
    const int at = nest * kDimensions + kDimensions - 1;
    const bool is_item = kFull || number < launch.counts[nest];
    if (!is_item) number = launch.counts[nest] - 1;
    const Index row = kDimensions == 1 ? 0u : quotient(number, launch.magics[at], launch.shifts[at]);
    Signed column = less_multiple(number, row, launch.minus_sizes[at]);
    Place place = row_at(launch, entry, nest, row);
    const int before = units_before(launch, entry, place);
    const bool is_whole = !kLeads || column * kUnits + before <= launch.row_units[nest] - kUnits;
    if (!is_whole) --column;
    place.src += static_cast<long long>(column) * launch.input_strides[at] + before * step;
    place.output_offset += static_cast<long long>(column) * launch.output_strides[at] + before * kUnit;
    return {place, is_whole && is_item};
}

// Loads a window, whose first byte becomes the first byte of `words`.
__device__ inline void load_window(const Byte* src, unsigned (&words)[kWindowWords]) {
    // If steps go down, the last unit has the lowest address.
    const Byte* lowest = src + (kStep < 0 ? (kUnits - 1) * kStep * kUnit : 0);
    const unsigned shift = kAlign == kVector ? 0u : settled(phase(lowest));
    const Byte* const vectors = kAlign == kVector ? lowest : vector_around(lowest);
    const Byte* const last =
        kAlign == kVector ? vectors + (kSpan - 1) / kVector * kVector : vector_around(lowest + (kSpan - 1));
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        // The next vector may begin after the window, outside the input; `last` holds the window's last byte.
        const uint4 held = load<uint4>(i < kVectors - 1 ? vectors + i * kVector : last);
        words[4 * i] = held.x, words[4 * i + 1] = held.y, words[4 * i + 2] = held.z, words[4 * i + 3] = held.w;
    }
    shift_down<kAlign>(words, shift);
}

// Where byte `byte` of a channel's item is in the window.
__device__ constexpr int origin(int channel, int byte) {
    const int unit = kStep < 0 ? kUnits - 1 - byte / kUnit : byte / kUnit;
    return (unit * kDistance + channel) * kUnit + byte % kUnit;
}

// Gathers a word of an item from the words of the window that have its bytes. Each word after the first one takes one
// byte permutation.
__device__ inline unsigned gathered_word(const unsigned (&window)[kWindowWords], int channel, int word) {
    unsigned gathered = window[origin(channel, 4 * word) / 4];
    bool is_gathered = kUnit % 4 == 0;
#pragma unroll
    for (int i = 1; i < 4; ++i) {
        const int from = origin(channel, 4 * word + i) / 4;
        if (from == origin(channel, 4 * word + i - 1) / 4 && (is_gathered || i < 3)) continue;
        unsigned selector = 0;
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
            const int place = origin(channel, 4 * word + byte);
            selector |= (place / 4 == from ? 4 + place % 4 : is_gathered ? byte : place % 4) << 4 * byte;
        }
        gathered = __byte_perm(gathered, window[from], selector);
        is_gathered = true;
    }
    return gathered;
}

__device__ inline void fill(const Byte* src, long long step, unsigned (&words)[kChannels][kWords]) {
    if constexpr (kWindow) {
        unsigned window[kWindowWords] = {};
        load_window(src, window);
#pragma unroll
        for (int i = 0; i < kChannels * kWords; ++i)
            words[i / kWords][i % kWords] = gathered_word(window, i / kWords, i % kWords);
    } else {
#pragma unroll
        for (int i = 0; i < kUnits; ++i) reinterpret_cast<Unit*>(words[0])[i] = load<Unit>(src + i * step);
    }
}

// Copies the units of a row before its first item and after its last whole one, one per thread. A block does this for
// the rows whose first item it copies.
__device__ inline void copy_edges(const Parameters& launch, int entry, int nest, Index begin, Index end,
                                  long long step) {
    constexpr int kEdgeUnits = 2 * kUnits;  // of a row, at most: kUnits before its items, kUnits after them
    const int at = nest * kDimensions + kDimensions - 1;
    const Index last_digit = ~launch.minus_sizes[at];  // the size less 1
    const Index first_row = quotient(begin + last_digit, launch.magics[at], launch.shifts[at]);
    const Index end_row = quotient(min(end, launch.counts[nest]) + last_digit, launch.magics[at], launch.shifts[at]);
    for (Index edge_unit = threadIdx.x; edge_unit < (end_row - first_row) * kEdgeUnits; edge_unit += kThreads) {
        const Place row = row_at(launch, entry, nest, first_row + edge_unit / kEdgeUnits);
        const Signed units = launch.row_units[nest], before = units_before(launch, entry, row);
        const Signed after = before + (units - before) / kUnits * kUnits;
        const Signed place = edge_unit % kEdgeUnits;
        const Signed unit = place < kUnits ? place : after + place - kUnits;
        if (unit >= (place < kUnits ? before : units)) continue;
#pragma unroll
        for (int channel = 0; channel < kChannels; ++channel)
            store(launch.outputs[entry * kChannels + channel] + row.output_offset +
                      static_cast<long long>(unit) * kUnit,
                  load<Unit>(row.src + unit * step + channel * kUnit), launch.policy);
    }
}

// kFull: the tile has kTile items. Only the last tile of an output may have fewer.
template <bool kFull>
__device__ inline void copy_tile(const Parameters& launch, int entry, int nest, Index first, long long step) {
    using Stored = typename Unsigned<kStaged ? kVector : kItemBytes>::Type;
    Item items[kItems];
    alignas(kVector) unsigned held[kItems][kChannels][kWords];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        items[i] = item_at<kFull>(launch, entry, nest, first + i * kThreads, step);
        fill(items[i].place.src, step, held[i]);
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        if (!items[i].is_stored) continue;
#pragma unroll
        for (int channel = 0; channel < kChannels; ++channel)
            store(launch.outputs[entry * kChannels + channel] + items[i].place.output_offset,
                  *reinterpret_cast<const Stored*>(held[i][channel]), launch.policy);
    }
}

// Vectors of an item; whether a block also gathers the item before its first one, most of which another block stores.
constexpr int kItemVectors = kItemBytes < kVector ? 1 : kItemBytes / kVector;
constexpr int kRepeated = kStaged < kVector;

__device__ inline uint4 staged_vector(const uint4* staged, unsigned place) {
    if constexpr (kStaged == kVector) return staged[place / kVector];
    const auto* at = reinterpret_cast<const unsigned*>(staged) + place / 4;
    const unsigned words[5] = {at[0], at[1], at[2], at[3], kStaged < 4 ? at[4] : 0u};
    return kStaged < 4 ? funnel(words, place) : make_uint4(words[0], words[1], words[2], words[3]);
}

// Copies the bytes of an output that are in no whole vector: the first `before` bytes, and those after `end`.
__device__ inline void copy_ends(const Parameters& launch, int channel, unsigned before, Wide end) {
    const Wide bytes = static_cast<Wide>(launch.row_units[0]) * kUnit;
    for (Wide at = threadIdx.x < before ? threadIdx.x : end + (threadIdx.x - before); at < bytes; at += kThreads) {
        const Byte* const from = launch.input + at / kUnit * (kStep * kUnit) + (channel * kUnit + at % kUnit);
        store(launch.outputs[channel] + at, load<Byte>(from), launch.policy);
        if (at < before) break;
    }
}

// Copies the vectors that begin in a block's items, or in the last 16 bytes of the item before them. kFull: the block
// is not the first one, and has all of its items.
template <bool kFull> __device__ inline void copy_staged(uint4* staged, const Parameters& launch, Index first) {
    const Index count = launch.counts[0];
    const Index last = first + min(threadIdx.x, static_cast<unsigned>(kRepeated ? kTile : kThreads));
    Index number = max(last, static_cast<Index>(kRepeated)) - kRepeated;
    if (!kFull) number = min(number, count - 1);
    unsigned window[kWindowWords] = {};
    load_window(launch.input + static_cast<Wide>(number) * (kUnits * kStep * kUnit), window);
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
        if (channel > 0) __syncthreads();
#pragma unroll
        for (int i = 0; i < kItemVectors; ++i) {
            const auto word = [&](int j) { return gathered_word(window, channel, 4 * i + j); };
            staged[threadIdx.x * kItemVectors + i] = make_uint4(word(0), word(1), word(2), word(3));
        }
        __syncthreads();
        Byte* const dst = launch.outputs[channel];
        const int before = kRepeated ? (kVector - phase(dst)) % kVector : 0u;
        const long long begin = static_cast<long long>(first) * kItemBytes + before - kRepeated * kVector;
        const long long end = before + (static_cast<long long>(count) * kItemBytes - before) / kVector * kVector;
#pragma unroll
        for (int i = 0; i < kItemVectors; ++i) {
            const int vector = threadIdx.x + i * kThreads;
            const long long at = begin + vector * kVector;
            const bool is_stored = kFull || (at >= 0 && at < end);
            const unsigned place = kRepeated * (kItemBytes - kVector) + before + vector * kVector;
            if (is_stored && (!kRepeated || vector < kTile * kItemVectors))
                store(dst + at, staged_vector(staged, place), launch.policy);
        }
        if (first + kTile > count) copy_ends(launch, channel, before, end);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) strided(const __grid_constant__ Parameters launch) {
    if constexpr (kStaged > 0) {
        __shared__ uint4 staged[kThreads * kItemVectors];
        const Index first = static_cast<Index>(blockIdx.x) * kTile;
        const bool is_full = first > 0 && first + kTile <= launch.counts[0];
        return is_full ? copy_staged<true>(staged, launch, first) : copy_staged<false>(staged, launch, first);
    }
    const int entry = find<kEntries>(launch.tile_starts, static_cast<unsigned>(blockIdx.x));
    const int nest = kNests == 1 ? 0 : entry;
    const Index begin = static_cast<Index>(blockIdx.x - launch.tile_starts[entry]) * kTile;
    const long long step = kWindow ? kStep * kUnit : launch.steps[nest];  // bytes
    if (begin + kTile <= launch.counts[nest])
        copy_tile<true>(launch, entry, nest, begin + threadIdx.x, step);
    else
        copy_tile<false>(launch, entry, nest, begin + threadIdx.x, step);
    // A single row begins in the first block.
    if (kEdges && (kDimensions > 1 || begin == 0)) copy_edges(launch, entry, nest, begin, begin + kTile, step);
}
