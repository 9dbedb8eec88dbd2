// Streams and events: work waits in a queue until something makes it run, as late as CUDA allows.
//
// Each piece of work knows the work it must follow: the one before it on its stream, events its
// stream waits for, and what the rules of the legacy default stream add. A call that waits runs
// what it waits for and what that follows. Work on other streams runs at two different times, as a
// test chooses: not at all ("late"), or before it ("early"). Either is legal, so a result that
// depends on the choice lacks a dependency.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "card.hpp"

namespace card {
namespace {
constexpr double kWorkMs = 0.002;  // simulated time of one piece of work

struct Event {
    unsigned flags;
    WorkPointer work;
    bool was_recorded = false;
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> nodes;
    bool was_asked = false;
};

std::map<std::uint64_t, WorkPointer>& pending() {
    static auto* works = new std::map<std::uint64_t, WorkPointer>;
    return *works;
}

std::set<Stream*>& streams() {
    static auto* live = new std::set<Stream*>;
    return *live;
}

std::set<Event*>& events() {
    static auto* live = new std::set<Event*>;
    return *live;
}

std::uint64_t works_made = 0;
bool runs_others_first = false;

Stream& legacy(int device_number) {
    static auto* made = new std::array<Stream, kDevices>;
    Stream& stream = (*made)[device_number];
    stream.device = device_number;
    stream.is_legacy = true;
    return stream;
}

Stream& per_thread(int device_number) {
    thread_local std::array<Stream*, kDevices> made{};
    Stream*& stream = made[device_number];
    if (!stream) {
        stream = new Stream{device_number, false, true, cudaStreamDefault};
        streams().insert(stream);
    }
    return *stream;
}

void follow(std::vector<WorkPointer>& after, const WorkPointer& work) {
    if (work && !work->is_done) after.push_back(work);
}

// What everything put on `stream` from now on has to follow.
std::vector<WorkPointer> dependencies(const Stream& stream) {
    std::vector<WorkPointer> after;
    follow(after, stream.last);
    if (stream.is_blocking) follow(after, legacy(stream.device).last);
    if (stream.is_legacy)
        for (const Stream* other : streams())
            if (other->is_blocking && other->device == stream.device) follow(after, other->last);
    return after;
}

WorkPointer add(Stream& stream, Action action, std::vector<WorkPointer> after) {
    auto work = std::make_shared<Work>();
    work->number = ++works_made;
    work->device = stream.device;
    work->action = std::move(action);
    work->after = std::move(after);
    pending()[work->number] = work;
    return stream.last = work;
}

void run(Work& work) {
    Device& owner = device(work.device);
    if (!owner.broken) {
        const Status status = work.action();
        if (status) fault(work.device, status.number);
    }
    owner.clock_ms += kWorkMs;
    work.finished_ms = owner.clock_ms;
    work.is_done = true;
    work.action = nullptr;
    work.after.clear();
    pending().erase(work.number);
}

using Ordered = std::map<std::uint64_t, WorkPointer>;

Ordered with_what_they_follow(std::vector<WorkPointer> wanted) {
    Ordered found;
    while (!wanted.empty()) {
        const WorkPointer work = wanted.back();
        wanted.pop_back();
        if (!work || work->is_done || !found.emplace(work->number, work).second) continue;
        wanted.insert(wanted.end(), work->after.begin(), work->after.end());
    }
    return found;
}

// Work that nothing in `needed` comes before, in order.
std::vector<WorkPointer> free_of(const Ordered& needed) {
    std::vector<WorkPointer> others;
    std::set<std::uint64_t> bound;
    for (const auto& [number, work] : pending()) {
        const bool waits = std::any_of(work->after.begin(), work->after.end(), [&](auto& before) {
            return needed.count(before->number) || bound.count(before->number);
        });
        if (needed.count(number)) continue;
        if (waits) bound.insert(number);
        else others.push_back(work);
    }
    return others;
}

void invalidate(Stream& stream) { stream.capture->is_invalid = true; }

// Adds to the graph that a stream is being captured into.
Status capture(Stream& stream, Action action) {
    if (stream.capture->is_invalid) return {cudaErrorStreamCaptureInvalidated};
    auto& nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(action), stream.frontier});
    stream.frontier = {nodes.size() - 1};
    return kOk;
}

Event* event_of(cudaEvent_t handle) {
    auto* event = reinterpret_cast<Event*>(handle);
    return events().count(event) ? event : nullptr;
}

