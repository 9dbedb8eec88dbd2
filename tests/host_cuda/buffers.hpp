// The memory of a launch: a source and its targets. Each is between guard bands in a mapping of its
// own, so that buffers above 4 GiB need only the pages that are touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "hazards.hpp"
#include "sparse.hpp"

namespace host_cuda {

class Buffer {
public:
    // `pointer()` is `origin` bytes after the first byte and `misalignment` bytes after a page start.
    Buffer(std::int64_t bytes, std::int64_t origin, std::int64_t misalignment)
        : bytes_(bytes),
          origin_(origin),
          memory_(sparse_memory(banded(origin) + banded(bytes - origin + misalignment))),
          data_(static_cast<unsigned char*>(memory_.get()) + banded(origin) + misalignment - origin),
          stored_(data_, bytes) {
        std::memset(data_ - kBand, kGuardByte, kBand);
        std::memset(end(), kGuardByte, kBand);
    }

    unsigned char* data() const { return data_; }
    unsigned char* end() const { return data_ + bytes_; }
    unsigned char* pointer() const { return data_ + origin_; }

    // False if this launch has stored one of these bytes before.
    bool store_once(std::uintptr_t address, unsigned bytes) { return stored_.add(address, bytes); }

    // The first guard byte that has changed, or null.
    const unsigned char* changed_guard() const {
        for (std::ptrdiff_t i = 0; i < kBand; ++i) {
            if (data_[i - kBand] != kGuardByte) return data_ + i - kBand;
            if (end()[i] != kGuardByte) return end() + i;
        }
        return nullptr;
    }

    static constexpr std::ptrdiff_t kBand = 256;  // guard bytes on each side

private:
    static constexpr unsigned char kGuardByte = 0xA5;

    // The size of `bytes` in whole pages, with one more that has room for the guard band.
    static std::size_t banded(std::size_t bytes) { return (bytes + 2 * kPage - 1) / kPage * kPage; }

    std::int64_t bytes_, origin_;
    SparseMemory memory_;
    unsigned char* data_;
    StoredBytes stored_;
};

// The source, then the targets.
class Buffers {
public:
    explicit Buffers(std::vector<Buffer> all) : all_(std::move(all)) {
        for (Buffer& buffer : all_) by_address_.push_back(&buffer);
        std::sort(by_address_.begin(), by_address_.end(),
                  [](const Buffer* a, const Buffer* b) { return a->data() < b->data(); });
    }

    const std::vector<Buffer>& all() const { return all_; }
    const Buffer* source() const { return &all_.front(); }

    // The buffer that contains an address, else the nearest one below it; null if there is none below.
    Buffer* of(const void* address) {
        const auto* byte = static_cast<const unsigned char*>(address);
        if (last_ && byte >= last_->data() && byte < last_->end()) return last_;
        // Guard bands separate the buffers, so an access belongs to the last buffer whose band starts before it.
        auto after = std::upper_bound(
            by_address_.begin(), by_address_.end(), byte + Buffer::kBand,
            [](const unsigned char* wanted, const Buffer* buffer) { return wanted < buffer->data(); });
        if (after == by_address_.begin()) return nullptr;
        return last_ = *--after;
    }

    // Prints the buffers that an address is near.
    void describe(const void* address, std::FILE* to) const {
        constexpr std::ptrdiff_t kNear = kPage;
        const auto* byte = static_cast<const unsigned char*>(address);
        for (std::size_t i = 0; i < all_.size() && i < kMostDescribed; ++i) {
            const Buffer& buffer = all_[i];
            if (byte < buffer.data() - kNear || byte >= buffer.end() + kNear) continue;
            std::fprintf(to, "  byte %td of %s %zu of %td bytes\n", byte - buffer.pointer(),
                         i ? "target" : "source", i ? i - 1 : 0, buffer.end() - buffer.pointer());
        }
    }

private:
    static constexpr std::size_t kMostDescribed = 40;
    std::vector<Buffer> all_;
    std::vector<Buffer*> by_address_;
    Buffer* last_ = nullptr;
};
}  // namespace host_cuda
