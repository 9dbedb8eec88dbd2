// The names of the CUDA errors that the card returns or tests ask for.
//
// Names and numbers are those of NVIDIA's headers; the messages are the card's own.
#include "card.hpp"

namespace {
struct Name {
    int number;
    const char* runtime;
    const char* driver;
};

#define NAMES(runtime, driver) {runtime, #runtime, #driver}, 
static_assert(int{cudaErrorLaunchFailure} == int{CUDA_ERROR_LAUNCH_FAILED});

constexpr Name names[] = {
    NAMES(cudaSuccess, CUDA_SUCCESS)
    NAMES(cudaErrorInvalidValue, CUDA_ERROR_INVALID_VALUE)
    NAMES(cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY)
    NAMES(cudaErrorInitializationError, CUDA_ERROR_NOT_INITIALIZED)
    NAMES(cudaErrorCudartUnloading, CUDA_ERROR_DEINITIALIZED)
    NAMES(cudaErrorInvalidConfiguration, cudaErrorInvalidConfiguration)
    NAMES(cudaErrorInsufficientDriver, cudaErrorInsufficientDriver)
    NAMES(cudaErrorDevicesUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE)
    NAMES(cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE)
    NAMES(cudaErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE)
    NAMES(cudaErrorInvalidKernelImage, CUDA_ERROR_INVALID_IMAGE)
    NAMES(cudaErrorDeviceUninitialized, CUDA_ERROR_INVALID_CONTEXT)
    NAMES(cudaErrorNoKernelImageForDevice, CUDA_ERROR_NO_BINARY_FOR_GPU)
    NAMES(cudaErrorECCUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE)
    NAMES(cudaErrorInvalidResourceHandle, CUDA_ERROR_INVALID_HANDLE)
    NAMES(cudaErrorIllegalState, CUDA_ERROR_ILLEGAL_STATE)
    NAMES(cudaErrorSymbolNotFound, CUDA_ERROR_NOT_FOUND)
    NAMES(cudaErrorNotReady, CUDA_ERROR_NOT_READY)
    NAMES(cudaErrorIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS)
    NAMES(cudaErrorLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    NAMES(cudaErrorLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT)
    NAMES(cudaErrorContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED)
    NAMES(cudaErrorAssert, CUDA_ERROR_ASSERT)
    NAMES(cudaErrorMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS)
    NAMES(cudaErrorLaunchFailure, CUDA_ERROR_LAUNCH_FAILED)
    NAMES(cudaErrorNotPermitted, CUDA_ERROR_NOT_PERMITTED)
    NAMES(cudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED)
    NAMES(cudaErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    NAMES(cudaErrorStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    NAMES(cudaErrorStreamCaptureMerge, CUDA_ERROR_STREAM_CAPTURE_MERGE)
    NAMES(cudaErrorStreamCaptureUnmatched, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
    NAMES(cudaErrorStreamCaptureUnjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    NAMES(cudaErrorStreamCaptureIsolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    NAMES(cudaErrorStreamCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    NAMES(cudaErrorCapturedEvent, CUDA_ERROR_CAPTURED_EVENT)
    NAMES(cudaErrorStreamCaptureWrongThread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    NAMES(cudaErrorUnknown, CUDA_ERROR_UNKNOWN)
};

const Name* find(int number) {
    for (const Name& name : names)
        if (name.number == number) return &name;
    return nullptr;
}

constexpr const char* kText = "an error of the simulated card";
}  // namespace

EXPORT const char* cudaGetErrorName(cudaError_t status) {
    const Name* name = find(status);
    return name ? name->runtime : "unrecognized error code";
}

EXPORT const char* cudaGetErrorString(cudaError_t) { return kText; }

EXPORT CUresult cuGetErrorName(CUresult status, const char** text) {
    const Name* name = find(status);
    *text = name ? name->driver : "unrecognized error code";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult, const char** text) {
    *text = kText;
    return CUDA_SUCCESS;
}
