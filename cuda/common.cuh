// What kernels share: access to global memory, division by numbers that are known at the launch, searching small
// tables, and moving bytes between registers.
//
// The constants (kOutputs, kThreads, kResident, ...) and types (Index, Position, ...) are generated in front of this
// text, and the type Parameters after it (`source` in specialization.py). A launch passes one such struct by value. It
// holds the pointers, and every number that may differ between splits with the same code, such as the number of rows.
// kOutputs is the room for outputs in it, of which a launch may use fewer; kThreads is the most threads of a block;
// kResident is the number of blocks per SM in __launch_bounds__.
//
// Unsigned arithmetic never wraps, except in remainder(); tests check that. Shifts may drop bits.
//
// Kernels read the input only through load(), and write outputs only through store(). A load may fetch an aligned
// word or vector if it holds at least one byte of the input; a store touches bytes of outputs only.

using Byte = unsigned char;
using U64 = unsigned long long;  // counts and offsets that may exceed 2^32

template <int kBytes> struct Unsigned;  // what one load or store moves
template <> struct Unsigned<1> { using Type = unsigned char; };
template <> struct Unsigned<2> { using Type = unsigned short; };
template <> struct Unsigned<4> { using Type = unsigned int; };
template <> struct Unsigned<8> { using Type = uint2; };
template <> struct Unsigned<16> { using Type = uint4; };

constexpr int kVector = 16;

// An address modulo 16.
__device__ inline unsigned phase(const Byte* pointer) {
    return static_cast<unsigned>(reinterpret_cast<size_t>(pointer) & (kVector - 1));
}

// The address of the aligned vector that holds a byte.
__device__ inline const Byte* vector_around(const Byte* pointer) {
    return reinterpret_cast<const Byte*>(reinterpret_cast<size_t>(pointer) / kVector * kVector);
}

// Nothing writes the input while a kernel runs, so loads may use the read-only path of the cache.
template <class T> __device__ inline T load(const Byte* pointer) {
    return __ldg(reinterpret_cast<const T*>(pointer));
}

// Tests that run kernels on the host define the functions of this section themselves.
#ifndef CUDA_ON_HOST
// A store with a `cuda::access_property`, which tells the L2 cache how long to keep the line. The property is an
// operand of the store, not another instruction; docs/design/012-sizes-as-arguments.md says what it costs.
template <class T> __device__ inline void store_with(T* pointer, T value, U64 policy) {
#if __CUDA_ARCH__ >= 800
    pointer = static_cast<T*>(__nv_associate_access_property(pointer, policy));
#else
    // GPUs before compute capability 8.0 have no policies. __stcs marks the line to be evicted first.
    if (policy == kStreaming) return __stcs(pointer, value);
#endif
    // opaque() hides the address space. Without this line, NVRTC emits generic stores (ST) in rows.cu instead of STG.
    __builtin_assume(__isGlobal(pointer));
    *pointer = value;  // not __stwb, which NVRTC compiles to STG.STRONG.SM, a strong store of the PTX memory model
}

// `value`, whose origin the compiler no longer sees. Otherwise it may compute a sum again at each use.
template <class T> __device__ inline T opaque(T value) {
    if constexpr (sizeof(T) == 8) asm("" : "+l"(value));
    else asm("" : "+r"(value));
    return value;
}

// number - quotient * size. minus_size is 2^32 - size or 2^64 - size, so the sum wraps to the same result, in one
// multiply-add. With the size itself, NVRTC would first negate the quotient, in another instruction.
template <class T> __device__ inline T remainder(T number, T quotient, T minus_size) {
    return number + quotient * minus_size;
}
#endif

// If input and outputs do not fit the L2 cache, the policy is kStreaming: lines of outputs are evicted first.
template <class T> __device__ inline void store(Byte* pointer, T value, U64 policy) {
    store_with(reinterpret_cast<T*>(pointer), value, policy);
}

// A number that is known at the launch (`divisor` in specialization.py), by which numbers below 2^31 are divided. The
// quotient is number * magic >> 31 + shift. __umulhi shifts the product by 32, so the number is doubled first.
struct Divisor {
    unsigned magic, shift;
};

__device__ inline unsigned quotient(unsigned number, Divisor divisor) {
    return __umulhi(2 * number, divisor.magic) >> divisor.shift;
}

// Binary search: the index of the last entry <= value in the first kCount of a sorted table that begins with 0.
template <int kCount, class T> __device__ inline int last_at_most(const T* table, T value) {
    int steps = 1;
    while (steps < kCount) steps *= 2;
    int index = 0;
    for (int step = steps / 2; step > 0; step /= 2)
        if (index + step < kCount && table[index + step] <= value) index += step;
    return index;
}

// Selectors of __byte_perm. Each hexadecimal digit selects a byte of the result, the last digit its lowest byte: 0 to 3
// are the bytes of the first word, 4 to 7 those of the second. kLowBytes leaves the upper half meaningless.
constexpr unsigned kLowBytes = 0x40, kLowHalves = 0x5410;  // the lowest byte, or the lower half, of both words

// The vector that consists of `parts`. Narrow ones are combined in pairs, by byte permutations.
template <class T, int kCount> __device__ inline uint4 vector_of(const T (&parts)[kCount]) {
    alignas(kVector) unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        constexpr unsigned selector = sizeof(T) == 1 ? kLowBytes : kLowHalves;
        const auto joined_pair = [&](auto n) { return __byte_perm(parts[n], parts[n + 1], selector); };
        if constexpr (sizeof(T) == 1) words[i] = __byte_perm(joined_pair(4 * i), joined_pair(4 * i + 2), kLowHalves);
        else if constexpr (sizeof(T) == 2) words[i] = joined_pair(2 * i);
        else if (i < kCount) reinterpret_cast<T*>(words)[i] = parts[i];
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// The vector in five consecutive words that begins `shift` % 4 bytes after their start.
__device__ inline uint4 funnel(const unsigned (&words)[5], unsigned shift) {
    const unsigned bits = shift * 8;
    return make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                      __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
}

// Moves the bytes of `words` down by `shift`, a multiple of kAlign below 16: by 8, then by 4, then by 0 to 3. After
// that, up to four of the last words are meaningless.
template <int kAlign, int kCount> __device__ inline void shift_down(unsigned (&words)[kCount], unsigned shift) {
#pragma unroll
    for (int i = 0; i < kCount - 2; ++i) words[i] = kAlign <= 8 && shift & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < kCount - 2; ++i) words[i] = kAlign <= 4 && shift & 4 ? words[i + 1] : words[i];
#pragma unroll
    for (int i = 0; i < kCount - 2; ++i)
        if (kAlign < 4) words[i] = __funnelshift_r(words[i], words[i + 1], shift * 8);
}

// The first `count` bytes of `head`, then the bytes of `tail` after its first `count`.
__device__ inline unsigned joined(unsigned head, unsigned tail, int count) {
    // Ones in the lowest `count` bytes. The shift is clamped to 32, so these are all four if `count` is 4 or more.
    const unsigned mask = __funnelshift_lc(~0u, 0u, static_cast<unsigned>(max(8 * count, 0)));
    return (head & mask) | (tail & ~mask);
}
__device__ inline uint4 joined(uint4 head, uint4 tail, unsigned count) {
    const int bytes = static_cast<int>(count);
    return make_uint4(joined(head.x, tail.x, bytes), joined(head.y, tail.y, bytes - 4),
                      joined(head.z, tail.z, bytes - 8), joined(head.w, tail.w, bytes - 12));
}
