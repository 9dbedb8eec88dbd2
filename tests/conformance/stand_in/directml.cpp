// A stand-in for DirectML.dll, d3d12.dll and dxgi.dll, for the tests of the probe. It has none of
// Microsoft's code and says nothing about what Microsoft's DirectML does.
//
// STAND_IN_LEVEL     the highest feature level, in hexadecimal
// STAND_IN_SWITCHES  rules that are changed, and faults; see rules.hpp and below
// STAND_IN_LOG       a file that gets the fields of every descriptor that arrives

#include "abi.hpp"
#include "rules.hpp"

#include <cstdio>
#include <fstream>

extern "C" const char stand_in_mark[] = "dmlsplit stand-in for DirectML";

// The version resource of a DLL: VS_VERSION_INFO, then VS_FIXEDFILEINFO of version 1.2.3.4.
extern "C" const struct {
    char16_t name[16];
    uint32_t padding, signature, structure, high, low;
} stand_in_version{u"VS_VERSION_INFO", 0, 0xFEEF04BD, 0x10000, 1 << 16 | 2, 3 << 16 | 4};

namespace {

int operators = 0;
bool removed = false;

void log_tensor(std::ostream& out, const TensorDesc& tensor) {
    const BufferTensorDesc& desc = *tensor.desc;
    out << "[" << tensor.type << "," << desc.data_type << "," << desc.flags << "," << desc.dimension_count << ",[";
    for (uint32_t d = 0; d < desc.dimension_count; ++d) out << (d ? "," : "") << desc.sizes[d];
    out << "],";
    if (desc.strides) {
        out << "[";
        for (uint32_t d = 0; d < desc.dimension_count; ++d) out << (d ? "," : "") << desc.strides[d];
        out << "]";
    } else {
        out << "null";
    }
    out << "," << desc.total << "," << desc.alignment << "]";
}

void log_split(const OperatorDesc& desc) {
    const char* path = std::getenv("STAND_IN_LOG");
    if (!path) return;
    std::ofstream out(path, std::ios::app);
    const SplitDesc& split = *desc.desc;
    out << "[" << desc.type << ",";
    log_tensor(out, *split.input);
    out << "," << split.output_count << ",[";
    for (uint32_t i = 0; i < split.output_count; ++i) {
        out << (i ? "," : "");
        log_tensor(out, split.outputs[i]);
    }
    out << "]," << split.axis << "]\n";
}

struct Operator final : Object {
    explicit Operator(const SplitDesc& split) : compile_result(compiled(split)) {}
    Hresult compile_result;
};

struct DmlDevice : Object {
    virtual Hresult check_feature_support(
        int32_t feature, uint32_t query_size, const void* query, uint32_t size, void* out
    ) {
        if (feature == 0 && query_size == 4 && size == 4) {
            *(uint32_t*)out = device_has_type(*(const int32_t*)query);
            return ok;
        }
        if (feature != 1 || is_on("no-levels")) return unsupported;
        if (query_size != sizeof(LevelsQuery) || size != 4) return invalid_argument;
        const auto& asked = *(const LevelsQuery*)query;
        uint32_t highest = 0;
        for (uint32_t i = 0; i < asked.count; ++i)
            if (asked.levels[i] <= level_of_library() && asked.levels[i] > highest) highest = asked.levels[i];
        *(uint32_t*)out = highest;
        return ok;
    }
    virtual Hresult create_operator(const OperatorDesc* desc, const Guid& iid, void** out) {
        ++operators;
        if (is_on("noise")) std::puts("the library prints this");
        if (is_on("crash-later") && operators == 100) std::abort();
        if (is_on("crash-all")) std::abort();
        log_split(*desc);
        if (removed) return 0x887A0005;
        removed = is_on("remove-count") && !desc->desc->output_count;
        if (desc->type != 62 || !(iid == iid_operator)) return invalid_argument;
        const Hresult result = created(*desc->desc);
        if (!result) *out = new Operator(*desc->desc);
        return result;
    }
    virtual Hresult compile_operator(Operator* op, uint32_t, const Guid& iid, void** out) {
        if (!(iid == iid_compiled)) return no_interface;
        if (!op->compile_result) *out = this;
        return op->compile_result;
    }
};

struct D3d12Device : Object {
} d3d12_device;

struct Adapter : Object {
    virtual void unused_7() { __builtin_trap(); }
    virtual void unused_8() { __builtin_trap(); }
    virtual void unused_9() { __builtin_trap(); }
    virtual Hresult get_desc1(AdapterDesc* out) {
        *out = {u"Stand-in Render Driver", 5140, 140, 0, 0, 0, 0, 0, 0, 0, 2};
        return ok;
    }
} adapter;

struct Factory : Object {
    virtual void unused_7() { __builtin_trap(); }
    virtual void unused_8() { __builtin_trap(); }
    virtual void unused_9() { __builtin_trap(); }
    virtual void unused_10() { __builtin_trap(); }
    virtual void unused_11() { __builtin_trap(); }
    virtual Hresult enum_adapters1(uint32_t index, void** out) {
        *out = index == 0 ? &adapter : nullptr;
        return *out ? ok : 0x887A0002;
    }
    virtual void unused_13() { __builtin_trap(); }
    virtual void unused_14() { __builtin_trap(); }
    virtual void unused_15() { __builtin_trap(); }
    virtual void unused_16() { __builtin_trap(); }
    virtual void unused_17() { __builtin_trap(); }
    virtual void unused_18() { __builtin_trap(); }
    virtual void unused_19() { __builtin_trap(); }
    virtual void unused_20() { __builtin_trap(); }
    virtual void unused_21() { __builtin_trap(); }
    virtual void unused_22() { __builtin_trap(); }
    virtual void unused_23() { __builtin_trap(); }
    virtual void unused_24() { __builtin_trap(); }
    virtual void unused_25() { __builtin_trap(); }
    virtual void unused_26() { __builtin_trap(); }
    virtual Hresult enum_warp_adapter(const Guid& iid, void** out) {
        *out = iid == iid_adapter1 ? &adapter : nullptr;
        return *out ? ok : no_interface;
    }
} factory;

DmlDevice dml_device;

}  // namespace

extern "C" Hresult CreateDXGIFactory2(uint32_t, const Guid& iid, void** out) {
    *out = iid == iid_factory4 ? &factory : nullptr;
    return *out ? ok : no_interface;
}

extern "C" Hresult D3D12CreateDevice(Unknown* on, uint32_t level, const Guid& iid, void** out) {
    if (on != &adapter || level != 0xB000 || !(iid == iid_d3d12_device)) return invalid_argument;
    *out = &d3d12_device;
    return ok;
}

extern "C" Hresult DMLCreateDevice1(Unknown* on, uint32_t, uint32_t level, const Guid& iid, void** out) {
    if (is_on("no-device") || level != 0x1000) return unsupported;
    if (on != (Unknown*)&d3d12_device || !(iid == iid_dml_device)) return invalid_argument;
    *out = &dml_device;
    return ok;
}
