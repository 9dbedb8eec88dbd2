// The binary interface of DirectML, D3D12 and DXGI, as far as the probe uses it.
//
// The declarations are our own, with fields and methods in the order of DirectML.h and d3d12.h
// (github.com/microsoft/DirectX-Headers) and dxgi.h to dxgi1_4.h. A class without
// a virtual destructor has its methods in the order of declaration, like a COM object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

using Hresult = uint32_t;
constexpr Hresult ok = 0, invalid_argument = 0x80070057, no_interface = 0x80004002;
constexpr Hresult unsupported = 0x887A0004;

struct Guid {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
    bool operator==(const Guid& other) const { return !std::memcmp(this, &other, sizeof *this); }
};

constexpr Guid iid_factory4{0x1bc6ea02, 0xef36, 0x464f, {0xbf, 0x0c, 0x21, 0xca, 0x39, 0xe5, 0x16, 0x8a}};
constexpr Guid iid_adapter1{0x29038f61, 0x3839, 0x4626, {0x91, 0xfd, 0x08, 0x68, 0x79, 0x01, 0x1a, 0x05}};
constexpr Guid iid_d3d12_device{0x189819f1, 0x1db6, 0x4b57, {0xbe, 0x54, 0x18, 0x21, 0x33, 0x9b, 0x85, 0xf7}};
constexpr Guid iid_dml_device{0x6dbd6437, 0x96fd, 0x423f, {0xa9, 0x8c, 0xae, 0x5e, 0x7c, 0x2a, 0x57, 0x3f}};
constexpr Guid iid_operator{0x26caae7a, 0x3081, 0x4633, {0x95, 0x81, 0x22, 0x6f, 0xbe, 0x57, 0x69, 0x5d}};
constexpr Guid iid_compiled{0x6b15e56a, 0xbf5c, 0x4902, {0x92, 0xd8, 0xda, 0x3a, 0x65, 0x0a, 0xfe, 0xa4}};

struct BufferTensorDesc {  // DML_BUFFER_TENSOR_DESC
    int32_t data_type, flags;
    uint32_t dimension_count;
    const uint32_t *sizes, *strides;
    uint64_t total;
    uint32_t alignment;
};
struct TensorDesc {  // DML_TENSOR_DESC
    int32_t type;
    const BufferTensorDesc* desc;
};
struct SplitDesc {  // DML_SPLIT_OPERATOR_DESC
    const TensorDesc* input;
    uint32_t output_count;
    const TensorDesc* outputs;
    uint32_t axis;
};
struct OperatorDesc {  // DML_OPERATOR_DESC
    int32_t type;
    const SplitDesc* desc;
};
struct LevelsQuery {  // DML_FEATURE_QUERY_FEATURE_LEVELS
    uint32_t count;
    const uint32_t* levels;
};
struct AdapterDesc {  // DXGI_ADAPTER_DESC1
    char16_t description[128];
    uint32_t vendor, device, subsystem, revision;
    size_t dedicated_video, dedicated_system, shared_system;
    uint32_t luid_low;
    int32_t luid_high;
    uint32_t flags;
};
static_assert(sizeof(BufferTensorDesc) == 48 && sizeof(SplitDesc) == 32 && sizeof(TensorDesc) == 16);
static_assert(offsetof(AdapterDesc, flags) == 304);

struct Unknown {  // IUnknown
    virtual Hresult query_interface(const Guid&, void** out) {
        *out = nullptr;
        return no_interface;
    }
    virtual uint32_t add_ref() { return 2; }
    virtual uint32_t release() { return 1; }
};

// IDXGIObject, ID3D12Object and IDMLObject have four methods, none of which the probe calls.
struct Object : Unknown {
    virtual void unused_3() { __builtin_trap(); }
    virtual void unused_4() { __builtin_trap(); }
    virtual void unused_5() { __builtin_trap(); }
    virtual void unused_6() { __builtin_trap(); }
};
