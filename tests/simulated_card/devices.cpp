// Two devices with the figures of an H200, and the primary context of each thread.
//
// CARD_CAPABILITY (90) and CARD_DRIVER (the CUDA version that the driver supports) change them for
// tests of installations; with CARD_FASTEST, the second device is the faster one, which CUDA lists
// first unless CUDA_DEVICE_ORDER is PCI_BUS_ID. CUDA_VISIBLE_DEVICES hides and orders them, by number.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "card.hpp"

namespace card {
namespace {
constexpr double kBytesPerMs = 4.8e9;  // the bandwidth of an H200: plausible, but not measured

Device devices[kDevices];
// A thread uses device 0 until it chooses another, and has no context until a call needs one.
thread_local int chosen = 0;
thread_local int context = -1;

CUcontext handle_of(int number) {
    return number < 0 ? nullptr : reinterpret_cast<CUcontext>(&devices[number]);
}

int number_of(CUcontext handle) {
    for (int i = 0; i < kDevices; ++i)
        if (handle_of(i) == handle) return i;
    return -1;
}

int setting(const char* name, int usual) {
    const char* value = std::getenv(name);
    return value ? std::atoi(value) : usual;
}

int capability() { return setting("CARD_CAPABILITY", 90); }
int driver_version() { return setting("CARD_DRIVER", CUDART_VERSION); }

// NVML's index of each device, by CUDA's ordinal.
const std::vector<int>& visible() {
    static const std::vector<int> found = [] {
        const char* listed = std::getenv("CUDA_VISIBLE_DEVICES");
        const char* order = std::getenv("CUDA_DEVICE_ORDER");
        const bool is_by_bus = order && !std::strcmp(order, "PCI_BUS_ID");
        const int first = std::getenv("CARD_FASTEST") && !is_by_bus ? 1 : 0;
        std::istringstream words(listed ? listed : "0,1");
        std::vector<int> numbers;
        for (std::string word; std::getline(words, word, ',');)
            numbers.push_back(std::stoi(word) ^ first);
        return numbers;
    }();
    return found;
}

bool is_device(int number) { return number >= 0 && number < static_cast<int>(visible().size()); }
}  // namespace

Device& device(int number) { return devices[number]; }
int current_device() { return chosen; }
int current_context() { return context; }

Status use_primary_context() {
    context = chosen;
    return {devices[chosen].broken};
}

void spend(int number, double bytes) { devices[number].clock_ms += bytes / kBytesPerMs; }

void fault(int number, int status) {
    if (!devices[number].broken) devices[number].broken = status;
}
}  // namespace card

using namespace card;

EXPORT CUresult cuInit(unsigned) {
    ENTER;
    return kOk;
}

// NVRTC 13.5 asks a driver for tables of functions that CUDA does not document. It compiles without
// them where the driver says no, and reads a null pointer where this function is missing.
EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
    ENTER;
    *version = driver_version();
    return kOk;
}

EXPORT CUresult cuDeviceGetCount(int* count) {
    ENTER;
    *count = static_cast<int>(visible().size());
    return kOk;
}

EXPORT cudaError_t cudaGetDeviceCount(int* count) {
    ENTER;
    if (driver_version() / 1000 < CUDART_VERSION / 1000) return error(cudaErrorInsufficientDriver);
    *count = static_cast<int>(visible().size());
    if (!*count) return error(cudaErrorNoDevice);
    return kOk;
}

EXPORT cudaError_t cudaGetDevice(int* number) {
    ENTER;
    *number = chosen;
    return kOk;
}

// Since CUDA 12, this creates the primary context and makes it current.
EXPORT cudaError_t cudaSetDevice(int number) {
    ENTER;
    if (!is_device(number)) return error(cudaErrorInvalidDevice);
    chosen = number;
    return error(use_primary_context().number);
}

EXPORT cudaError_t cudaDriverGetVersion(int* version) {
    ENTER;
    *version = driver_version();
    return kOk;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
    ENTER;
    *version = CUDART_VERSION;
    return kOk;
}

