// The counts of a block's instructions, sectors, lines and wavefronts of shared memory.
//
// A request consists of the accesses that the 32 lanes of a warp make at one instruction: those from
// the same call site, in the same iteration. Sectors have 32 bytes, lines 128. `block` sectors and
// lines are the distinct ones of a block, on the assumption that its own re-reads hit L1 and those of
// other blocks miss. The 32 banks of shared memory serve a request in as many wavefronts as the
// busiest bank has words to deliver.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace host_cuda {
constexpr std::size_t kWarp = 32;
constexpr std::uintptr_t kSector = 32;
constexpr std::uintptr_t kLineSectors = 4;
constexpr std::uintptr_t kWord = 4;
constexpr std::uintptr_t kBanks = 32;

struct Access {
    const void* site;
    std::uintptr_t address;
    std::uint32_t bytes;
    bool is_store;
    const void* buffer;  // that contains the address; null for shared memory
};

// The accesses of one thread in the running block.
struct Record {
    std::vector<Access> accesses, shared;

    void add(const Access& access) { accesses.push_back(access); }

    void clear() {
        accesses.clear();
        shared.clear();
    }
};

// Written to the result byte by byte: harness.Counts has the same fields.
struct Counts {
    std::int64_t load_instructions, store_instructions, load_bytes, store_bytes;
    std::int64_t store_bytes_16, store_requests, store_request_targets;
    std::int64_t load_block_sectors, store_block_sectors, load_block_lines, store_block_lines;
    std::int64_t shared_requests, shared_wavefronts;
};

using Sectors = std::vector<std::uintptr_t>;

inline void add_sectors(const Access& access, Sectors& sectors) {
    const std::uintptr_t last = (access.address + access.bytes - 1) / kSector;
    for (std::uintptr_t s = access.address / kSector; s <= last; ++s) sectors.push_back(s);
}

inline std::int64_t distinct(Sectors& sectors) {
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    return static_cast<std::int64_t>(sectors.size());
}

inline std::int64_t distinct_lines(Sectors& sectors) {
    for (std::uintptr_t& sector : sectors) sector /= kLineSectors;
    return distinct(sectors);
}

struct Lane {
    const void* site;
    std::uint32_t round;
    Access access;
    auto key() const { return std::tie(site, round); }
};

// All accesses of a warp's lanes, sorted by instruction.
inline std::vector<Lane> lanes_of_warp(const std::vector<Record>& records, std::size_t first,
                                       std::vector<Access> Record::*kind) {
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

inline void count_requests(const std::vector<Record>& records, Counts& counts) {
    std::set<const void*> buffers;
    for (std::size_t first = 0; first < records.size(); first += kWarp) {
        const std::vector<Lane> lanes = lanes_of_warp(records, first, &Record::accesses);
        for (std::size_t i = 0; i < lanes.size();) {
            const bool is_store = lanes[i].access.is_store;
            const auto key = lanes[i].key();
            buffers.clear();
            for (; i < lanes.size() && lanes[i].key() == key; ++i) buffers.insert(lanes[i].access.buffer);
            counts.store_requests += is_store;
            if (is_store) counts.store_request_targets += buffers.size();
        }
    }
}

// A wavefront serves lanes whose accesses have at most 128 bytes together: a quarter of the warp if
// each access has 16 bytes. Lanes that read the same word share it.
inline std::int64_t wavefronts(const std::vector<Lane>& lanes, std::size_t begin, std::size_t end) {
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

inline void count_shared(const std::vector<Record>& records, Counts& counts) {
    for (std::size_t first = 0; first < records.size(); first += kWarp) {
        const std::vector<Lane> lanes = lanes_of_warp(records, first, &Record::shared);
        for (std::size_t i = 0, begin = 0; i < lanes.size(); begin = i) {
            while (i < lanes.size() && lanes[i].key() == lanes[begin].key()) ++i;
            counts.shared_requests += 1;
            counts.shared_wavefronts += wavefronts(lanes, begin, i);
        }
    }
}

inline void count_block(const std::vector<Record>& records, Counts& counts) {
    Sectors loaded, stored;
    for (const Record& record : records) {
        for (const Access& access : record.accesses) {
            add_sectors(access, access.is_store ? stored : loaded);
            (access.is_store ? counts.store_instructions : counts.load_instructions) += 1;
            (access.is_store ? counts.store_bytes : counts.load_bytes) += access.bytes;
            if (access.is_store && access.bytes == 16) counts.store_bytes_16 += 16;
        }
    }
    counts.load_block_sectors += distinct(loaded);
    counts.store_block_sectors += distinct(stored);
    counts.load_block_lines += distinct_lines(loaded);
    counts.store_block_lines += distinct_lines(stored);
    count_requests(records, counts);
    count_shared(records, counts);
}
}  // namespace host_cuda
