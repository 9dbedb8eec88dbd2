// Stream capture: a stream's work becomes the nodes of a graph, and calls that CUDA forbids fail.
#include <set>

#include "card.hpp"

namespace card {

void invalidate(Stream& stream) { stream.capture->is_invalid = true; }

Status capture(Stream& stream, Action action) {
    if (stream.capture->is_invalid) return {cudaErrorStreamCaptureInvalidated};
    auto& nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(action), stream.frontier});
    stream.frontier = {nodes.size() - 1};
    return kOk;
}

bool is_capturing_legacy_dependent(int number, bool invalidates) {
    bool found = false;
    for (Stream* stream : streams())
        if (stream->capture && stream->is_blocking && stream->device == number) {
            if (invalidates) invalidate(*stream);
            found = true;
        }
    return found;
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
    // The work of every side stream must have been joined to the stream whose capture ends.
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
    if (stream->is_legacy && is_capturing_legacy_dependent(stream->device, false))
        return error(cudaErrorStreamCaptureImplicit);
    *status = !stream->capture               ? cudaStreamCaptureStatusNone
              : stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    return kOk;
}
