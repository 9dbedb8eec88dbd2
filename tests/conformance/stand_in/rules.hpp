// The rules of a Split, written a second time from Microsoft's pages. Switches change some of them,
// so that the tests can produce each difference that `check` reports.
#pragma once

#include "abi.hpp"

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

inline bool is_on(const std::string& name) {
    const char* value = std::getenv("STAND_IN_SWITCHES");
    std::istringstream names(value ? value : "");
    for (std::string each; std::getline(names, each, ',');)
        if (each == name) return true;
    return false;
}

inline uint32_t level_of_library() {
    const char* value = std::getenv("STAND_IN_LEVEL");
    return value ? std::strtoul(value, nullptr, 16) : 0x6400;
}

inline bool device_has_type(int type) { return type >= 1 && type <= 13 && !(type == 9 && is_on("no-float64")); }

inline unsigned bits_of(int type) {
    constexpr unsigned bits[] = {0, 32, 16, 32, 16, 8, 32, 16, 8, 64, 64, 64, 4, 4};
    return type >= 0 && type <= 13 ? bits[type] : 0;
}

// Source: the section "Tensor support" of DML_SPLIT_OPERATOR_DESC.
inline bool level_takes_type(uint32_t level, int type) {
    if (type >= 1 && type <= 8) return level >= 0x2100 || (type != 5 && type != 8);
    return type >= 9 && type <= 11 && level >= 0x4100;
}
inline bool level_takes_rank(uint32_t level, uint32_t rank) {
    if (level < 0x3000) return rank == 4 || (rank == 5 && is_on("rank-5"));
    return rank >= 1 && rank <= 8;
}

inline bool overlaps(const BufferTensorDesc& tensor) {
    std::vector<uint64_t> reached{0};
    for (uint32_t d = 0; d < tensor.dimension_count; ++d) {
        std::vector<uint64_t> more;
        for (uint32_t i = 0; i < tensor.sizes[d]; ++i)
            for (uint64_t at : reached) more.push_back(at + uint64_t(i) * tensor.strides[d]);
        reached = more;
    }
    return std::set<uint64_t>(reached.begin(), reached.end()).size() != reached.size();
}

inline bool tensor_is_bad(const BufferTensorDesc& tensor, bool is_output) {
    if (!bits_of(tensor.data_type) || tensor.dimension_count < 1 || tensor.dimension_count > 8) return true;
    unsigned __int128 count = 1, last = 0;
    for (uint32_t d = 0; d < tensor.dimension_count; ++d) {
        if (!tensor.sizes[d]) return true;
        count *= tensor.sizes[d];
        if (tensor.strides) last += (unsigned __int128)(tensor.sizes[d] - 1) * tensor.strides[d];
    }
    if (!tensor.strides) last = count - 1;
    constexpr uint32_t most = 0xFFFFFFFF;
    const auto bytes = ((last + 1) * bits_of(tensor.data_type) + 7) / 8;
    if (count > most || last > most || tensor.total < bytes) return true;
    if (tensor.total % 4 && !is_on("late-dword")) return true;
    const uint32_t element = bits_of(tensor.data_type) / 8;
    const uint32_t alignment = tensor.alignment;
    if (alignment && (alignment < element || alignment & (alignment - 1))) return true;
    if (is_output && tensor.flags & 1) return true;
    return is_output && tensor.strides && !is_on("take-overlap") && overlaps(tensor);
}

inline bool matches(const BufferTensorDesc& output, const BufferTensorDesc& input, uint32_t axis) {
    if (output.data_type != input.data_type || output.dimension_count != input.dimension_count) return false;
    for (uint32_t d = 0; d < input.dimension_count; ++d)
        if (d != axis && output.sizes[d] != input.sizes[d]) return false;
    return true;
}

// The result of CreateOperator.
inline Hresult created(const SplitDesc& split) {
    const uint32_t level = level_of_library();
    const BufferTensorDesc& input = *split.input->desc;
    if (split.axis >= input.dimension_count) {
        if (is_on("crash-axis") && input.dimension_count == 4) *(volatile int*)nullptr = 1;
        return invalid_argument;
    }
    if (!split.output_count) {
        while (is_on("hang-count")) sleep(1);
        return invalid_argument;
    }
    if (tensor_is_bad(input, false)) return invalid_argument;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < split.output_count; ++i) {
        const BufferTensorDesc& output = *split.outputs[i].desc;
        if (tensor_is_bad(output, true)) return invalid_argument;
        if (!matches(output, input, split.axis)) return invalid_argument;
        sum += output.sizes[split.axis];
    }
    if (sum != input.sizes[split.axis] && !is_on("any-sum")) return invalid_argument;
    if (!level_takes_rank(level, input.dimension_count)) return invalid_argument;
    if (!level_takes_type(level, input.data_type)) return is_on("unsupported-type") ? unsupported : invalid_argument;
    return device_has_type(input.data_type) ? ok : invalid_argument;
}

// The result of CompileOperator for an operator that was created.
inline Hresult compiled(const SplitDesc& split) {
    bool is_odd = split.input->desc->total % 4;
    for (uint32_t i = 0; i < split.output_count; ++i) is_odd |= split.outputs[i].desc->total % 4 != 0;
    return is_odd && is_on("late-dword") ? invalid_argument : ok;
}
