// Runs one kernel of this program as a GPU would, from a job file, and reports what it did.
//
//   PROGRAM KERNEL_INDEX JOB RESULT
//
// JOB and RESULT are streams of little-endian int64 and raw bytes; harness.py writes and reads
// them. Every buffer lies between guard bands in its own mapping, so buffers above 4 GiB cost
// only the pages that are touched.
//
// Counting. A warp's request is what its 32 lanes do at one instruction: accesses of the same
// call site, the same time round. Sectors are 32 bytes, lines 128. `block` sectors and lines are those
// distinct within a block: its own re-reads are taken to hit L1, those of other blocks to miss.
// Shared memory is seen where the kernels are compiled with -fsanitize=thread, whose hooks are
// below: its 32 banks serve a warp's request in as many wavefronts as one bank has to give words.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <vector>

#include "fibers.hpp"

uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace host_cuda {
extern const Kernel kernels[];

namespace {
constexpr std::size_t kPage = 4096;
constexpr std::size_t kWarp = 32;
constexpr std::uintptr_t kSector = 32;
constexpr std::uintptr_t kLineSectors = 4;
constexpr std::uintptr_t kWord = 4;
constexpr std::uintptr_t kBanks = 32;
constexpr std::ptrdiff_t kBand = 256;  // guard bytes on each side of a buffer
constexpr unsigned char kGuardByte = 0xA5;

struct Access {
    const void* site;
    std::uintptr_t address;
    std::uint32_t bytes;
    bool is_store;
};

// What one thread did.
struct Record {
    std::int64_t loaded;  // bytes since it last had to wait
    bool waited;
    std::vector<Access> accesses;
    std::vector<Access> shared;

    void clear() {
        loaded = 0;
        waited = false;
        accesses.clear();
        shared.clear();
    }
};

struct Buffer {
    std::int64_t bytes, origin, misalignment;
    unsigned char* data;
    unsigned char* pointer() const { return data + origin; }
};

struct Counts {
    std::int64_t load_instructions, store_instructions, load_bytes, store_bytes;
    std::int64_t store_bytes_16, load_requests, store_requests;
    std::int64_t load_request_sectors, store_request_sectors;
    std::int64_t load_block_sectors, store_block_sectors;
    std::int64_t load_block_lines, store_block_lines, bytes_in_flight;
    std::int64_t shared_requests, shared_wavefronts;
} counts;

std::vector<Record> records;  // of the block's threads
std::vector<Buffer> buffers;  // the source, then the targets
std::vector<const Buffer*> by_address;
const Kernel* kernel;
std::vector<unsigned char> pointers;

[[noreturn]] void fault(const char* what, const void* address, unsigned bytes) {
    std::fprintf(stderr, "fault: %s: %u bytes at %p, block %u, thread %u\n", what, bytes, address,
                 blockIdx.x, threadIdx.x);
    for (std::size_t i = 0; i < buffers.size() && i < 40; ++i) {
        const Buffer& b = buffers[i];
        const auto offset = static_cast<const unsigned char*>(address) - b.pointer();
        if (offset >= -b.origin - 4096 && offset < b.bytes - b.origin + 4096)
            std::fprintf(stderr, "  byte %td of %s %zu of %td bytes\n", offset,
                         i ? "target" : "source", i ? i - 1 : 0, b.bytes - b.origin);
    }
    std::fflush(stderr);
    std::_Exit(70);
}

const Buffer* buffer_of(const void* address) {
    static const Buffer* last = nullptr;
    const auto* byte = static_cast<const unsigned char*>(address);
    if (last && byte >= last->data && byte < last->data + last->bytes) return last;
    // Bands part the buffers, so an access belongs to the last one that begins before its band.
    auto after = std::upper_bound(
        by_address.begin(), by_address.end(), byte + kBand,
        [](const unsigned char* wanted, const Buffer* buffer) { return wanted < buffer->data; });
    if (after == by_address.begin()) return nullptr;
    last = *--after;
    return last;
}

// ---- counting -------------------------------------------------------------------------------

using Sectors = std::vector<std::uintptr_t>;

void add_sectors(const Access& access, Sectors& sectors) {
    const std::uintptr_t last = (access.address + access.bytes - 1) / kSector;
    for (std::uintptr_t s = access.address / kSector; s <= last; ++s) sectors.push_back(s);
}

std::int64_t distinct(Sectors& sectors) {
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    return static_cast<std::int64_t>(sectors.size());
}

std::int64_t distinct_lines(Sectors& sectors) {
    for (std::uintptr_t& sector : sectors) sector /= kLineSectors;
    return distinct(sectors);
}

struct Lane {
    const void* site;
    std::uint32_t round;
    Access access;
    auto key() const { return std::tie(site, round); }
};

// Every access of a warp's lanes, those of one instruction next to each other.
std::vector<Lane> lanes_of_warp(std::size_t first, std::vector<Access> Record::*kind) {
    std::vector<Lane> lanes;
    for (std::size_t t = first; t < std::min(first + kWarp, records.size()); ++t) {
        std::vector<std::pair<const void*, std::uint32_t>> rounds;
        for (const Access& access : records[t].*kind) {
            auto seen = std::find_if(rounds.begin(), rounds.end(),
                                     [&](auto& pair) { return pair.first == access.site; });
            if (seen == rounds.end()) seen = rounds.insert(seen, {access.site, 0});
            lanes.push_back({access.site, seen->second++, access});
        }
    }
    std::stable_sort(lanes.begin(), lanes.end(),
                     [](const Lane& a, const Lane& b) { return a.key() < b.key(); });
    return lanes;
}

void count_requests() {
    Sectors sectors;
    for (std::size_t first = 0; first < records.size(); first += kWarp) {
        const std::vector<Lane> lanes = lanes_of_warp(first, &Record::accesses);
        for (std::size_t i = 0; i < lanes.size();) {
            const bool is_store = lanes[i].access.is_store;
            const auto key = lanes[i].key();
            sectors.clear();
            for (; i < lanes.size() && lanes[i].key() == key; ++i)
                add_sectors(lanes[i].access, sectors);
            (is_store ? counts.store_requests : counts.load_requests) += 1;
            (is_store ? counts.store_request_sectors : counts.load_request_sectors) +=
                distinct(sectors);
        }
    }
}

// A wavefront serves lanes whose accesses together are at most 128 bytes: a quarter of the warp
// where they are 16 bytes wide. Lanes that read the same word share it.
std::int64_t wavefronts(const std::vector<Lane>& lanes, std::size_t begin, std::size_t end) {
    const std::size_t together = kBanks * kWord / std::max<std::size_t>(kWord, lanes[begin].access.bytes);
    std::int64_t total = 0;
    for (std::size_t first = begin; first < end; first += together) {
        std::vector<std::uintptr_t> words;
        for (std::size_t i = first; i < std::min(first + together, end); ++i) {
            const Access& access = lanes[i].access;
            for (std::uintptr_t at = access.address; at < access.address + access.bytes; at += kWord)
                words.push_back(at / kWord);
        }
        distinct(words);
        std::int64_t per_bank[kBanks] = {};
        for (const std::uintptr_t word : words) ++per_bank[word % kBanks];
        total += *std::max_element(per_bank, per_bank + kBanks);
    }
    return total;
}

void count_shared() {
    for (std::size_t first = 0; first < records.size(); first += kWarp) {
        const std::vector<Lane> lanes = lanes_of_warp(first, &Record::shared);
        for (std::size_t i = 0, begin = 0; i < lanes.size(); begin = i) {
            while (i < lanes.size() && lanes[i].key() == lanes[begin].key()) ++i;
            counts.shared_requests += 1;
            counts.shared_wavefronts += wavefronts(lanes, begin, i);
        }
    }
}

void count_block() {
    static Sectors loaded, stored;
    loaded.clear();
    stored.clear();
    for (const Record& record : records)
        for (const Access& access : record.accesses) {
            add_sectors(access, access.is_store ? stored : loaded);
            (access.is_store ? counts.store_instructions : counts.load_instructions) += 1;
            (access.is_store ? counts.store_bytes : counts.load_bytes) += access.bytes;
            if (access.is_store && access.bytes == 16) counts.store_bytes_16 += 16;
        }
    counts.load_block_sectors += distinct(loaded);
    counts.store_block_sectors += distinct(stored);
    counts.load_block_lines += distinct_lines(loaded);
    counts.store_block_lines += distinct_lines(stored);
    count_requests();
    count_shared();
}

// ---- jobs -----------------------------------------------------------------------------------

std::FILE* job;
std::FILE* result;

void read_bytes(void* to, std::size_t bytes) {
    if (std::fread(to, 1, bytes, job) != bytes) std::fprintf(stderr, "job ends early\n"), std::_Exit(72);
}

std::int64_t read_int() {
    std::int64_t value;
    read_bytes(&value, sizeof value);
    return value;
}

void read_buffer(Buffer& buffer) {
    buffer.bytes = read_int();
    buffer.origin = read_int();
    buffer.misalignment = read_int();
    // The pointer, not the first byte, is `misalignment` past a page; a band lies on each side.
    const std::size_t before = (buffer.origin + 2 * kPage - 1) / kPage * kPage;
    const std::size_t after = buffer.bytes - buffer.origin + buffer.misalignment;
    const std::size_t all = before + (after + 2 * kPage - 1) / kPage * kPage;
    void* map = mmap(nullptr, all, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) std::perror("mmap"), std::_Exit(71);
    auto* base = static_cast<unsigned char*>(map);
    buffer.data = base + before + buffer.misalignment - buffer.origin;
    unsigned char* end = buffer.data + buffer.bytes;
    const std::int64_t patches = read_int();
    for (std::int64_t i = 0; i < patches; ++i) {
        const std::int64_t offset = read_int(), bytes = read_int();
        read_bytes(buffer.data + offset, bytes);
    }
    std::memset(buffer.data - kBand, kGuardByte, kBand);
    std::memset(end, kGuardByte, kBand);
}

void check_guards(const Buffer& buffer) {
    unsigned char* end = buffer.data + buffer.bytes;
    for (int i = 0; i < kBand; ++i) {
        if (buffer.data[i - kBand] != kGuardByte) fault("guard changed", buffer.data + i - kBand, 1);
        if (end[i] != kGuardByte) fault("guard changed", end + i, 1);
    }
}

void write_windows() {
    for (const Buffer& buffer : buffers) {
        const std::int64_t windows = read_int();
        for (std::int64_t i = 0; i < windows; ++i) {
            const std::int64_t offset = read_int(), bytes = read_int();
            std::fwrite(buffer.data + offset, 1, bytes, result);
        }
    }
}

void run_job() {
    gridDim = {static_cast<unsigned>(read_int()), 1, 1};
    blockDim = {static_cast<unsigned>(read_int()), 1, 1};
    const std::int64_t counting = read_int();
    std::vector<std::int64_t> blocks(read_int());
    for (std::int64_t& block : blocks) block = read_int();
    buffers.resize(read_int());
    for (Buffer& buffer : buffers) read_buffer(buffer);
    for (const Buffer& buffer : buffers) by_address.push_back(&buffer);
    std::sort(by_address.begin(), by_address.end(),
              [](const Buffer* a, const Buffer* b) { return a->data < b->data; });

    if (kernel->pointers_bytes != 8 * buffers.size())
        fault("the kernel's pointers do not match its buffers", nullptr, kernel->pointers_bytes);
    pointers.resize(kernel->pointers_bytes);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const unsigned char* pointer = buffers[i].pointer();
        std::memcpy(pointers.data() + 8 * i, &pointer, 8);
    }
    records.resize(blockDim.x);
    Fibers fibers(blockDim.x, [] { kernel->run(pointers.data()); });
    for (const std::int64_t block : blocks) {
        for (Record& record : records) record.clear();
        if (!fibers.run_block(static_cast<unsigned>(block)))
            fault("threads of a block part at __syncthreads", nullptr, 0);
        if (counting) count_block();
    }
    for (const Buffer& buffer : buffers) check_guards(buffer);
    std::fwrite(&counts, 1, sizeof counts, result);
    write_windows();
}
}  // namespace

