// Streams, and the rules of the legacy default stream.
#include <array>
#include <set>

#include "card.hpp"

namespace card {
namespace {
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
}  // namespace

std::set<Stream*>& streams() {
    static auto* live = new std::set<Stream*>;
    return *live;
}

std::vector<WorkPointer> dependencies(const Stream& stream) {
    std::vector<WorkPointer> after;
    follow(after, stream.last);
    if (stream.is_blocking) follow(after, legacy(stream.device).last);
    if (stream.is_legacy)
        for (const Stream* other : streams())
            if (other->is_blocking && other->device == stream.device) follow(after, other->last);
    return after;
}

Status answer(bool is_done, bool& was_asked, const WorkPointer& work) {
    if (is_done || was_asked) {
        was_asked = false;
        run_until_done({work});
        return kOk;
    }
    was_asked = true;
    return {cudaErrorNotReady};
}

Stream* stream_of(const void* handle) {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (handle == nullptr || handle == cudaStreamLegacy) return &legacy(current_device());
    if (handle == cudaStreamPerThread) return &per_thread(current_device());
    auto* stream = reinterpret_cast<Stream*>(number);
    return streams().count(stream) && stream->is_alive ? stream : nullptr;
}

Status enqueue(Stream& stream, Action action) {
    if (stream.capture) return capture(stream, std::move(action));
    if (stream.is_legacy && is_capturing_legacy_dependent(stream.device))
        return {cudaErrorStreamCaptureImplicit};
    add(stream, std::move(action), dependencies(stream));
    return kOk;
}
}  // namespace card

using namespace card;

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

// The stream's work stays queued, because CUDA's function returns at once too.
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    ENTER_DEVICE;
    STREAM(stream, handle);
    if (stream->is_legacy) return error(cudaErrorInvalidResourceHandle);
    if (stream->capture) invalidate(*stream);
    stream->is_alive = false;  // It is never freed, so its address never names another stream.
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

