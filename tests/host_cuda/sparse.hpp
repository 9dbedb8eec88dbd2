// Memory that needs only the pages that are touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace host_cuda {
constexpr std::size_t kPage = 4096;

struct Unmap {
    std::size_t bytes;
    void operator()(void* map) const { munmap(map, bytes); }
};

using SparseMemory = std::unique_ptr<void, Unmap>;

// At least `bytes` of zeroes, aligned to a page.
inline SparseMemory sparse_memory(std::size_t bytes) {
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) std::perror("mmap"), std::_Exit(71);
    return {map, Unmap{bytes}};
}
}  // namespace host_cuda
