"""Types of what callers pass: arrays and streams of any library."""

from typing import Any, Protocol, TypeAlias, TypeVar


class DlpackArray(Protocol):
    """An array with DLPack: of NumPy, CuPy, PyTorch, JAX and others.

    Source: "Python Specification for DLPack" of the array API standard.
    """

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class StandardArray(Protocol):
    """An array of the array API standard, such as JAX's, whose stubs lack `__dlpack_device__`."""

    def __dlpack__(self) -> Any: ...
    def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...


class CudaArray(Protocol):
    """An array with the CUDA array interface, such as Numba's.

    Source: "CUDA Array Interface" in Numba's documentation.
    """

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class DaskArray(Protocol):
    """A dask.array, which `dmlsplit.split` splits lazily."""

    def __dask_graph__(self) -> Any: ...


class CudaStream(Protocol):
    """A stream with CUDA Python's protocol, such as those of CuPy 14 and PyTorch 2.10.

    `__cuda_stream__` returns the version of the protocol, 0, and the stream's handle (CUDA Python,
    "cuda.core.Stream").
    """

    def __cuda_stream__(self) -> tuple[int, int]: ...


Array: TypeAlias = DlpackArray | StandardArray | CudaArray
Stream: TypeAlias = CudaStream | int  # an int is a handle (cudaStream_t)
# A call returns arrays of the type that it was given.
ArrayT = TypeVar("ArrayT", bound=Array)
AnyArrayT = TypeVar("AnyArrayT", bound=Array | DaskArray)
