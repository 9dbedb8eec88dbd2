// A kernel of the self-test only: its blocks mark the multiprocessors that they run on, each with a byte of the output.
// Its module has a large table, so that the amount of free memory shows whether the module was unloaded.

constexpr unsigned kMaxMultiprocessors = 4096;  // bytes of the output, more than any GPU has multiprocessors
constexpr unsigned kTableBytes = 2u << 20;  // self_test/probe.py divides the growth of the used memory by this

// Volatile, because NVRTC would leave out a table that is never read.
__device__ volatile Byte table[kTableBytes];

#ifndef CUDA_ON_HOST
// The number of the block's multiprocessor. The block then waits, so that other blocks start on other multiprocessors.
__device__ inline unsigned multiprocessor() {
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    __nanosleep(20000);  // about 20 us, an estimate of more than all blocks take to start
    return number;
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, kResident) probe(const __grid_constant__ Parameters launch) {
    const unsigned number = multiprocessor();
    if (threadIdx.x > 0 || number >= kMaxMultiprocessors) return;
    table[number] = 1;
    store<Byte>(launch.outputs[0] + number, 1, launch.policy);
}
