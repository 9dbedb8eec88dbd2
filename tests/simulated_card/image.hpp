// The card's form of a cubin: a header, and the bytes of a shared library with one kernel.
#pragma once

#include <cstdint>

namespace card {
constexpr char kImageMagic[8] = {'S', 'I', 'M', 'C', 'A', 'R', 'D', '1'};

struct ImageHeader {
    char magic[8];
    std::uint64_t bytes;
};
}  // namespace card
