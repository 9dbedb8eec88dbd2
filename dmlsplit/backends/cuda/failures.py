"""CUDA's errors as the library's: what could not be done, on which device, and what to do."""

from collections.abc import Callable

from dmlsplit.errors import DeviceRemovedError, DmlError, InvalidArgumentError, OutOfMemoryError

# cudaError_t and CUresult share these numbers. Source: cuda.h and driver_types.h.
OUT_OF_MEMORY = 2
INVALID_CONTEXT = 201
# An invalid handle, and everything about a stream's capture.
BAD_STREAM = frozenset({400, *range(900, 909)})
# After a fork the child cannot use CUDA, which its parent has initialised.
NOT_INITIALIZED = 3
# After these the context cannot be used again.
REMOVED = frozenset({4, 46, 101, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 999})


class CompileError(DmlError):
    """A kernel does not compile for a device; the message ends with NVRTC's log."""

    def __init__(self, kernel: str, device: int, log: object) -> None:
        super().__init__(f"kernel {kernel} does not compile for cuda:{device}; NVRTC says:\n{log}")
        self.kernel, self.device = kernel, device


def translated(
    error: Exception,
    device: int | None,
    what: str,
    needed: int | None,
    memory: Callable[[int], tuple[int, int]],
) -> DmlError:
    """The library's error for one of CUDA's, which have a ``status``, CuPy's or torch's.

    `what` could not be done, on a device if it is known; `needed` bytes were asked for, if any;
    and `memory` returns free and total bytes of a device.
    """
    status = getattr(error, "status", None)
    name = "the CUDA device" if device is None else f"cuda:{device}"
    if status in REMOVED:
        return DeviceRemovedError(
            f"{what}: {name} is gone or has failed: {error}. Fix: start a new process"
        )
    if status in BAD_STREAM:
        return InvalidArgumentError(
            f"{what} on {name}: {error}. Fix: dispatch on a stream that is alive, of "
            "this device, and whose capture allows it"
        )
    if status == NOT_INITIALIZED:
        return DmlError(
            f"{what} on {name}: {error}. A forked process cannot use CUDA if its parent did. Fix: "
            "start processes with spawn"
        )
    is_full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if device is None or (not is_full and status != OUT_OF_MEMORY):
        return DmlError(f"{what} on {name}: {error}")
    try:
        free, total = memory(device)
    except RuntimeError:
        return OutOfMemoryError(f"{what} on {name}: out of memory")
    wanted = "" if needed is None else f"{needed} bytes are needed, "
    return OutOfMemoryError(f"{what} on {name}: {wanted}{free} of {total} bytes are free")