__attribute__((noinline)) void barrier() {
    records[threadIdx.x].waited = true;
    Fibers::running->wait_at(__builtin_return_address(0));
}

__attribute__((noinline)) const void* access(const void* address, unsigned bytes, bool is_store) {
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    const auto* byte = static_cast<const unsigned char*>(address);
    if (where % bytes) fault("misaligned address", address, bytes);
    const Buffer* buffer = buffer_of(address);
    // A load may fetch an aligned word that holds at least one byte of the source: no page ends
    // inside such a word. A store touches bytes of its target only.
    const std::ptrdiff_t slack = is_store ? 0 : bytes - 1;
    if (!buffer || byte + slack < buffer->data || byte + bytes > buffer->data + buffer->bytes + slack)
        fault(is_store ? "store out of bounds" : "load out of bounds", address, bytes);
    if (is_store == (buffer == &buffers.front()))
        fault(is_store ? "store to the source" : "load from a target", address, bytes);
    Record& record = records[threadIdx.x];
    record.accesses.push_back({__builtin_return_address(0), where, bytes, is_store});
    if (is_store) record.waited = true;
    if (!is_store && !record.waited) {
        record.loaded += bytes;
        counts.bytes_in_flight = std::max(counts.bytes_in_flight, record.loaded);
    }
    return address;
}

