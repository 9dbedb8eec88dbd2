// CUDA graphs: the nodes of a capture, each run as late as its dependents allow.
#include <set>

#include "card.hpp"

namespace card {
namespace {
using GraphPointer = std::shared_ptr<Graph>;

std::set<GraphPointer*>& executables() {
    static auto* live = new std::set<GraphPointer*>;
    return *live;
}

// Runs the nodes. Of those whose predecessors are done, the one with the highest number is next.
Status run_nodes(const Graph& graph) {
    std::vector<bool> is_done(graph.nodes.size());
    for (std::size_t done = 0; done < graph.nodes.size(); ++done) {
        for (std::size_t i = graph.nodes.size(); i-- > 0;) {
            if (is_done[i]) continue;
            const auto& after = graph.nodes[i].after;
            bool is_free = true;
            for (const std::size_t before : after) is_free = is_free && is_done[before];
            if (!is_free) continue;
            if (const Status status = graph.nodes[i].action()) return status;
            is_done[i] = true;
            break;
        }
    }
    return kOk;
}
}  // namespace
}  // namespace card

using namespace card;

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                        unsigned long long) {
    ENTER_DEVICE;
    auto* executable = new GraphPointer(*reinterpret_cast<GraphPointer*>(graph));
    executables().insert(executable);
    *made = reinterpret_cast<cudaGraphExec_t>(executable);
    return kOk;
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t on) {
    ENTER_DEVICE;
    Stream* stream = stream_of(on);
    auto* executable = reinterpret_cast<GraphPointer*>(handle);
    if (!stream || !executables().count(executable)) return error(cudaErrorInvalidResourceHandle);
    return error(
        enqueue(*stream, [graph = *executable] { return run_nodes(*graph); }).number);
}

EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    ENTER_DEVICE;
    return kOk;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER;
    delete reinterpret_cast<GraphPointer*>(graph);
    return kOk;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    ENTER;
    auto* executable = reinterpret_cast<GraphPointer*>(handle);
    if (!executables().erase(executable)) return error(cudaErrorInvalidResourceHandle);
    delete executable;
    return kOk;
}
