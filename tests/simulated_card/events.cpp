// Events. An event holds the last work of a stream at the time of its recording; in a capture, it holds
// the last nodes.
#include <set>

#include "card.hpp"

namespace card {
namespace {
struct Event {
    unsigned flags;
    WorkPointer work;
    bool was_recorded = false;
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> nodes;
    bool was_asked = false;
};

std::set<Event*>& events() {
    static auto* live = new std::set<Event*>;
    return *live;
}

Event* event_of(cudaEvent_t handle) {
    auto* event = reinterpret_cast<Event*>(handle);
    return events().count(event) ? event : nullptr;
}

bool is_finished(const Event& event) { return !event.work || event.work->is_done; }
}  // namespace
}  // namespace card

using namespace card;

#define EVENT(name, handle)        \
    Event* name = event_of(handle); \
    if (!name) return error(cudaErrorInvalidResourceHandle)

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
    if (event->work) after.push_back(event->work);
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
