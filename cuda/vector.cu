// Rows whose every width, offset and pitch is a multiple of 16 bytes: QKV, gates, channels.
//
// The columns of the outputs, in units of 16 bytes, are numbered row by row. Thread t of a block copies
// kLoads of them, kThreads apart, so that a warp reads 512 contiguous bytes. All loads are under way
// before the first store. One block covers kThreads * kLoads vectors.
//
// Assumes 16-byte aligned launch. Row numbers have 64 bits, columns 32 if that is enough.

constexpr Column kDivisor = kEqualVectors ? kEqualVectors : 1;

__device__ inline int output_of(Column column) {
    return kEqualVectors ? static_cast<int>(column / kDivisor) : find<kOutputs>(kStarts, column);
}

extern "C" __global__ void __launch_bounds__(kThreads, kResident) vector(const __grid_constant__ Parameters launch) {
    const Wide first = static_cast<Wide>(blockIdx.x) * (kThreads * kLoads);
    const Wide first_row = first / kRowVectors;
    const Column first_column = static_cast<Column>(first % kRowVectors) + threadIdx.x;

    uint4 held[kLoads];
    Wide rows[kLoads];
    Column columns[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        const Column column = first_column + i * kThreads;
        rows[i] = first_row + column / kRowVectors;
        columns[i] = column % kRowVectors;
        if (rows[i] < launch.rows)
            held[i] = load<uint4>(launch.input + rows[i] * kPitch + kFirstByte + static_cast<Wide>(columns[i]) * kVector);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        if (rows[i] >= launch.rows) continue;
        const int output = output_of(columns[i]);
        const Column start = kEqualVectors ? output * kEqualVectors : kStarts[output];
        const Column width = kEqualVectors ? kEqualVectors : kStarts[output + 1] - start;
        const Wide to = rows[i] * width + (columns[i] - start);
        store(launch.outputs[output] + to * kVector, held[i]);
    }
}
