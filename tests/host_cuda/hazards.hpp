// Bytes that two threads touch in an order that nothing fixes: found in one run, whatever its order.
//
// Shared memory. Nothing orders the threads of a block between two barriers, so there a byte that
// one of them stores is its own: it races with any other that loads or stores the byte. Each byte
// knows in which interval between barriers it was last stored and loaded, by which writer, and by
// which two readers: where any thread but the next writer has read it, one of two distinct readers
// has. Intervals are numbered over all blocks, so that no block clears what another one left.
//
// Global memory. A launch stores no byte of a target twice: one bit for each byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparse.hpp"

namespace host_cuda {

// What is wrong with an access to shared memory; `what` is null where nothing is.
struct Hazard {
    const char* what = nullptr;
    bool is_race = false;
    unsigned other = 0;  // the thread that the access races with
};

class SharedHazards {
public:
    // Watches the bytes from `low` to before `high`.
    SharedHazards(const char* low, const char* high)
        : low_(low), bytes_(static_cast<Byte*>(sparse_memory((high - low) * sizeof(Byte)))) {}

    void begin_block(unsigned threads) {
        first_ = ++now_;
        threads_ = threads;
        waiting_ = 0;
    }

    // One more thread waits at the barrier; the last one opens the next interval.
    void wait() {
        if (++waiting_ < threads_) return;
        waiting_ = 0;
        ++now_;
    }

    Hazard load(const char* address, std::size_t count, unsigned thread) {
        Byte* const begin = bytes_ + (address - low_);
        // One stored byte makes a word fit to load: kernels shift or mask the others away.
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
        Interval stored, loaded;  // when last; 0 is never
        std::uint16_t writer;
        std::uint16_t readers[2];  // both the same where there is one
    };

    void note_reader(Byte& byte, unsigned thread) const {
        const auto reader = static_cast<std::uint16_t>(thread);
        if (byte.loaded != now_) byte.readers[0] = byte.readers[1] = reader;
        if (byte.readers[0] != reader) byte.readers[1] = reader;
        byte.loaded = now_;
    }

    const char* low_;
    Byte* bytes_;
    Interval now_ = 0, first_ = 0;
    unsigned threads_ = 0, waiting_ = 0;
};

// The bytes of one target that a launch has stored so far.
class StoredBytes {
public:
    StoredBytes(const unsigned char* data, std::size_t bytes)
        : first_word_(reinterpret_cast<std::uintptr_t>(data) / kWordBits),
          words_(static_cast<std::uint64_t*>(sparse_memory((bytes / kWordBits + 2) * 8))) {}

    // False where one of them is stored already. An aligned access lies within one word of bits.
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
    std::uint64_t* words_;
};
}  // namespace host_cuda
