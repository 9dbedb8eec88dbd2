// The functions of NVML that dmlsplit calls, for the same two devices.
//
// No wheel of NVIDIA has NVML's header; the signatures come from its documentation.
#include <cstdio>
#include <cstring>

#include "card.hpp"

EXPORT std::size_t card_memory_used(int number);
EXPORT std::size_t card_memory_limit(int number);

namespace {
using Device = const int*;
constexpr int kSuccess = 0, kInvalidArgument = 2;
constexpr int kSmClock = 1, kMemoryClock = 2;
constexpr int kNumbers[card::kDevices] = {0, 1};

struct Memory {
    unsigned long long total, free, used;
};

struct PciInfo {
    char old_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

int write(const char* text, char* to, unsigned bytes) {
    return std::snprintf(to, bytes, "%s", text) < static_cast<int>(bytes) ? kSuccess
                                                                          : kInvalidArgument;
}
}  // namespace

EXPORT int nvmlInitWithFlags(unsigned) { return kSuccess; }
EXPORT int nvmlInit_v2() { return kSuccess; }
EXPORT int nvmlShutdown() { return kSuccess; }
EXPORT const char* nvmlErrorString(int) { return "an error of the simulated card"; }
EXPORT int nvmlSystemGetDriverVersion(char* to, unsigned bytes) { return write("0.0", to, bytes); }

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
    *version = CUDA_VERSION;
    return kSuccess;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = card::kDevices;
    return kSuccess;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* found) {
    if (index >= card::kDevices) return kInvalidArgument;
    *found = &kNumbers[index];
    return kSuccess;
}

EXPORT int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* found) {
    *found = {};
    found->bus = *device + 1;
    std::snprintf(found->bus_id, sizeof found->bus_id, "00000000:%02X:00.0", found->bus);
    return kSuccess;
}

EXPORT int nvmlDeviceGetName(Device, char* to, unsigned bytes) {
    return write("Simulated H200", to, bytes);
}

EXPORT int nvmlDeviceGetMemoryInfo(Device device, Memory* found) {
    found->total = card_memory_limit(*device);
    found->used = card_memory_used(*device);
    found->free = found->total - found->used;
    return kSuccess;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(Device, int* major, int* minor) {
    *major = 9;
    *minor = 0;
    return kSuccess;
}

EXPORT int nvmlDeviceGetMaxClockInfo(Device, int kind, unsigned* megahertz) {
    if (kind != kSmClock && kind != kMemoryClock) return kInvalidArgument;
    *megahertz = kind == kSmClock ? 1980 : 3201;
    return kSuccess;
}

EXPORT int nvmlDeviceGetMemoryBusWidth(Device, unsigned* bits) {
    *bits = 6144;
    return kSuccess;
}

EXPORT int nvmlDeviceGetNumGpuCores(Device, unsigned* cores) {
    *cores = 132 * 128;
    return kSuccess;
}
