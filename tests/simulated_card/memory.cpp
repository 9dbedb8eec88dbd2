// Device memory: addresses in a range that the host cannot access, and bytes in a second range.
//
// Each device reserves a range of addresses without access rights, so that host code which
// dereferences a device pointer crashes. The bytes are at the same offsets of a second range, which
// only kernels and copies use, after checking that they are allocated. No address is ever reused, and
// there are gaps between blocks, so a use after free or an access past an end is always found.
#include <sys/mman.h>

#include <cstring>
#include <map>

#include "card.hpp"

namespace card {
namespace {
constexpr std::size_t kRange = std::size_t{1} << 42;
constexpr std::size_t kAlignment = 512;  // of the addresses that cudaMalloc returns
constexpr std::size_t kPage = 4096;
constexpr unsigned char kPoison = 0xEE;
// Larger blocks are not poisoned, so that the host needs memory only for the pages that are used.
constexpr std::size_t kMaxPoisoned = std::size_t{1} << 30;

struct Range {
    unsigned char* addresses = nullptr;
    unsigned char* bytes = nullptr;
    std::size_t next = kAlignment;
};

Range ranges[kDevices];

std::map<std::uintptr_t, Allocation>& allocations() {
    static auto* live = new std::map<std::uintptr_t, Allocation>;
    return *live;
}

std::map<std::uintptr_t, std::size_t>& pinned() {
    static auto* live = new std::map<std::uintptr_t, std::size_t>;
    return *live;
}

std::size_t rounded(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

unsigned char* reserve(int rights) {
    void* found = mmap(nullptr, kRange, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : static_cast<unsigned char*>(found);
}

bool prepare(Range& range) {
    if (!range.addresses) range.addresses = reserve(PROT_NONE);
    if (!range.bytes) range.bytes = reserve(PROT_READ | PROT_WRITE);
    return range.addresses && range.bytes;
}

int device_of(const void* address) {
    const auto* byte = static_cast<const unsigned char*>(address);
    for (int i = 0; i < kDevices; ++i) {
        const unsigned char* first = ranges[i].addresses;
        if (first && byte >= first && byte < first + kRange) return i;
    }
    return -1;
}

template <class Map>
auto block_of(Map& blocks, const void* address) {
    auto after = blocks.upper_bound(reinterpret_cast<std::uintptr_t>(address));
    return after == blocks.begin() ? blocks.end() : std::prev(after);
}

bool is_pinned(const void* address) {
    const auto block = block_of(pinned(), address);
    return block != pinned().end() &&
           reinterpret_cast<std::uintptr_t>(address) < block->first + block->second;
}

unsigned char* place(const void* address) {
    return is_device_range(address) ? storage(address)
                                    : static_cast<unsigned char*>(const_cast<void*>(address));
}

struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;

    bool to_device() const { return is_device_range(to); }
    bool from_device() const { return is_device_range(from); }

    bool fits(cudaMemcpyKind kind) const {
        if (kind != cudaMemcpyDefault) {
            const bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
            const bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
            if (says_to != to_device() || says_from != from_device()) return false;
        }
        return (!to_device() || is_allocated(to, bytes)) &&
               (!from_device() || is_allocated(from, bytes));
    }

    bool may_run() const {
        return (!to_device() || is_live(to, bytes)) && (!from_device() || is_live(from, bytes));
    }
};

// A copy checks again when it runs, because the memory may have been freed since the call.
Status copy_now(const Copy& copy) {
    if (!copy.may_run()) {
        say("a copy of %zu bytes runs on memory that is not there", copy.bytes);
        return {cudaErrorIllegalAddress};
    }
    std::memmove(place(copy.to), place(copy.from), copy.bytes);
    if (copy.to_device()) spend(allocation_of(copy.to)->device, 2.0 * copy.bytes);
    return kOk;
}

// Pageable host memory is read and written before the call returns, pinned memory as late as
// possible.
Status enqueue_copy(Stream& stream, const Copy& copy) {
    if (copy.from_device() || is_pinned(copy.from) || stream.capture)
        return enqueue(stream, [copy] { return copy_now(copy); });
    const auto* first = static_cast<const unsigned char*>(copy.from);
    std::vector<unsigned char> staged(first, first + copy.bytes);
    return enqueue(stream, [copy, staged = std::move(staged)] {
        return copy_now({copy.to, staged.data(), copy.bytes});
    });
}

Status copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, void* handle,
            bool waits) {
    const Copy copy{to, from, bytes};
    Stream* stream = stream_of(handle);
    if (!stream) return {cudaErrorInvalidResourceHandle};
    if (!copy.fits(kind)) return {cudaErrorInvalidValue};
    if (waits && is_capturing_legacy_dependent(stream->device))
        return {cudaErrorStreamCaptureImplicit};
    if (const Status status = enqueue_copy(*stream, copy)) return status;
    // Even a blocking call does not wait for a copy within the device.
    const bool to_pageable = !copy.to_device() && !is_pinned(to);
    const bool inside = copy.to_device() && copy.from_device();
    if (!stream->capture && (to_pageable || (waits && !inside))) run_until_done({stream->last});
    return {device(stream->device).broken};
}

Status set(void* to, int value, std::size_t bytes, void* handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return {cudaErrorInvalidResourceHandle};
    if (!is_device_range(to) || !is_allocated(to, bytes)) return {cudaErrorInvalidValue};
    return enqueue(*stream, [=]() -> Status {
        if (!is_live(to, bytes)) return {cudaErrorIllegalAddress};
        std::memset(storage(to), value, bytes);
        return kOk;
    });
}
}  // namespace

bool is_device_range(const void* address) { return device_of(address) >= 0; }

Allocation* allocation_of(const void* address) {
    const auto block = block_of(allocations(), address);
    return block == allocations().end() ? nullptr : &block->second;
}

unsigned char* storage(const void* address) {
    const Range& range = ranges[device_of(address)];
    return range.bytes + (static_cast<const unsigned char*>(address) - range.addresses);
}

bool is_allocated(const void* address, std::size_t bytes) {
    const Allocation* block = allocation_of(address);
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    return bytes == 0 || (block && first < block->end() && bytes <= block->end() - first);
}

bool is_live(const void* address, std::size_t bytes) {
    return is_allocated(address, bytes) && (bytes == 0 || allocation_of(address)->is_live);
}

Status take(int number, std::size_t bytes, bool is_live, void** address) {
    Device& owner = device(number);
    Range& range = ranges[number];
    const std::size_t taken = rounded(bytes);
    *address = nullptr;
    if (bytes > owner.memory_limit || taken > owner.memory_limit - owner.memory_used ||
        !prepare(range) || taken + kAlignment > kRange - range.next)
        return {cudaErrorMemoryAllocation};
    unsigned char* found = range.addresses + range.next;
    range.next += taken + kAlignment;
    owner.memory_used += taken;
    const auto first = reinterpret_cast<std::uintptr_t>(found);
    allocations()[first] = {first, bytes, number, is_live};
    if (bytes <= kMaxPoisoned) std::memset(storage(found), kPoison, bytes);
    *address = found;
    return kOk;
}

// Returns whole pages to the operating system, but never reuses the addresses.
void give_back(const Allocation& block) {
    const std::size_t taken = rounded(block.bytes);
    device(block.device).memory_used -= taken;
    unsigned char* first = storage(reinterpret_cast<const void*>(block.address));
    const auto page = (reinterpret_cast<std::uintptr_t>(first) + kPage - 1) / kPage * kPage;
    const auto end = reinterpret_cast<std::uintptr_t>(first + taken) / kPage * kPage;
    if (page < end) madvise(reinterpret_cast<void*>(page), end - page, MADV_DONTNEED);
    allocations().erase(block.address);
}
}  // namespace card

