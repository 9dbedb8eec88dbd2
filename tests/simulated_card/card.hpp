// A simulated card: CUDA's documented functions on the host, for the real CuPy to call.
//
// It is as strict as CUDA's documents allow. Work runs as late as possible (streams.cpp), an access
// outside live device memory breaks the device (memory.cpp, kernel_module.cpp), fresh memory holds
// poison, a capture refuses the calls that CUDA refuses, and a function that is not modelled fails
// with its name. Kernels are compiled twice: by the real NVRTC, to test CuPy's own options, and by
// g++ with host_cuda, to run them. The card does not show how fast anything is, or how the memory of
// a real card orders accesses between threads.
//
// Every function of CUDA's API starts with ENTER or ENTER_DEVICE. Both take the lock of the whole
// card, write to the call log and apply the failures that a test asked for; ENTER_DEVICE also
// requires a current device that works.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace card {

constexpr int kDevices = 2;

// ---- calls (calls.cpp) ----------------------------------------------------------------------

// cudaError_t and CUresult share their numbers, so one type serves both APIs.
struct Status {
    int number;
    explicit operator bool() const { return number != 0; }
    template <class E, class = std::enable_if_t<std::is_enum_v<E>>>
    operator E() const { return static_cast<E>(number); }
};

constexpr Status kOk{0};

class Call {
public:
    Call(const char* name, bool needs_device);
    Status status;

private:
    std::unique_lock<std::recursive_mutex> lock_;
};

// Records an error for cudaGetLastError; every function returns its errors through this one.
Status error(int number);

[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

#define ENTER                       \
    card::Call call(__func__, false); \
    if (call.status) return card::error(call.status.number)
#define ENTER_DEVICE                \
    card::Call call(__func__, true); \
    if (call.status) return card::error(call.status.number)

#define STREAM(name, handle)         \
    Stream* name = card::stream_of(handle); \
    if (!name) return card::error(cudaErrorInvalidResourceHandle)

// ---- devices (devices.cpp) ------------------------------------------------------------------

struct Device {
    int broken = 0;  // the error that every call returns after a fault
    double clock_ms = 0;  // the simulated time that events report
    std::size_t memory_limit = std::size_t{2} << 30;
    std::size_t memory_used = 0;
};

Device& device(int number);
int current_device();            // of the calling thread
int current_context();           // the device whose primary context is current, or -1
Status use_primary_context();    // most runtime calls start with this
void fault(int device_number, int status);
// Advances the simulated time of a device by the time that moving `bytes` takes.
void spend(int device_number, double bytes);

// ---- memory (memory.cpp) --------------------------------------------------------------------

struct Allocation {
    std::uintptr_t address;
    std::size_t bytes;
    int device;
    bool is_live;  // for stream-ordered memory, true once its stream reaches the allocation
    std::uintptr_t end() const { return address + bytes; }
};

Allocation* allocation_of(const void* address);
Status take(int device_number, std::size_t bytes, bool is_live, void** address);
void give_back(const Allocation& block);
// The host address of the bytes of device memory, for kernels and copies only.
unsigned char* storage(const void* address);
bool is_device_range(const void* address);
// Whether a range is inside one allocation (checked at the call), or inside a live one (checked when
// the work runs).
bool is_allocated(const void* address, std::size_t bytes);
bool is_live(const void* address, std::size_t bytes);

// ---- streams (streams.cpp) ------------------------------------------------------------------

using Action = std::function<Status()>;

struct Work {
    std::uint64_t number;
    int device;
    Action action;
    std::vector<std::shared_ptr<Work>> after;
    double finished_ms = 0;
    bool is_done = false;
};
using WorkPointer = std::shared_ptr<Work>;

struct Node {
    Action action;
    std::vector<std::size_t> after;
};

struct Graph {
    std::vector<Node> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_invalid = false;
};

struct Stream {
    int device;
    bool is_legacy;
    bool is_blocking;  // this stream and the legacy stream wait for each other
    unsigned flags;
    WorkPointer last;
    std::shared_ptr<Capture> capture;
    bool began_capture = false;
    std::vector<std::size_t> frontier;  // the nodes that the next node of the capture follows
    bool was_asked = false;
    bool is_alive = true;
};

// The stream of a handle; nullptr if the handle is dead or unknown.
Stream* stream_of(const void* handle);
std::set<Stream*>& streams();
// The work that the next work on `stream` must follow.
std::vector<WorkPointer> dependencies(const Stream& stream);
// Answers a query: the first one is "not ready" and lets the work run, so that it is late, but not
// forever.
Status answer(bool is_done, bool& was_asked, const WorkPointer& work);
// Appends work to a stream, or a node to the graph that it is being captured into.
Status enqueue(Stream& stream, Action action);

// ---- the queue (queue.cpp) ------------------------------------------------------------------

WorkPointer add(Stream& stream, Action action, std::vector<WorkPointer> after);
void run_until_done(const std::vector<WorkPointer>& wanted);
void run_device(int device_number);
// Drops the pending work of a broken device.
void drop_work(int device_number);

// ---- captures (capture.cpp) -----------------------------------------------------------------

// Adds a node to the graph that a stream is being captured into.
Status capture(Stream& stream, Action action);
void invalidate(Stream& stream);
// The error of a call that CUDA forbids while the thread captures a stream.
Status unsafe_in_capture();
// The error of a call that waits for a whole device.
Status waits_for_device(int device_number);
// Whether a capture forbids the legacy stream. Using the stream invalidates the capture; querying the
// stream does not.
bool is_capturing_legacy_dependent(int device_number, bool invalidates = true);

}  // namespace card
