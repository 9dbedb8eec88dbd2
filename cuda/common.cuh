// What every kernel shares: global memory access, and searching small tables.
//
// The constants (kOutputs, kThreads, kResident, ...) and the parameters of a launch are generated
// in front of this text. Every launch passes one struct by value: the pointers, and the sizes that
// splits with the same kernel differ in, such as the number of rows.
//
// No unsigned number wraps except in less_multiple; tests check that. Bits may be shifted out.
//
// Inputs and outputs are read and written only through load() and store(). Reads may fetch a whole aligned
// word or vector that holds at least one byte of the input; writes touch bytes of outputs only.

using Byte = unsigned char;
using Wide = unsigned long long;  // counts and offsets that may exceed 2^32

template <int kBytes> struct Unsigned;
template <> struct Unsigned<1> { using Type = unsigned char; };
template <> struct Unsigned<2> { using Type = unsigned short; };
template <> struct Unsigned<4> { using Type = unsigned int; };
template <> struct Unsigned<8> { using Type = uint2; };
template <> struct Unsigned<16> { using Type = uint4; };

constexpr int kVector = 16;

__device__ inline unsigned phase(const Byte* pointer, unsigned alignment) {
    return static_cast<unsigned>(reinterpret_cast<size_t>(pointer) & (alignment - 1));
}

// Where the aligned vector that holds a byte begins.
__device__ inline const Byte* vector_around(const Byte* pointer) {
    return reinterpret_cast<const Byte*>(reinterpret_cast<size_t>(pointer) / kVector * kVector);
}

// The input is never written while a kernel runs, so it may go through the read-only path.
template <class T> __device__ inline T load(const Byte* pointer) {
    return __ldg(reinterpret_cast<const T*>(pointer));
}

// Tests that run kernels on the host have functions of these names.
#ifndef CUDA_ON_HOST
// A store with a `cuda::access_property`, which tells the L2 cache how long to keep the line. The property
// is an operand of the store and takes no instruction of its own.
template <class T> __device__ inline void store_with(T* pointer, T value, Wide policy) {
#if __CUDA_ARCH__ >= 800
    pointer = static_cast<T*>(__nv_associate_access_property(pointer, policy));
#else
    if (policy == kStreaming) return __stcs(pointer, value);
#endif
    __builtin_assume(__isGlobal(pointer));
    *pointer = value;  // not __stwb, whose store is ordered among those of its multiprocessor
}

// The same value, computed here. Otherwise the compiler may add up the parts of a sum again for each use.
template <class T> __device__ inline T settled(T value) {
    if constexpr (sizeof(T) == 8) asm("" : "+l"(value));
    else asm("" : "+r"(value));
    return value;
}

// number - times * size, where minus_size is 2^32 - size or 2^64 - size: one instruction.
template <class T> __device__ inline T less_multiple(T number, T times, T minus_size) {
    return number + times * minus_size;
}
#endif

// Lines of outputs too large for the cache leave it first (kStreaming), so that they do not push out the input.
template <class T> __device__ inline void store(Byte* pointer, T value, Wide policy) {
    store_with(reinterpret_cast<T*>(pointer), value, policy);
}

// Division of numbers below 2^31 by a number known at the launch: a multiplication and a shift.
struct Divisor {
    unsigned magic, shift;
};

__device__ inline unsigned quotient(unsigned number, Divisor by) {
    return __umulhi(2 * number, by.magic) >> by.shift;
}

// The index of the last entry of an ascending table, among the first kCount, that is not above `value`.
template <int kCount, class T> __device__ inline int find(const T* table, T value) {
    int steps = 1;
    while (steps < kCount) steps *= 2;
    int low = 0;
    for (int step = steps / 2; step > 0; step /= 2)
        if (low + step < kCount && table[low + step] <= value) low += step;
    return low;
}

// The vector that consists of `parts`.
template <class T, int kCount> __device__ inline uint4 vector_of(const T (&parts)[kCount]) {
    alignas(kVector) unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const auto two = [&](auto n) { return __byte_perm(parts[n], parts[n + 1], sizeof(T) == 1 ? 0x40 : 0x5410); };
        if constexpr (sizeof(T) == 1) words[i] = __byte_perm(two(4 * i), two(4 * i + 2), 0x5410);
        else if constexpr (sizeof(T) == 2) words[i] = two(2 * i);
        else if (i < kCount) reinterpret_cast<T*>(words)[i] = parts[i];
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// The vector that begins `shift` bytes, 0 to 3, after the start of five consecutive words.
__device__ inline uint4 funnel(const unsigned (&words)[5], unsigned shift) {
    const unsigned bits = shift * 8;
    return make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                      __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
}

// Moves words down by a phase, a multiple of kUnit below 16: by 8 bytes, by 4, and by 0 to 3. The last two
// words, and as many as the phase has moved, get undefined values.
template <int kUnit, int kCount> __device__ inline void shift_down(unsigned (&words)[kCount], unsigned phase) {
#pragma unroll
    for (int i = 0; i < kCount - 2; ++i) words[i] = kUnit <= 8 && phase & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < kCount - 2; ++i) words[i] = kUnit <= 4 && phase & 4 ? words[i + 1] : words[i];
#pragma unroll
    for (int i = 0; i < kCount - 2; ++i)
        if (kUnit < 4) words[i] = __funnelshift_r(words[i], words[i + 1], phase * 8);
}

// The first `count` bytes of `head`, then those of `tail` after them.
__device__ inline unsigned joined(unsigned head, unsigned tail, int count) {
    const unsigned mask = __funnelshift_lc(~0u, 0u, static_cast<unsigned>(max(8 * count, 0)));  // all of 4 and more
    return (head & mask) | (tail & ~mask);
}
__device__ inline uint4 joined(uint4 head, uint4 tail, unsigned count) {
    const int bytes = static_cast<int>(count);
    return make_uint4(joined(head.x, tail.x, bytes), joined(head.y, tail.y, bytes - 4),
                      joined(head.z, tail.z, bytes - 8), joined(head.w, tail.w, bytes - 12));
}