// Source: NVIDIA's data sheet of the H200, and the CUDA C++ Programming Guide for 9.0.
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int number) {
    ENTER;
    if (!is_device(number)) return error(cudaErrorInvalidDevice);
    std::memset(found, 0, sizeof *found);
    std::snprintf(found->name, sizeof found->name, "Simulated H200");
    found->totalGlobalMem = devices[number].memory_limit;
    found->sharedMemPerBlock = 48 << 10;
    found->sharedMemPerBlockOptin = 227 << 10;
    found->sharedMemPerMultiprocessor = 228 << 10;
    found->reservedSharedMemPerBlock = 1 << 10;
    found->regsPerBlock = found->regsPerMultiprocessor = 1 << 16;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->maxThreadsPerMultiProcessor = 2048;
    found->maxBlocksPerMultiProcessor = 32;
    found->multiProcessorCount = 132;
    found->l2CacheSize = 50 << 20;
    found->memoryBusWidth = 6144;
    found->totalConstMem = 64 << 10;
    found->major = capability() / 10;
    found->minor = capability() % 10;
    for (int i = 0; i < 3; ++i) found->maxThreadsDim[i] = i < 2 ? 1024 : 64;
    for (int i = 0; i < 3; ++i) found->maxGridSize[i] = i ? 65535 : 2147483647;
    found->unifiedAddressing = found->concurrentKernels = found->canMapHostMemory = 1;
    found->asyncEngineCount = 3;
    found->pciDomainID = 0;
    found->pciBusID = visible()[number] + 1;
    found->pciDeviceID = 0;
    return kOk;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
    ENTER;
    if (!is_device(number)) return error(cudaErrorInvalidDevice);
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = capability() / 10; return kOk;
        case cudaDevAttrComputeCapabilityMinor: *value = capability() % 10; return kOk;
        case cudaDevAttrMultiProcessorCount: *value = 132; return kOk;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return kOk;
        case cudaDevAttrClockRate: *value = 1980000; return kOk;
        case cudaDevAttrMemoryClockRate: *value = 3201000; return kOk;
        case cudaDevAttrL2CacheSize: *value = 50 << 20; return kOk;
        case cudaDevAttrGpuOverlap: *value = 1; return kOk;
        case cudaDevAttrMaxTexture1DLinearWidth: *value = 1 << 28; return kOk;
        case cudaDevAttrSingleToDoublePrecisionPerfRatio: *value = 2; return kOk;
        case cudaDevAttrKernelExecTimeout:
        case cudaDevAttrComputeMode: *value = 0; return kOk;
        case cudaDevAttrMemoryPoolsSupported:
        case cudaDevAttrManagedMemory: *value = 1; return kOk;
        case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrPageableMemoryAccess: *value = 0; return kOk;
        default: break;
    }
    say("device attribute %d is not modelled", static_cast<int>(attribute));
    return error(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int number) {
    ENTER;
    if (!is_device(number)) return error(cudaErrorInvalidDevice);
    if (std::snprintf(text, bytes, "0000:%02X:00.0", visible()[number] + 1) >= bytes)
        return error(cudaErrorInvalidValue);
    return kOk;
}

EXPORT CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice number) {
    return static_cast<CUresult>(cudaDeviceGetPCIBusId(text, bytes, number));
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int number, int peer) {
    ENTER;
    if (!is_device(number) || !is_device(peer)) return error(cudaErrorInvalidDevice);
    *can = 0;
    return kOk;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* found) {
    ENTER;
    *found = handle_of(context);
    return kOk;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext wanted) {
    ENTER;
    if (wanted && number_of(wanted) < 0) return error(CUDA_ERROR_INVALID_CONTEXT);
    context = number_of(wanted);
    if (context >= 0) chosen = context;
    return kOk;
}

EXPORT CUresult cuCtxGetDevice(CUdevice* number) {
    ENTER;
    if (context < 0) return error(CUDA_ERROR_INVALID_CONTEXT);
    *number = context;
    return kOk;
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* found) {
    ENTER_DEVICE;
    const Stream* stream = stream_of(handle);
    if (!stream) return error(CUDA_ERROR_INVALID_HANDLE);
    *found = handle_of(stream->device);
    return kOk;
}

EXPORT void card_break(int number, int status) {
    if (devices[number].broken && !status) drop_work(number);
    devices[number].broken = status;
}

EXPORT void card_set_memory_limit(int number, std::size_t bytes) {
    devices[number].memory_limit = bytes;
}

EXPORT std::size_t card_memory_limit(int number) { return devices[number].memory_limit; }
EXPORT std::size_t card_memory_used(int number) { return devices[number].memory_used; }
