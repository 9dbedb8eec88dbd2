// Stream-ordered memory: live from the moment its stream reaches the allocation until it reaches the
// free.
//
// Each device has one pool, the device itself. Allocations inside a capture are not modelled.
#include "card.hpp"

namespace card {
namespace {
Status refuse_capture(const Stream& stream) {
    if (!stream.capture) return kOk;
    say("stream-ordered memory inside a capture is not modelled");
    return {cudaErrorNotSupported};
}

cudaMemPool_t pool_of(int number) { return reinterpret_cast<cudaMemPool_t>(&device(number)); }
}  // namespace
}  // namespace card

using namespace card;

EXPORT cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t on) {
    ENTER_DEVICE;
    STREAM(stream, on);
    if (const Status status = refuse_capture(*stream)) return error(status.number);
    *address = nullptr;
    if (!bytes) return kOk;
    if (const Status status = take(stream->device, bytes, false, address))
        return error(status.number);
    return error(enqueue(*stream, [at = *address] {
                     allocation_of(at)->is_live = true;
                     return kOk;
                 }).number);
}

EXPORT cudaError_t cudaFreeAsync(void* address, cudaStream_t on) {
    ENTER_DEVICE;
    STREAM(stream, on);
    if (const Status status = refuse_capture(*stream)) return error(status.number);
    if (!address) return kOk;
    const Allocation* block = allocation_of(address);
    if (!block || block->address != reinterpret_cast<std::uintptr_t>(address))
        return error(cudaErrorInvalidValue);
    return error(enqueue(*stream, [address]() -> Status {
                     if (!is_live(address, 1)) return {cudaErrorIllegalAddress};
                     give_back(*allocation_of(address));
                     return kOk;
                 }).number);
}

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int number) {
    ENTER;
    *pool = pool_of(number);
    return kOk;
}

EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int number) {
    ENTER;
    *pool = pool_of(number);
    return kOk;
}

EXPORT cudaError_t cudaDeviceSetMemPool(int number, cudaMemPool_t pool) {
    ENTER;
    return error(pool == pool_of(number) ? cudaSuccess : cudaErrorInvalidValue);
}
