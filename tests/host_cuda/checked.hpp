// Unsigned numbers that must not wrap. harness.py replaces `unsigned` in a kernel's source by them.
//
// Sums, differences and products are computed exactly. A result that its C++ type cannot hold ends
// the run, and so does a conversion that changes the value. Shifts may drop bits, because kernels
// shift words of data.
#pragma once

#include <type_traits>
#include <utility>

#include "cuda_on_host.hpp"

namespace host_cuda {
using Exact = __int128;
// Reports that `a`, or `a op b`, does not fit in this number of bits, and ends the run.
[[noreturn]] void wrapped(unsigned bits, Exact a, const char* op = nullptr, Exact b = 0);

template <class T> struct Checked;

// The C++ type of a number: `unsigned` for Checked<unsigned>, and any other type itself.
template <class T> struct PlainOf { using Type = T; };
template <class T> struct PlainOf<Checked<T>> { using Type = T; };
template <class T> using Plain = typename PlainOf<T>::Type;

template <class T> constexpr bool kIsChecked = !std::is_same_v<T, Plain<T>>;
template <class T> constexpr bool kIsNumber = std::is_integral_v<Plain<T>>;

// The type of a sum of both: checked if it is unsigned in C++.
template <class A, class B> using SumInC = std::common_type_t<Plain<A>, Plain<B>>;
template <class A, class B>
using Sum = std::conditional_t<std::is_unsigned_v<SumInC<A, B>>, Checked<SumInC<A, B>>, SumInC<A, B>>;

template <class A, class B>
concept HaveChecked = kIsNumber<A> && kIsNumber<B> && (kIsChecked<A> || kIsChecked<B>);

template <class T, class From> constexpr T fitting(From value) {
    if (!std::in_range<T>(value)) wrapped(8 * sizeof(T), value);
    return static_cast<T>(value);
}

template <class T> struct Checked {
    T value;

    Checked() = default;
    template <class From>
        requires std::is_integral_v<From>
    constexpr Checked(From from) : value(from) {
        if constexpr (!std::is_same_v<From, bool>) value = fitting<T>(from);
    }
    template <class From>
    constexpr explicit(sizeof(From) > sizeof(T)) Checked(Checked<From> from) : Checked(from.value) {}

    constexpr operator T() const { return value; }
    template <class To>
        requires std::is_signed_v<To>
    constexpr explicit operator To() const { return fitting<To>(value); }

    constexpr Checked operator-() const { return Checked(0) - *this; }
    constexpr Checked operator~() const { return static_cast<T>(~value); }
    constexpr Checked& operator++() { return *this = *this + 1; }
};

template <class T> constexpr T plain(T value) { return value; }
template <class T> constexpr T plain(Checked<T> value) { return value.value; }

#define CHECKED_OPERATOR(op) \
    template <class A, class B> requires HaveChecked<A, B> constexpr auto operator op(A a, B b)

#define CHECKED_SUM(op, overflows)                                                                \
    CHECKED_OPERATOR(op) {                                                                        \
        SumInC<A, B> result;                                                                      \
        if (overflows(plain(a), plain(b), &result))                                               \
            wrapped(8 * sizeof result, plain(a), #op, plain(b));                                  \
        return Sum<A, B>(result);                                                                 \
    }                                                                                             \
    template <class T, class B> constexpr Checked<T>& operator op##=(Checked<T>& a, B b) { return a = Checked<T>(a op b); }
CHECKED_SUM(+, __builtin_add_overflow)
CHECKED_SUM(-, __builtin_sub_overflow)
CHECKED_SUM(*, __builtin_mul_overflow)

// C++ converts both operands to one type, which may change their values.
#define CHECKED_PAIR(op, Result) \
    CHECKED_OPERATOR(op) { return Result(fitting<SumInC<A, B>>(plain(a)) op fitting<SumInC<A, B>>(plain(b))); }
#define CHECKED_QUOTIENT(op) CHECKED_PAIR(op, (Sum<A, B>))
#define CHECKED_COMPARISON(op) CHECKED_PAIR(op, bool)
CHECKED_QUOTIENT(/)
CHECKED_QUOTIENT(%)
CHECKED_COMPARISON(==)
CHECKED_COMPARISON(!=)
CHECKED_COMPARISON(<)
CHECKED_COMPARISON(<=)
CHECKED_COMPARISON(>)
CHECKED_COMPARISON(>=)

#define CHECKED_BITS(op)                                                           \
    CHECKED_OPERATOR(op) { return Sum<A, B>(SumInC<A, B>(plain(a) op plain(b))); } \
    template <class T, class B> constexpr Checked<T>& operator op##=(Checked<T>& a, B b) { return a = Checked<T>(a op b); }
CHECKED_BITS(&)
CHECKED_BITS(|)
CHECKED_BITS(^)

#define CHECKED_SHIFT(op) \
    CHECKED_OPERATOR(op) { return Sum<A, decltype(plain(a) op plain(b))>(plain(a) op plain(b)); }
CHECKED_SHIFT(<<)
CHECKED_SHIFT(>>)

template <class A, class B> requires HaveChecked<A, B> constexpr auto min(A a, B b) {
    return Sum<A, B>(b < a ? plain(b) : plain(a));
}
template <class A, class B> requires HaveChecked<A, B> constexpr auto max(A a, B b) {
    return Sum<A, B>(a < b ? plain(b) : plain(a));
}

// threadIdx, blockIdx, blockDim and gridDim.
struct CheckedIndex {
    Checked<unsigned> x, y, z;
    CheckedIndex(uint3 index) : x(index.x), y(index.y), z(index.z) {}
};

// number - quotient * size, without wrapping. In kernels, `minus_size` is 2^32 or 2^64 minus the size,
// and the sum wraps.
template <class T> constexpr Checked<T> remainder(Checked<T> number, Checked<T> quotient, Checked<T> minus_size) {
    return number - quotient * Checked<T>(static_cast<T>(-minus_size.value));
}
}  // namespace host_cuda

#define threadIdx host_cuda::CheckedIndex(threadIdx)
#define blockIdx host_cuda::CheckedIndex(blockIdx)
#define blockDim host_cuda::CheckedIndex(blockDim)
#define gridDim host_cuda::CheckedIndex(gridDim)