// Of what a kernel touches outside its stack, only shared arrays are neither constant nor ours.
extern "C" char __bss_start, _end;

void shared_access(const void* address, unsigned bytes, bool is_store, const void* site) {
    const auto* byte = static_cast<const char*>(address);
    const auto is_of = [byte](const uint3& index) {
        return byte >= reinterpret_cast<const char*>(&index) &&
               byte < reinterpret_cast<const char*>(&index + 1);
    };
    if (byte < &__bss_start || byte >= &_end) return;
    if (is_of(threadIdx) || is_of(blockIdx) || is_of(blockDim) || is_of(gridDim)) return;
    records[threadIdx.x].shared.push_back({site, reinterpret_cast<std::uintptr_t>(address), bytes, is_store});
}
}  // namespace host_cuda

#define HOST_CUDA_HOOK(name, bytes, is_store)                                             \
    extern "C" void __tsan_##name(void* address) {                                        \
        host_cuda::shared_access(address, bytes, is_store, __builtin_return_address(0)); \
    }
#define HOST_CUDA_HOOKS(bytes)                       \
    HOST_CUDA_HOOK(read##bytes, bytes, false)        \
    HOST_CUDA_HOOK(write##bytes, bytes, true)        \
    HOST_CUDA_HOOK(unaligned_read##bytes, bytes, false) \
    HOST_CUDA_HOOK(unaligned_write##bytes, bytes, true)
HOST_CUDA_HOOKS(1)
HOST_CUDA_HOOKS(2)
HOST_CUDA_HOOKS(4)
HOST_CUDA_HOOKS(8)
HOST_CUDA_HOOKS(16)
extern "C" void __tsan_read_range(void* address, unsigned long bytes) {
    host_cuda::shared_access(address, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, unsigned long bytes) {
    host_cuda::shared_access(address, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

int main(int argc, char** argv) {
    using namespace host_cuda;
    if (argc != 4) return 64;
    kernel = &kernels[std::atoi(argv[1])];
    job = std::fopen(argv[2], "rb");
    result = std::fopen(argv[3], "wb");
    if (!job || !result) return std::perror(argv[2]), 66;
    run_job();
    std::fclose(result);
    std::_Exit(0);
}
