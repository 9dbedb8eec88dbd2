// Modules and launches. An image from nvrtc.cpp is a header followed by a shared library.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <set>

#include "card.hpp"
#include "image.hpp"
#include "kernel_module.hpp"

namespace card {
namespace {
constexpr std::size_t kMostParameterBytes = 32764;
constexpr unsigned kMostThreads = 1024;
constexpr int kRegisters = 40;  // plausible, but not those of the kernel
constexpr unsigned kMostBlocks = 2147483647;

struct Module;

struct Function {
    Module* module;
    const Kernel* kernel;
    bool is_loaded;  // code is loaded when it is first needed (CUDA_MODULE_LOADING=LAZY)
};

struct Module {
    int device;
    int file;
    void* library;
    Function function;
};

std::atomic<bool> ignores_launches = false;

std::set<Module*>& modules() {
    static auto* live = new std::set<Module*>;
    return *live;
}

Function* function_of(CUfunction handle) {
    for (Module* module : modules())
        if (reinterpret_cast<CUfunction>(&module->function) == handle) return &module->function;
    return nullptr;
}

// Each image gets a file of its own, which stays open as long as the library. If a file number were
// reused, dlopen would know the name and return the library that it opened under it before.
Status open(const void* image, Module& module) {
    const auto* header = static_cast<const ImageHeader*>(image);
    if (std::memcmp(header->magic, kImageMagic, sizeof kImageMagic)) return {CUDA_ERROR_INVALID_IMAGE};
    module.file = memfd_create("kernel", MFD_CLOEXEC);
    if (module.file < 0 || write(module.file, header + 1, header->bytes) != ssize_t(header->bytes))
        return {CUDA_ERROR_OUT_OF_MEMORY};
    const std::string path = "/proc/self/fd/" + std::to_string(module.file);
    module.library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module.library) {
        say("a module cannot be opened: %s", dlerror());
        return {CUDA_ERROR_INVALID_IMAGE};
    }
    module.function = {&module, static_cast<const Kernel*>(dlsym(module.library, "card_kernel")), false};
    return kOk;
}

// Fails during a capture, as in drivers before CUDA 12.3.
Status load(Function& function) {
    if (function.is_loaded) return kOk;
    const Status status = unsafe_in_capture();
    function.is_loaded = !status;
    return status;
}

// A launch may access memory of its own device only.
bool find_window(const void* address, int number, Window& found) {
    // The word of a load may start before the allocation that it reads.
    const Allocation* block = allocation_of(static_cast<const char*>(address) + 15);
    if (!block || !block->is_live || block->device != number) return false;
    found.low = block->address;
    found.high = block->end();
    found.to_bytes = storage(reinterpret_cast<const void*>(block->address)) -
                     reinterpret_cast<const unsigned char*>(block->address);
    return true;
}

void report(const Kernel& kernel, const Outcome& outcome) {
    char place[128] = "no device memory is near";
    if (const Allocation* near = allocation_of(outcome.address))
        std::snprintf(place, sizeof place, "byte %td of an allocation of %zu bytes on device %d",
                      static_cast<std::ptrdiff_t>(
                          reinterpret_cast<std::uintptr_t>(outcome.address) - near->address),
                      near->bytes, near->device);
    say("kernel %s: %s: %u bytes at %p, block %u, thread %u; %s", kernel.name, outcome.what,
        outcome.bytes, outcome.address, outcome.block, outcome.thread, place);
}

Action launch_of(const Function& function, int number, unsigned grid, unsigned block,
                 const void* parameters) {
    const Kernel& kernel = *function.kernel;
    Module* const module = function.module;
    const auto* first = static_cast<const unsigned char*>(parameters);
    std::vector<unsigned char> held(first, first + kernel.parameter_bytes);
    return [&kernel, module, number, grid, block, held = std::move(held)]() -> Status {
        if (!modules().count(module)) {
            say("kernel %s runs, whose module is unloaded", kernel.name);
            return {CUDA_ERROR_LAUNCH_FAILED};
        }
        const Outcome outcome = kernel.run({grid, block, number, held.data(), find_window});
        if (outcome.status) report(kernel, outcome);
        spend(number, outcome.bytes_moved);
        return {outcome.status};
    };
}
}  // namespace
}  // namespace card

using namespace card;

EXPORT void card_ignore_launches(int is_on) { ignores_launches = is_on; }

EXPORT CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
    ENTER;
    if (current_context() < 0) return error(CUDA_ERROR_INVALID_CONTEXT);
    if (device(current_context()).broken) return error(device(current_context()).broken);
    if (const Status status = unsafe_in_capture()) return error(status.number);
    auto* module = new Module{current_context(), -1, nullptr, {}};
    if (const Status status = card::open(image, *module)) return error(status.number);
    modules().insert(module);
    *handle = reinterpret_cast<CUmodule>(module);
    return kOk;
}

// Does not wait, because CUDA does not promise to: a pending launch fails when it runs.
EXPORT CUresult cuModuleUnload(CUmodule handle) {
    ENTER;
    auto* module = reinterpret_cast<Module*>(handle);
    if (!modules().count(module)) return error(CUDA_ERROR_INVALID_HANDLE);
    if (const Status status = unsafe_in_capture()) return error(status.number);
    modules().erase(module);
    // The object stays, because pending launches and graphs may still refer to it; they fail.
    return kOk;
}

EXPORT CUresult cuModuleGetFunction(CUfunction* found, CUmodule handle, const char* name) {
    ENTER;
    auto* module = reinterpret_cast<Module*>(handle);
    if (current_context() < 0) return error(CUDA_ERROR_INVALID_CONTEXT);
    if (!modules().count(module)) return error(CUDA_ERROR_INVALID_HANDLE);
    const Kernel* kernel = module->function.kernel;
    if (!kernel || std::strcmp(kernel->name, name)) return error(CUDA_ERROR_NOT_FOUND);
    *found = reinterpret_cast<CUfunction>(&module->function);
    return kOk;
}

// Loads the function's code, as in CUDA.
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    ENTER;
    Function* function = function_of(handle);
    if (!function) return error(CUDA_ERROR_INVALID_HANDLE);
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = kMostThreads; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = kRegisters; break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
        default:
            say("function attribute %d is not modelled", static_cast<int>(attribute));
            return error(CUDA_ERROR_NOT_SUPPORTED);
    }
    return error(load(*function).number);
}

EXPORT CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, CUstream on, void** parameters,
                               void** extra) {
    if (ignores_launches) return CUDA_SUCCESS;
    ENTER;
    const int number = current_context();
    if (number < 0) return error(CUDA_ERROR_INVALID_CONTEXT);
    if (device(number).broken) return error(device(number).broken);
    Function* function = function_of(handle);
    Stream* stream = stream_of(on);
    if (!function || function->module->device != number || !stream || stream->device != number)
        return error(CUDA_ERROR_INVALID_HANDLE);
    const bool is_flat = grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1;
    if (!is_flat || shared_bytes || extra) {
        say("a launch of more than one dimension, dynamic memory or extra is not modelled");
        return error(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (!grid_x || !block_x || grid_x > kMostBlocks || block_x > kMostThreads || !parameters)
        return error(CUDA_ERROR_INVALID_VALUE);
    if (function->kernel->parameter_bytes > kMostParameterBytes)
        return error(CUDA_ERROR_INVALID_VALUE);
    if (const Status status = load(*function)) return error(status.number);
    return error(enqueue(*stream, launch_of(*function, number, grid_x, block_x,
                                            parameters[0])).number);
}