bool is_finished(const Event& event) { return !event.work || event.work->is_done; }

// The first question is answered "not ready" and lets the work run: so late, but not for ever.
Status answer(bool is_done, bool& was_asked, const WorkPointer& work) {
    if (is_done || was_asked) {
        was_asked = false;
        run_until_done({work});
        return kOk;
    }
    was_asked = true;
    return {cudaErrorNotReady};
}
}  // namespace

Stream* stream_of(const void* handle) {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (handle == nullptr || handle == cudaStreamLegacy) return &legacy(current_device());
    if (handle == cudaStreamPerThread) return &per_thread(current_device());
    auto* stream = reinterpret_cast<Stream*>(number);
    return streams().count(stream) ? stream : nullptr;
}

bool is_capturing_legacy_dependent(int number) {
    bool found = false;
    for (Stream* stream : streams())
        if (stream->capture && stream->is_blocking && stream->device == number) {
            invalidate(*stream);
            found = true;
        }
    return found;
}

Status enqueue(Stream& stream, Action action) {
    if (stream.capture) return capture(stream, std::move(action));
    if (stream.is_legacy && is_capturing_legacy_dependent(stream.device))
        return {cudaErrorStreamCaptureImplicit};
    add(stream, std::move(action), dependencies(stream));
    return kOk;
}

void run_until_done(const std::vector<WorkPointer>& wanted) {
    const Ordered needed = with_what_they_follow(wanted);
    if (needed.empty()) return;
    if (runs_others_first)
        for (const WorkPointer& work : free_of(needed)) run(*work);
    for (const auto& [number, work] : needed) run(*work);
}

void run_device(int number) {
    std::vector<WorkPointer> wanted;
    for (const auto& [unused, work] : pending())
        if (work->device == number) wanted.push_back(work);
    run_until_done(wanted);
}

Status unsafe_in_capture() {
    for (Stream* stream : streams()) {
        if (!stream->capture || stream->capture->mode == cudaStreamCaptureModeRelaxed) continue;
        const bool is_own = stream->capture->thread == std::this_thread::get_id();
        if (stream->capture->mode == cudaStreamCaptureModeThreadLocal && !is_own) continue;
        invalidate(*stream);
        return {cudaErrorStreamCaptureUnsupported};
    }
    return kOk;
}

Status waits_for_device(int number) {
    for (Stream* stream : streams())
        if (stream->capture && stream->device == number) {
            invalidate(*stream);
            return {cudaErrorStreamCaptureUnsupported};
        }
    run_device(number);
    return {device(number).broken};
}
}  // namespace card

using namespace card;

#define STREAM(name, handle)         \
    Stream* name = stream_of(handle); \
    if (!name) return error(cudaErrorInvalidResourceHandle)
#define EVENT(name, handle)        \
    Event* name = event_of(handle); \
    if (!name) return error(cudaErrorInvalidResourceHandle)

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
    ENTER_DEVICE;
    if (flags > cudaStreamNonBlocking) return error(cudaErrorInvalidValue);
    auto* stream = new Stream{current_device(), false, flags == cudaStreamDefault, flags};
    streams().insert(stream);
    *handle = reinterpret_cast<cudaStream_t>(stream);
    return kOk;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t* handle) {
    return cudaStreamCreateWithFlags(handle, cudaStreamDefault);
}

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int) {
    return cudaStreamCreateWithFlags(handle, flags);
}

EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    *flags = stream->flags;
    return kOk;
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    *priority = 0;
    return kOk;
}

// Its work stays queued: the real call returns at once, too.
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    if (stream->is_legacy) return error(cudaErrorInvalidResourceHandle);
    if (stream->capture) invalidate(*stream);
    streams().erase(stream);  // Never freed: its address may not name another stream.
    return kOk;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    if (stream->capture) {
        invalidate(*stream);
        return error(cudaErrorStreamCaptureUnsupported);
    }
    if (stream->is_legacy && is_capturing_legacy_dependent(stream->device))
        return error(cudaErrorStreamCaptureImplicit);
    run_until_done(dependencies(*stream));
    return error(device(stream->device).broken);
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    if (stream->capture) {
        invalidate(*stream);
        return error(cudaErrorStreamCaptureUnsupported);
    }
    const bool is_done = !stream->last || stream->last->is_done;
    return error(answer(is_done, stream->was_asked, stream->last).number);
}

