"""The interface to an array library, and the errors that all adapters share."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

from dmlsplit.arrays.array_view import ArrayView, device_number
from dmlsplit.arrays.packing import Packing, Shapes
from dmlsplit.arrays.slices import Slices
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda import driver
from dmlsplit.errors import DmlError, InvalidArgumentError, OutOfMemoryError

Shape: TypeAlias = tuple[int, ...]
Allocation: TypeAlias = tuple[list[Any], list[int]]  # arrays, and their addresses


class Requirement(NamedTuple):
    """The memory that an array must have, in the order of the last fields of an `ArrayView`."""

    shape: Shape
    strides: Shape  # in bytes
    type: str
    item_bytes: int
    device: str
    read_only: bool = False  # True: it may be read-only


@dataclass(frozen=True, slots=True, eq=False)
class Requirements:
    """The memory that the outputs of a split must have."""

    outputs: list[Requirement]
    sizes: list[int]  # bytes
    # What libraries compare their arrays with, if they have a faster way than views.
    native: dict[Any, Any] = field(default_factory=dict)


class Adapter(Protocol):
    """One array library. The methods that have a body are right for NumPy and CuPy."""

    def view(self, array: Any, name: str) -> ArrayView:
        """Describe the memory of an array; see `dmlsplit.arrays.view`."""

    def empty(self, like: ArrayView, packing: Packing, stream: Stream | None = None) -> Allocation:
        """Packed arrays on the device of `like`, and the address of the first element of each.

        They are for work on the stream; None is the current one.
        If there is not enough memory, an OutOfMemoryError says so, and on CUDA how much is free.
        """

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        """A view of a packed array's memory, with strides in bytes."""

    def copies(self, array: Any, slices: Slices) -> list[Any] | None:
        """Packed copies of the pieces of a small array; None if the engine must make them."""
        return None

    def exact_addresses(self, arrays: Sequence[Any], required: Requirements) -> list[int] | None:
        """The addresses of arrays of this library that are exactly as required; None in doubt.

        No other check of outputs is faster. A new field of `Requirement` must be compared here too.
        """
        return None

    def current_stream(self, array: Any) -> Callable[[], int] | None:
        """A callable that gives the library's current stream; None for CuPy's, or on the CPU."""
        return None

    def record_stream(self, array: Any, stream: Stream) -> None:
        """Tell the library to keep an array's memory until the work queued on a stream is done."""
        return

    def packed(self, array: Any, name: str) -> Any:
        """The array itself if its elements are in row-major order, else a copy that is."""
        return array if array.flags.c_contiguous else array.copy()

    def reinterpret(self, packed: Any, dtype: Any, shape: Shape) -> Any:
        """The array's bytes with another shape and type, by its name in NumPy or the library."""
        return packed.reshape(-1).view(dtype).reshape(shape)


def allocate(
    like: ArrayView, make: Callable[[Iterator[Shape], Any], list[Any]], shapes: Shapes, dtype: Any
) -> list[Any]:
    """``make(shapes, dtype)``; an error gives the size of the array that did not fit."""
    rest = iter(shapes)
    try:
        return make(rest, dtype)
    except (MemoryError, RuntimeError) as error:
        size = prod(shapes[-1 - len(list(rest))]) * int(dtype.itemsize)
        raise not_allocated(like, size, error) from None


def not_allocated(like: ArrayView, size: int, error: Exception) -> DmlError:
    """The error for an output of `size` bytes that does not fit in memory."""
    if like.device == "cpu":
        return OutOfMemoryError(f"an output of {size} bytes does not fit in memory")
    what = "an output cannot be allocated"
    return driver.load().translated(error, device_number(like.device), what, size)


def package_of(value: object) -> str:
    """The package that an object's type comes from."""
    return type(value).__module__.partition(".")[0]


def type_name(value: object) -> str:
    """The name of an object's type with its package, such as ``torch.Tensor``."""
    return f"{package_of(value)}.{type(value).__qualname__}".removeprefix("builtins.")


def not_shared(array: Any, name: str, error: Exception) -> InvalidArgumentError:
    """The error for an array whose library does not share its memory."""
    return InvalidArgumentError(
        f"{name}, a {type_name(array)}, cannot be shared without a copy: {error}. "
        "Fix: view its bytes as an integer type of the same size"
    )
