// The interface between the card and a kernel that g++ compiled into a shared library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace card {

// A range of live device memory, and the offset from its addresses to its bytes on the host.
struct Window {
    std::uintptr_t low = 0, high = 0;
    std::ptrdiff_t to_bytes = 0;
};

// Finds the memory of an address; false if the launch may not access any memory there.
using FindWindow = bool (*)(const void* address, int device, Window& found);

struct Launch {
    unsigned grid, block;
    int device;
    const void* parameters;
    FindWindow find;
};

// The end of a launch: a CUresult, 0 on success, and the access that caused an error.
struct Outcome {
    int status;
    const char* what;
    const void* address;
    unsigned bytes, block, thread;
    std::uint64_t bytes_moved;
};

// Every module exports one of these under the name `card_kernel`.
struct Kernel {
    const char* name;
    std::size_t parameter_bytes;
    Outcome (*run)(const Launch& launch);
};

}  // namespace card
