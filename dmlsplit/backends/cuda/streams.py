"""CUDA streams of any library as handles (cudaStream_t)."""

from types import SimpleNamespace
from typing import Any

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import value_text


def stream_handle(stream: Any, device: int) -> int:
    """The handle of a stream, which must belong to this device if it names one.

    Accepts a handle, or an object with ``__cuda_stream__`` (CUDA Python's stream protocol).
    """
    handle: Any = stream
    if type(stream) is not int and hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__()  # its version, and the handle
        handle = protocol[1] if type(protocol) is tuple and len(protocol) == 2 else None
    # CuPy would keep a larger number as its current stream, and then fail in every call.
    if type(handle) is not int or not 0 <= handle < 2**63:
        raise InvalidArgumentError(
            f"stream is {value_text(stream)}; it must be None, a CUDA stream's handle, or a "
            "stream of CuPy, torch or any library with __cuda_stream__"
        )
    owner = getattr(stream, "device_id", getattr(stream, "device_index", None))
    # CuPy's default streams exist on every device, and report device -1.
    if isinstance(owner, int) and owner not in (-1, device):
        raise InvalidArgumentError(
            f"stream belongs to cuda:{owner}; it must belong to cuda:{device}, like the operator"
        )
    return handle


def external_stream(cuda: Any, handle: int) -> Any:
    """CuPy's stream object for a handle; `cuda` is ``cupy.cuda``."""
    return cuda.Stream.from_external(SimpleNamespace(__cuda_stream__=lambda: (0, handle)))
