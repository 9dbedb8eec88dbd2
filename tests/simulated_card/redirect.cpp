// Redirects CuPy's calls of the CUDA runtime to the card.
//
// CuPy's wheels contain the runtime, linked statically, which calls the driver through tables that
// NVIDIA does not document. The calls are therefore redirected one level higher, at the documented
// functions: build.py reads their addresses from the symbol table of CuPy's extension module, and a
// jump overwrites the first bytes of each. It leads to the card's function of that name, or to one
// that fails with the name.
#include <link.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

extern "C" int card_refuse(const char* name);

struct Redirect {
    std::uintptr_t offset;
    void (*target)();
};

#include "redirects.inc"

namespace {
constexpr std::uintptr_t kPage = 4096;

struct Search {
    const char* path;
    std::uintptr_t base;
};

int visit(dl_phdr_info* library, std::size_t, void* data) {
    auto* search = static_cast<Search*>(data);
    if (std::strcmp(library->dlpi_name, search->path)) return 0;
    search->base = library->dlpi_addr;
    return 1;
}

// jmp *[rip], followed by the address that it reads.
void write_jump(unsigned char* place, void (*target)()) {
    constexpr unsigned char kJump[6] = {0xFF, 0x25, 0, 0, 0, 0};
    const auto address = reinterpret_cast<std::uintptr_t>(target);
    std::memcpy(place, kJump, sizeof kJump);
    std::memcpy(place + sizeof kJump, &address, sizeof address);
}

bool make_writable(unsigned char* place, bool is_writable) {
    const auto first = reinterpret_cast<std::uintptr_t>(place) / kPage * kPage;
    const int rights = PROT_READ | PROT_EXEC | (is_writable ? PROT_WRITE : 0);
    return !mprotect(reinterpret_cast<void*>(first), 2 * kPage, rights);
}
}  // namespace

// `path` is CuPy's loaded extension module; returns the number of redirected functions.
extern "C" __attribute__((visibility("default"))) int card_redirect(const char* path) {
    Search search{path, 0};
    if (!dl_iterate_phdr(visit, &search)) return 0;
    int count = 0;
    for (const Redirect& redirect : redirects) {
        auto* place = reinterpret_cast<unsigned char*>(search.base + redirect.offset);
        if (!make_writable(place, true)) return 0;
        write_jump(place, redirect.target);
        make_writable(place, false);
        ++count;
    }
    return count;
}