using namespace card;

EXPORT cudaError_t cudaMalloc(void** address, std::size_t bytes) {
    ENTER_DEVICE;
    if (const Status status = unsafe_in_capture()) return error(status.number);
    *address = nullptr;
    return bytes ? error(take(current_device(), bytes, true, address).number) : Status(kOk);
}

// Of the device alone: the host does not read it.
EXPORT cudaError_t cudaMallocManaged(void** address, std::size_t bytes, unsigned flags) {
    return flags == cudaMemAttachGlobal ? cudaMalloc(address, bytes) : error(cudaErrorNotSupported);
}

// Waits for the device first, as CUDA's function does.
EXPORT cudaError_t cudaFree(void* address) {
    ENTER_DEVICE;
    if (!address) return kOk;
    if (const Status status = unsafe_in_capture()) return error(status.number);
    const auto block = allocations().find(reinterpret_cast<std::uintptr_t>(address));
    if (block == allocations().end()) return error(cudaErrorInvalidValue);
    const Allocation freed = block->second;
    run_device(freed.device);
    give_back(freed);
    return error(device(freed.device).broken);
}

EXPORT cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    ENTER_DEVICE;
    const Device& owner = device(current_device());
    *free = owner.memory_limit - owner.memory_used;
    *total = owner.memory_limit;
    return kOk;
}

EXPORT cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
    ENTER_DEVICE;
    if (const Status status = unsafe_in_capture()) return error(status.number);
    *address = std::malloc(bytes ? bytes : 1);
    if (!*address) return error(cudaErrorMemoryAllocation);
    pinned()[reinterpret_cast<std::uintptr_t>(*address)] = bytes;
    return kOk;
}

EXPORT cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
    return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

EXPORT cudaError_t cudaFreeHost(void* address) {
    ENTER_DEVICE;
    if (!pinned().erase(reinterpret_cast<std::uintptr_t>(address)))
        return error(cudaErrorInvalidValue);
    for (int i = 0; i < kDevices; ++i) run_device(i);
    std::free(address);
    return kOk;
}

EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
    ENTER_DEVICE;
    std::memset(found, 0, sizeof *found);
    found->device = cudaInvalidDeviceId;
    if (is_device_range(address) && is_allocated(address, 1)) {
        found->type = cudaMemoryTypeDevice;
        found->device = allocation_of(address)->device;
        found->devicePointer = const_cast<void*>(address);
    } else if (is_pinned(address)) {
        found->type = cudaMemoryTypeHost;
        found->device = current_device();
        found->devicePointer = found->hostPointer = const_cast<void*>(address);
    } else {
        found->type = cudaMemoryTypeUnregistered;
        found->hostPointer = const_cast<void*>(address);
    }
    return kOk;
}

EXPORT cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    ENTER_DEVICE;
    return error(copy(to, from, bytes, kind, nullptr, true).number);
}

EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER_DEVICE;
    return error(copy(to, from, bytes, kind, stream, false).number);
}

EXPORT cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    ENTER_DEVICE;
    return error(set(to, value, bytes, nullptr).number);
}

EXPORT cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    ENTER_DEVICE;
    return error(set(to, value, bytes, stream).number);
}
