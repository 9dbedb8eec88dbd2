// Between the card and a kernel that g++ compiled into a shared library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace card {

// Live device memory, and what to add to its addresses to reach its bytes.
struct Window {
    std::uintptr_t low = 0, high = 0;
    std::ptrdiff_t to_bytes = 0;
};

// Finds the memory of an address; false where there is none that the launch may touch.
using FindWindow = bool (*)(const void* address, int device, Window& found);

struct Launch {
    unsigned grid, block;
    int device;
    const void* parameters;
    FindWindow find;
};

// What stopped a launch: a CUresult, 0 if nothing did, and the place.
struct Outcome {
    int status;
    const char* what;
    const void* address;
    unsigned bytes, block, thread;
    std::uint64_t bytes_moved;
};

// What every module exports under the name `card_kernel`.
struct Kernel {
    const char* name;
    std::size_t parameter_bytes;
    Outcome (*run)(const Launch& launch);
};

}  // namespace card
