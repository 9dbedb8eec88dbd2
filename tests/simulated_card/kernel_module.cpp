// Linked with every kernel: runs the blocks of a launch and checks each access to memory.
//
// Kernels without barriers call their threads one after the other, which is fast; the others run
// them as fibers.
#include "kernel_module.hpp"

#include "../host_cuda/fibers.hpp"

uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace card {
extern void (*const kernel_entry)(const void* parameters);
extern const bool kernel_has_barriers;

namespace {
const Launch* launch;
Outcome outcome;
Window windows[2];  // the memory of the last load and of the last store

struct Stop {};

[[noreturn]] void stop(int status, const char* what, const void* address, unsigned bytes) {
    outcome = {status, what, address, bytes, blockIdx.x, threadIdx.x, outcome.bytes_moved};
    throw Stop{};
}

void thread_body() {
    if (outcome.status) return;
    try {
        kernel_entry(launch->parameters);
    } catch (const Stop&) {
    }
}

constexpr int kIllegalAddress = 700, kMisalignedAddress = 716, kLaunchFailed = 719;

void run_fibers() {
    host_cuda::Fibers fibers(launch->block, thread_body);
    for (unsigned block = 0; block < launch->grid && !outcome.status; ++block)
        if (!fibers.run_block(block) && !outcome.status)
            outcome = {kLaunchFailed, "threads part at __syncthreads", nullptr, 0, block, 0, 0};
}

void run_threads() {
    for (unsigned block = 0; block < launch->grid; ++block) {
        blockIdx = {block, 0, 0};
        for (unsigned thread = 0; thread < launch->block; ++thread) {
            threadIdx = {thread, 0, 0};
            thread_body();
        }
        if (outcome.status) return;
    }
}
}  // namespace

Outcome run_kernel(const Launch& wanted) {
    launch = &wanted;
    outcome = {};
    windows[0] = windows[1] = {};
    gridDim = {wanted.grid, 1, 1};
    blockDim = {wanted.block, 1, 1};
    kernel_has_barriers ? run_fibers() : run_threads();
    return outcome;
}
}  // namespace card

namespace host_cuda {

__attribute__((noinline)) void barrier() {
    Fibers::running->wait_at(__builtin_return_address(0));
    if (card::outcome.status) throw card::Stop{};
}

// A load may fetch an aligned word with at least one byte of an allocation; a store must stay inside
// an allocation.
const void* access(const void* address, unsigned bytes, bool is_store) {
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    if (first % bytes) card::stop(card::kMisalignedAddress, "misaligned address", address, bytes);
    card::Window& window = card::windows[is_store];
    const unsigned slack = is_store ? 0 : bytes - 1;
    const auto is_inside = [&] {
        return first + slack >= window.low && first + bytes <= window.high + slack;
    };
    if (!is_inside() &&
        (!card::launch->find(address, card::launch->device, window) || !is_inside()))
        card::stop(card::kIllegalAddress, is_store ? "store out of bounds" : "load out of bounds",
                   address, bytes);
    card::outcome.bytes_moved += bytes;
    return reinterpret_cast<const void*>(first + window.to_bytes);
}
}  // namespace host_cuda