EXPORT cudaError_t cudaDeviceSynchronize() {
    ENTER_DEVICE;
    return error(waits_for_device(current_device()).number);
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t which, unsigned) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    EVENT(event, which);
    if (event->capture) {
        if (stream->capture && stream->capture != event->capture)
            return error(cudaErrorStreamCaptureMerge);
        stream->capture = event->capture;
        stream->frontier.insert(stream->frontier.end(), event->nodes.begin(), event->nodes.end());
        return kOk;
    }
    if (stream->capture) {
        invalidate(*stream);
        return error(cudaErrorStreamCaptureIsolation);
    }
    std::vector<WorkPointer> after = dependencies(*stream);
    follow(after, event->work);
    add(*stream, [] { return kOk; }, std::move(after));
    return kOk;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
    ENTER_DEVICE;
    auto* event = new Event{flags};
    events().insert(event);
    *handle = reinterpret_cast<cudaEvent_t>(event);
    return kOk;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t* handle) {
    return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    ENTER_DEVICE;
    EVENT(event, handle);
    events().erase(event);
    return kOk;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
    ENTER_DEVICE;
    EVENT(event, handle);
    STREAM(stream, on);
    event->was_recorded = true;
    event->capture = stream->capture;
    event->nodes = stream->frontier;
    if (stream->capture) return kOk;
    const Status status = enqueue(*stream, [] { return kOk; });
    if (!status) event->work = stream->last;
    return error(status.number);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t handle) {
    ENTER_DEVICE;
    EVENT(event, handle);
    if (event->capture) return error(cudaErrorCapturedEvent);
    return error(answer(is_finished(*event), event->was_asked, event->work).number);
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    ENTER_DEVICE;
    EVENT(event, handle);
    if (event->capture) return error(cudaErrorCapturedEvent);
    if (event->work) {
        run_until_done({event->work});
        return error(device(event->work->device).broken);
    }
    return kOk;
}

EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    ENTER_DEVICE;
    EVENT(first, start);
    EVENT(last, end);
    if (!first->was_recorded || !last->was_recorded ||
        (first->flags | last->flags) & cudaEventDisableTiming)
        return error(cudaErrorInvalidResourceHandle);
    if (!is_finished(*first) || !is_finished(*last)) return error(cudaErrorNotReady);
    *milliseconds = static_cast<float>(last->work->finished_ms - first->work->finished_ms);
    return kOk;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    if (stream->is_legacy) return error(cudaErrorStreamCaptureUnsupported);
    if (stream->capture) return error(cudaErrorIllegalState);
    stream->capture = std::make_shared<Capture>();
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->began_capture = true;
    stream->frontier.clear();
    return kOk;
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    *graph = nullptr;
    const std::shared_ptr<Capture> ended = stream->capture;
    if (!ended) return error(cudaErrorIllegalState);
    if (!stream->began_capture) return error(cudaErrorStreamCaptureUnmatched);
    if (ended->mode != cudaStreamCaptureModeRelaxed && ended->thread != std::this_thread::get_id())
        return error(cudaErrorStreamCaptureWrongThread);
    // Every node of the side streams must lead to the stream that ends.
    std::set<std::size_t> joined;
    std::vector<std::size_t> open = stream->frontier;
    while (!open.empty()) {
        const std::size_t node = open.back();
        open.pop_back();
        if (!joined.insert(node).second) continue;
        const auto& before = ended->graph->nodes[node].after;
        open.insert(open.end(), before.begin(), before.end());
    }
    for (Stream* other : streams()) {
        if (other->capture != ended) continue;
        other->capture = nullptr;
        other->began_capture = false;
        other->frontier.clear();
    }
    if (ended->is_invalid) return error(cudaErrorStreamCaptureInvalidated);
    if (joined.size() != ended->graph->nodes.size()) return error(cudaErrorStreamCaptureUnjoined);
    *graph = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Graph>(ended->graph));
    return kOk;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    if (stream->is_legacy && is_capturing_legacy_dependent(stream->device))
        return error(cudaErrorStreamCaptureImplicit);
    *status = !stream->capture               ? cudaStreamCaptureStatusNone
              : stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    return kOk;
}

EXPORT void card_run_others_first(int is_on) { runs_others_first = is_on; }
EXPORT std::size_t card_pending() { return pending().size(); }
