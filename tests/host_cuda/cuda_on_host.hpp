// The parts of CUDA C++ that the kernels in cuda/ use, for an ordinary C++ compiler.
//
// Kernels access global memory only through __ldg, __ldcs, __stcs and store_with, which report every
// access to the runner. That is device.cpp, which checks bounds and alignment and counts the access,
// or simulated_card/kernel_module.cpp, which also finds the bytes of device memory.
//
// The threads of a block are fibers that switch at __syncthreads, and blocks run one after the other.
// Shared memory can therefore be an ordinary static array, whose ends the sanitizers guard.
#pragma once

#include <stddef.h>

#define CUDA_ON_HOST

#define __global__
#define __device__ __attribute__((always_inline))
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __shared__ static
#define __constant__ static
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

struct uchar2 { unsigned char x, y; } __attribute__((aligned(2)));
struct uchar4 { unsigned char x, y, z, w; } __attribute__((aligned(4)));
struct ushort2 { unsigned short x, y; } __attribute__((aligned(4)));
struct ushort4 { unsigned short x, y, z, w; } __attribute__((aligned(8)));
struct uint2 { unsigned int x, y; } __attribute__((aligned(8)));
struct uint3 { unsigned int x, y, z; };
struct uint4 { unsigned int x, y, z, w; } __attribute__((aligned(16)));
struct ulonglong2 { unsigned long long x, y; } __attribute__((aligned(16)));

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline ushort2 make_ushort2(unsigned short x, unsigned short y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

extern uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace host_cuda {
void barrier();
// Checks and reports an access to `bytes` of global memory; returns their address on the host.
const void* access(const void* address, unsigned bytes, bool is_store);

struct Kernel {
    void (*run)(const void* parameters);
    unsigned long parameter_bytes;
};

template <class T>
__attribute__((always_inline)) inline T load(const T* address) {
    return *static_cast<const T*>(access(address, sizeof(T), false));
}

template <class T>
__attribute__((always_inline)) inline void store(T* address, const T& value) {
    *static_cast<T*>(const_cast<void*>(access(address, sizeof(T), true))) = value;
}
}  // namespace host_cuda

__attribute__((always_inline)) inline void __syncthreads() { host_cuda::barrier(); }

template <class T>
__attribute__((always_inline)) inline T __ldg(const T* address) {
    return host_cuda::load(address);
}
template <class T>
__attribute__((always_inline)) inline T __ldcs(const T* address) {
    return host_cuda::load(address);
}
template <class T>
__attribute__((always_inline)) inline void __stcs(T* address, T value) {
    host_cuda::store(address, value);
}
template <class T>
__attribute__((always_inline)) inline void store_with(T* address, T value, unsigned long long) {
    host_cuda::store(address, value);
}

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}

template <class T>
inline T opaque(T value) {
    return value;
}

template <class T>
inline T remainder(T number, T quotient, T minus_size) {
    return number + quotient * minus_size;
}

// The multiprocessor of a block, of the 132 of an H200.
inline unsigned multiprocessor() { return blockIdx.x % 132; }

// The low word of (high:low) >> (shift mod 32).
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
    return static_cast<unsigned>(both >> (shift & 31));
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
    return static_cast<unsigned>((both << (shift & 31)) >> 32);
}

// The high word of (high:low) << min(shift, 32).
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
    return static_cast<unsigned>(both << (shift < 32 ? shift : 32) >> 32);
}

// The high 64 bits of a product.
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (static_cast<unsigned __int128>(x) * y) >> 64;
}

// Four bytes of (y:x), each chosen by the low three bits of a nibble; bit 3 replicates the sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = (static_cast<unsigned long long>(y) << 32) | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> (4 * i);
        unsigned byte = static_cast<unsigned>(both >> (8 * (pick & 7))) & 0xff;
        if (pick & 8) byte = (byte & 0x80) ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

template <class T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
