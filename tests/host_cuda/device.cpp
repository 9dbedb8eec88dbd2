// Runs kernels of this program as a GPU would, and reports what they did.
//
//   PROGRAM KERNEL JOB RESULT
//
// It runs the kernel of that number on the launch in the file JOB, and writes the file RESULT. After a
// fault, it describes the fault instead. The files are streams of little-endian int64 and raw bytes,
// which harness.py writes and reads.
// The kernel reports its accesses: those to global memory through the functions of cuda_on_host.hpp,
// and, if it was compiled with -fsanitize=thread, those to shared memory through the hooks of the
// thread sanitizer at the end of this file. An access that a GPU does not allow, or whose result
// depends on the order of threads (hazards.hpp), ends the run; the others are counted (counts.hpp).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "buffers.hpp"
#include "counts.hpp"
#include "fibers.hpp"
#include "hazards.hpp"

uint3 threadIdx, blockIdx, blockDim, gridDim;

// Outside its stack, a kernel's only variables in this range are shared arrays and those of this file.
extern "C" char __bss_start, _end;

namespace host_cuda {
extern const Kernel kernels[];

namespace {
Counts counts;
std::vector<Record> records;  // one for each thread of the block
std::unique_ptr<Buffers> buffers;
std::unique_ptr<SharedHazards> hazards;
const Kernel* kernel;
std::vector<unsigned char> parameters;
std::map<unsigned, Fibers> fibers;  // by the threads of a block

[[noreturn]] void stop() {
    std::fflush(stderr);
    std::_Exit(70);
}

[[noreturn]] void fault(const char* what, const void* address, unsigned bytes) {
    std::fprintf(stderr, "fault: %s: %u bytes at %p, block %u, thread %u\n", what, bytes, address,
                 blockIdx.x, threadIdx.x);
    if (buffers) buffers->describe(address, stderr);
    stop();
}

std::FILE* job;
std::FILE* result;

void read_bytes(void* to, std::size_t bytes) {
    if (std::fread(to, 1, bytes, job) != bytes) std::fprintf(stderr, "job ends early\n"), std::_Exit(72);
}

std::int64_t read_int() {
    std::int64_t value;
    read_bytes(&value, sizeof value);
    return value;
}

Buffer read_buffer() {
    const std::int64_t size = read_int(), origin = read_int(), misalignment = read_int();
    Buffer buffer(size, origin, misalignment);
    const std::int64_t patches = read_int();
    for (std::int64_t i = 0; i < patches; ++i) {
        const std::int64_t offset = read_int(), bytes = read_int();
        read_bytes(buffer.data() + offset, bytes);
    }
    return buffer;
}

std::unique_ptr<Buffers> read_buffers() {
    std::vector<Buffer> all;
    for (std::int64_t left = read_int(); left; --left) all.push_back(read_buffer());
    return std::make_unique<Buffers>(std::move(all));
}

void write_windows() {
    for (const Buffer& buffer : buffers->all()) {
        const std::int64_t windows = read_int();
        for (std::int64_t i = 0; i < windows; ++i) {
            const std::int64_t offset = read_int(), bytes = read_int();
            std::fwrite(buffer.data() + offset, 1, bytes, result);
        }
    }
}

void pack_parameters() {
    parameters.clear();
    parameters.reserve(kernel->parameter_bytes);
    for (const Buffer& buffer : buffers->all()) {
        const unsigned char* pointer = buffer.pointer();
        const auto* bytes = reinterpret_cast<const unsigned char*>(&pointer);
        parameters.insert(parameters.end(), bytes, bytes + sizeof pointer);
    }
    // The kernel's struct may have room for more pointers than there are buffers.
    const std::int64_t arguments = read_int();
    if (kernel->parameter_bytes < parameters.size() + arguments || kernel->parameter_bytes % 8)
        fault("the kernel's parameters have no room for its buffers and arguments", nullptr, kernel->parameter_bytes);
    parameters.resize(kernel->parameter_bytes);
    read_bytes(parameters.data() + parameters.size() - arguments, arguments);
}

void run_blocks(const std::vector<std::int64_t>& blocks, bool counting) {
    records.resize(blockDim.x);
    if (!hazards) hazards = std::make_unique<SharedHazards>(&__bss_start, &_end);
    Fibers& threads =
        fibers.try_emplace(blockDim.x, blockDim.x, [] { kernel->run(parameters.data()); }).first->second;
    for (const std::int64_t block : blocks) {
        for (Record& record : records) record.clear();
        hazards->begin_block(blockDim.x);
        if (!threads.run_block(static_cast<unsigned>(block)))
            fault("threads of a block part at __syncthreads", nullptr, 0);
        if (counting) count_block(records, counts);
    }
}

void run_job() {
    counts = {};
    gridDim = {static_cast<unsigned>(read_int()), 1, 1};
    blockDim = {static_cast<unsigned>(read_int()), 1, 1};
    const bool counting = read_int();
    std::vector<std::int64_t> blocks(read_int());
    for (std::int64_t& block : blocks) block = read_int();
    buffers = read_buffers();
    pack_parameters();
    run_blocks(blocks, counting);
    for (const Buffer& buffer : buffers->all())
        if (const unsigned char* changed = buffer.changed_guard()) fault("guard changed", changed, 1);
    std::fwrite(&counts, 1, sizeof counts, result);
    write_windows();
}
}  // namespace

namespace {
void print(__int128 number) {
    const auto size = static_cast<unsigned long long>(number < 0 ? -number : number);
    std::fprintf(stderr, "%s%llu", number < 0 ? "-" : "", size);
}
}  // namespace

// checked.hpp calls this if the source's own types would have wrapped.
[[noreturn]] void wrapped(unsigned bits, __int128 a, const char* op, __int128 b) {
    std::fprintf(stderr, "fault: ");
    print(a);
    if (op) std::fprintf(stderr, " %s ", op), print(b);
    std::fprintf(stderr, " wraps at %u bits: block %u, thread %u\n", bits, blockIdx.x, threadIdx.x);
    stop();
}

__attribute__((noinline)) void barrier() {
    hazards->wait();
    Fibers::running->wait_at(__builtin_return_address(0));
}

__attribute__((noinline)) const void* access(const void* address, unsigned bytes, bool is_store) {
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    const auto* byte = static_cast<const unsigned char*>(address);
    if (where % bytes) fault("misaligned address", address, bytes);
    Buffer* buffer = buffers->of(address);
    // A load may fetch an aligned word with at least one byte of the source, because no page ends
    // inside such a word. A store must stay inside its target.
    const std::ptrdiff_t slack = is_store ? 0 : bytes - 1;
    if (!buffer || byte + slack < buffer->data() || byte + bytes > buffer->end() + slack)
        fault(is_store ? "store out of bounds" : "load out of bounds", address, bytes);
    if (is_store == (buffer == buffers->source()))
        fault(is_store ? "store to the source" : "load from a target", address, bytes);
    if (is_store && !buffer->store_once(where, bytes))
        fault("target byte stored twice in one launch", address, bytes);
    records[threadIdx.x].add({__builtin_return_address(0), where, bytes, is_store, buffer});
    return address;
}

namespace {
template <class T>
bool is_of(const char* byte, const T& object) {
    return byte >= reinterpret_cast<const char*>(&object) && byte < reinterpret_cast<const char*>(&object + 1);
}

void check_shared(const char* address, unsigned bytes, bool is_store) {
    const Hazard hazard = is_store ? hazards->store(address, bytes, threadIdx.x)
                                   : hazards->load(address, bytes, threadIdx.x);
    if (!hazard.what) return;
    if (!hazard.is_race) fault(hazard.what, address, bytes);
    char what[128];
    std::snprintf(what, sizeof what, "shared memory race: threads %u and %u, %s without a barrier between",
                  hazard.other, threadIdx.x, hazard.what);
    fault(what, address, bytes);
}

void shared_access(const void* address, unsigned bytes, bool is_store, const void* site) {
    const auto* byte = static_cast<const char*>(address);
    if (byte < &__bss_start || byte >= &_end) return;
    if (is_of(byte, threadIdx) || is_of(byte, blockIdx) || is_of(byte, blockDim) || is_of(byte, gridDim)) return;
    check_shared(byte, bytes, is_store);
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    records[threadIdx.x].shared.push_back({site, where, bytes, is_store, nullptr});
}
}  // namespace
}  // namespace host_cuda

