// The self-test's own kernel: it marks the multiprocessors that its blocks run on. The table in its module is
// so large that a module which stays in the device's memory is missed.

constexpr unsigned kMost = 4096;  // multiprocessors; more than any device has
constexpr unsigned kRoomBytes = 2u << 20;

// Volatile, because NVRTC leaves out tables that nobody reads.
__device__ volatile Byte room[kRoomBytes];

#ifndef CUDA_ON_HOST
__device__ inline unsigned multiprocessor() {
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    __nanosleep(20000);  // meanwhile, other blocks go to other multiprocessors
    return number;
}
#endif

extern "C" __global__ void __launch_bounds__(kThreads, kResident) probe(const __grid_constant__ Parameters launch) {
    const unsigned number = multiprocessor();
    if (threadIdx.x > 0 || number >= kMost) return;
    room[number] = 1;
    store<Byte>(launch.outputs[0] + number, 1, launch.policy);
}
