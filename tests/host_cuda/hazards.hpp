// Detection of data races in a single run, whatever the order of its threads.
//
// Shared memory: between two barriers, nothing orders the threads of a block. If one of them stores a
// byte, it races with every other thread that loads or stores that byte. Each byte therefore records
// the interval between barriers in which it was last stored and loaded, its writer, and two distinct
// readers. Two suffice: if any thread but the next writer has read the byte, one of them is such a
// thread. Intervals are numbered across all blocks, so that no block needs to clear the records.
//
// Global memory: a launch must not store a byte of a target twice, so there is one bit for each byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparse.hpp"

namespace host_cuda {

// The error of an access to shared memory; `what` is null if there is none.
struct Hazard {
    const char* what = nullptr;
    bool is_race = false;
    unsigned other = 0;  // the thread that the access races with
};

class SharedHazards {
public:
    // Watches the bytes from `low` up to, but not including, `high`.
    SharedHazards(const char* low, const char* high)
        : low_(low),
          memory_(sparse_memory((high - low) * sizeof(Byte))),
          bytes_(static_cast<Byte*>(memory_.get())) {}

    void begin_block(unsigned threads) {
        first_ = ++now_;
        threads_ = threads;
        waiting_ = 0;
    }

    // Counts the threads that wait at the barrier; the last one starts the next interval.
    void wait() {
        if (++waiting_ < threads_) return;
        waiting_ = 0;
        ++now_;
    }

    Hazard load(const char* address, std::size_t count, unsigned thread) {
        Byte* const begin = bytes_ + (address - low_);
        // One stored byte suffices, because kernels shift or mask the other bytes of a word away.
        bool is_stored = false;
        for (Byte* byte = begin; byte < begin + count; ++byte) {
            if (byte->stored == now_ && byte->writer != thread)
                return {"load after store", true, byte->writer};
            is_stored |= byte->stored >= first_;
            note_reader(*byte, thread);
        }
        if (!is_stored) return {"shared memory loaded before its block stores it"};
        return {};
    }

    Hazard store(const char* address, std::size_t count, unsigned thread) {
        Byte* const begin = bytes_ + (address - low_);
        for (Byte* byte = begin; byte < begin + count; ++byte) {
            if (byte->stored == now_ && byte->writer != thread)
                return {"store after store", true, byte->writer};
            if (byte->loaded == now_)
                for (const std::uint16_t reader : byte->readers)
                    if (reader != thread) return {"store after load", true, reader};
            byte->stored = now_;
            byte->writer = static_cast<std::uint16_t>(thread);
        }
        return {};
    }

private:
    using Interval = std::uint32_t;

    struct Byte {
        Interval stored, loaded;  // the last ones; 0 means never
        std::uint16_t writer;
        std::uint16_t readers[2];  // equal if there is only one
    };

    void note_reader(Byte& byte, unsigned thread) const {
        const auto reader = static_cast<std::uint16_t>(thread);
        if (byte.loaded != now_) byte.readers[0] = byte.readers[1] = reader;
        if (byte.readers[0] != reader) byte.readers[1] = reader;
        byte.loaded = now_;
    }

    const char* low_;
    SparseMemory memory_;
    Byte* bytes_;
    Interval now_ = 0, first_ = 0;
    unsigned threads_ = 0, waiting_ = 0;
};

// The bytes of one target that a launch has stored so far.
class StoredBytes {
public:
    StoredBytes(const unsigned char* data, std::size_t bytes)
        : first_word_(reinterpret_cast<std::uintptr_t>(data) / kWordBits),
          memory_(sparse_memory((bytes / kWordBits + 2) * 8)),
          words_(static_cast<std::uint64_t*>(memory_.get())) {}

    // False if one of the bytes is stored already. An aligned access is within one word of bits.
    bool add(std::uintptr_t address, unsigned count) {
        std::uint64_t& word = words_[address / kWordBits - first_word_];
        const std::uint64_t bits = ((std::uint64_t{1} << count) - 1) << address % kWordBits;
        if (word & bits) return false;
        word |= bits;
        return true;
    }

private:
    static constexpr std::uintptr_t kWordBits = 64;
    std::uintptr_t first_word_;
    SparseMemory memory_;
    std::uint64_t* words_;
};
}  // namespace host_cuda