#define HOST_CUDA_HOOK(name, bytes, is_store)                                             \
    extern "C" void __tsan_##name(void* address) {                                        \
        host_cuda::shared_access(address, bytes, is_store, __builtin_return_address(0)); \
    }
#define HOST_CUDA_HOOKS(bytes)                       \
    HOST_CUDA_HOOK(read##bytes, bytes, false)        \
    HOST_CUDA_HOOK(write##bytes, bytes, true)        \
    HOST_CUDA_HOOK(unaligned_read##bytes, bytes, false) \
    HOST_CUDA_HOOK(unaligned_write##bytes, bytes, true)
HOST_CUDA_HOOKS(1)
HOST_CUDA_HOOKS(2)
HOST_CUDA_HOOKS(4)
HOST_CUDA_HOOKS(8)
HOST_CUDA_HOOKS(16)
extern "C" void __tsan_read_range(void* address, unsigned long bytes) {
    host_cuda::shared_access(address, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, unsigned long bytes) {
    host_cuda::shared_access(address, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

int main(int argc, char** argv) {
    using namespace host_cuda;
    if (argc != 4) return 64;
    kernel = &kernels[std::atoi(argv[1])];
    job = std::fopen(argv[2], "rb");
    result = std::fopen(argv[3], "wb");
    if (!job || !result) return std::perror(argv[2]), 66;
    run_job();
    std::fclose(job);
    std::fclose(result);
    std::_Exit(0);
}
