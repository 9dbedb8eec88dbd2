"""One CUDA stream that is current in every measured library."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext


@contextmanager
def one_stream() -> Iterator[None]:
    """Make one stream current in CuPy and, if it can use the GPU, in torch."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, _torch_stream(stream.ptr):
        yield


def _torch_stream(handle: int) -> AbstractContextManager[object]:
    try:
        import torch
    except ImportError:
        return nullcontext()
    if not torch.cuda.is_available():
        return nullcontext()
    context: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.ExternalStream(handle))
    return context
