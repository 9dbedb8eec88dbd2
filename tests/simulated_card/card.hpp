// A simulated card: CUDA's documented functions on the host, for the real CuPy to call.
//
// It is as strict as a real one may be. Work runs as late as CUDA allows (streams.cpp), an access
// outside live device memory breaks the device (memory.cpp, kernel_module.cpp), fresh memory holds
// poison, a capture refuses what CUDA's does, and a function that is not modelled refuses by name.
// Kernels are compiled twice: by the real NVRTC, so that it has seen CuPy's own options, and by g++
// with the words of host_cuda, to be run. Nothing here tells how fast anything is, or how the
// memory of a real card orders accesses between threads.
//
// Every function of CUDA's API begins with ENTER or ENTER_DEVICE: one lock for the whole card, the
// call log, failures that a test asked for, and for ENTER_DEVICE a current device that still works.
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

// CARD_IDLE: modules are loaded and launches checked as ever, but no kernel runs and memory is not
// filled; calls are counted, not listed. For a measurement of what the host does in many calls.
bool is_idle();

// Every error leaves through here, so that cudaGetLastError knows it.
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
    int broken = 0;  // the error that every call returns since a fault
    double clock_ms = 0;  // of the simulated time that events tell
    std::size_t memory_limit = std::size_t{2} << 30;
    std::size_t memory_used = 0;
};

Device& device(int number);
int current_device();            // of the calling thread
int current_context();           // device whose primary context is current, -1 if none is
Status use_primary_context();    // what most runtime calls do first
void fault(int device_number, int status);
// Lets the simulated time of a device go on, by what moving so many bytes takes.
void spend(int device_number, double bytes);

// ---- memory (memory.cpp) --------------------------------------------------------------------

struct Allocation {
    std::uintptr_t address;
    std::size_t bytes;
    int device;
    bool is_live;  // stream-ordered memory lives from when its stream reaches the allocation
    std::uintptr_t end() const { return address + bytes; }
};

Allocation* allocation_of(const void* address);
Status take(int device_number, std::size_t bytes, bool is_live, void** address);
void give_back(const Allocation& block);
// Where the bytes of device memory lie on the host; kernels and copies alone may go there.
unsigned char* storage(const void* address);
bool is_device_range(const void* address);
// Inside one allocation, as a call may say; inside one that work may touch when it runs.
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
    bool is_blocking;  // waits for the legacy stream, and it for this one
    unsigned flags;
    WorkPointer last;
    std::shared_ptr<Capture> capture;
    bool began_capture = false;
    std::vector<std::size_t> frontier;  // nodes of the capture that the next one follows
    bool was_asked = false;
    bool is_alive = true;
};

// The stream of a handle, nullptr for one that is dead or unknown.
Stream* stream_of(const void* handle);
std::set<Stream*>& streams();
// What everything put on `stream` from now on has to follow.
std::vector<WorkPointer> dependencies(const Stream& stream);
// The first question is answered "not ready" and lets the work run: so late, but not for ever.
Status answer(bool is_done, bool& was_asked, const WorkPointer& work);
// Appends work to a stream, or a node to the graph that it is being captured into.
Status enqueue(Stream& stream, Action action);

// ---- the queue (queue.cpp) ------------------------------------------------------------------

WorkPointer add(Stream& stream, Action action, std::vector<WorkPointer> after);
void run_until_done(const std::vector<WorkPointer>& wanted);
void run_device(int device_number);
// What a device that broke will never do.
void drop_work(int device_number);

// ---- captures (capture.cpp) -----------------------------------------------------------------

// Adds to the graph that a stream is being captured into.
Status capture(Stream& stream, Action action);
void invalidate(Stream& stream);
// The error of a call that CUDA does not allow while the thread captures a stream.
Status unsafe_in_capture();
// The error of a call that waits for a whole device.
Status waits_for_device(int device_number);
// Whether a capture forbids the legacy stream. To use the stream makes it invalid, to ask does not.
bool is_capturing_legacy_dependent(int device_number, bool invalidates = true);

}  // namespace card
