// Wide rows of any alignment: odd vocabularies, byte offsets, uneven parameters.
//
// Each output is cut into 16-byte vectors at aligned addresses of the output. Thread t of a block
// writes up to kLoads of them, kThreads apart. A vector's bytes have any alignment in the input, so
// they are read as five aligned words and shifted together in registers. A vector that holds the end
// of one row and the start of the next, or the edge of the output, is read one byte at a time: rare in
// wide rows, and correct, though slow, in narrow ones.
//
// Rows are taken in chunks of kChunkRows, and the blocks of a chunk cover all outputs before the next
// chunk begins, so that sectors shared by neighbouring outputs are still in the cache.

struct Piece {
    const Byte* src;  // of the first row of the chunk
    Byte* dst;        // of the whole output
    Wide before;      // bytes of the output before the chunk
    Wide bytes;       // of the whole output
    Span width;
};

// The row of byte `at` of a chunk. A chunk of one row needs no division: a vector reaches less than its
// length beyond the row.
__device__ inline Span row_of(const Piece& piece, Span at) {
    if constexpr (kChunkRows > 1) return at / piece.width;
    Span row = 0;
    for (; at >= piece.width; at -= piece.width) ++row;
    return row;
}

__device__ inline Byte byte_at(const Piece& piece, Span at) {
    const Span row = row_of(piece, at);
    return load<Byte>(piece.src + static_cast<Wide>(row) * kPitch + (at - row * piece.width));
}

// Copies the bytes of one vector that are inside the output, one at a time.
__device__ inline void store_bytes(const Piece& piece, long long at) {
#pragma unroll 1
    for (int i = 0; i < kVector; ++i) {
        const long long byte = at + i;
        if (byte >= 0 && static_cast<Wide>(byte) + piece.before < piece.bytes)
            store(piece.dst + piece.before + byte, byte_at(piece, static_cast<Span>(byte)));
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) shift(const __grid_constant__ Parameters launch) {
    const Wide chunk = blockIdx.x / kChunkTiles;
    const unsigned tile = blockIdx.x % kChunkTiles;
    const int output = find<kOutputs>(kTileStarts, tile);

    Piece piece;
    piece.width = kWidths[output];
    piece.src = launch.input + chunk * kChunkRows * kPitch + kOffsets[output];
    piece.dst = launch.outputs[output];
    piece.before = chunk * kChunkRows * piece.width;
    piece.bytes = static_cast<Wide>(piece.width) * launch.rows;

    // Vectors are numbered from the aligned address at or before the output's first byte. A vector
    // belongs to the chunk in which it starts; the first chunk also has the one before that.
    const unsigned lead = phase(piece.dst, kVector);
    const Wide after = min(piece.before + static_cast<Wide>(kChunkRows) * piece.width, piece.bytes);
    const Wide chunk_begin = chunk == 0 ? 0 : (piece.before + lead + kVector - 1) / kVector;
    const Wide chunk_end = (after + lead + kVector - 1) / kVector;
    const Wide begin = chunk_begin + static_cast<Wide>(tile - kTileStarts[output]) * kShares[output];
    const Wide end = min(begin + kShares[output], chunk_end);

    unsigned held[kLoads][5];
    unsigned shifts[kLoads];
    bool whole[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const Wide vector = begin + threadIdx.x + i * kThreads;
        const long long at = static_cast<long long>(vector * kVector) - lead - static_cast<long long>(piece.before);
        whole[i] = false;
        if (vector >= end || at < 0 || static_cast<Wide>(at) + piece.before + kVector > piece.bytes) continue;
        const Span row = row_of(piece, static_cast<Span>(at));
        const Span column = static_cast<Span>(at) - row * piece.width;
        whole[i] = column + kVector <= piece.width;
        if (!whole[i]) continue;
        const Byte* from = piece.src + static_cast<Wide>(row) * kPitch + column;
        shifts[i] = phase(from, 4);
        from -= shifts[i];
#pragma unroll
        for (int word = 0; word < 4; ++word) held[i][word] = load<unsigned>(from + 4 * word);
        held[i][4] = shifts[i] ? load<unsigned>(from + 16) : 0;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const Wide vector = begin + threadIdx.x + i * kThreads;
        if (vector >= end) continue;
        const long long at = static_cast<long long>(vector * kVector) - lead - static_cast<long long>(piece.before);
        if (whole[i])
            store(piece.dst + piece.before + at, funnel(held[i], shifts[i]));
        else
            store_bytes(piece, at);
    }
}
