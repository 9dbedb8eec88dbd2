"""The interface to an array library, and the errors that all adapters share."""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

from dmlsplit.arrays.array_view import ArrayView, device_number
from dmlsplit.arrays.packing import Cut, Packing, Shapes
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda import driver
from dmlsplit.errors import DmlError, InvalidArgumentError, OutOfMemoryError

Shape: TypeAlias = Sequence[int]
Made: TypeAlias = tuple[list[Any], list[int]]  # arrays, and their addresses


class Adapter(Protocol):
    """One array library. The methods that have a body are right for NumPy and CuPy."""

    repeats: bool = False  # whether the engine's prepared copy is faster than `copy_into`

    def view(self, array: Any, name: str) -> ArrayView:
        """Describe the memory of an array; see `dmlsplit.arrays.view`."""

    def empty(self, like: ArrayView, wanted: Packing, stream: Stream | None = None) -> Made:
        """Packed arrays on the device of `like`, and the address of the first element of each.

        They are for work on the stream; None is the current one.
        If there is not enough memory, an OutOfMemoryError says so, and on CUDA how much is free.
        """

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        """A view of a packed array's memory, with strides in bytes."""

    def copies(self, array: Any, cut: Cut) -> list[Any] | None:
        """Packed copies of the pieces of a small array; None if the engine must make them."""
        return None

    def packed_addresses(
        self, like: Any, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> list[int] | None:
        """Fast path: the addresses of packed outputs with the type and the device of `like`.

        None if a few quick checks do not prove that; each output then needs a view.
        """
        return None

    def copy_into(self, array: Any, cut: Cut, outputs: Sequence[Any]) -> bool:
        """Copy a small array's pieces into outputs of its library and type; False if it cannot."""
        return False

    def current_stream(self, array: Any) -> Callable[[], int] | None:
        """A callable that gives the library's current stream; None for CuPy's, or on the CPU."""
        return None

    def write_count(self, arrays: Sequence[Any]) -> Callable[[], None] | None:
        """A callable that reports a write to those arrays that track writes; None if none do."""
        return None

    # Bytes of memory of a packed array.
    held: Callable[[Any], int] = attrgetter("nbytes")

    def used_on(self, array: Any, stream: Stream) -> None:
        """Tell the library to keep an array's memory until the work queued on a stream is done."""
        return

    def packed(self, array: Any, name: str) -> Any:
        """The array itself if its elements are in row-major order, else a copy that is."""
        return array if array.flags.c_contiguous else array.copy()

    def reinterpreted(self, packed: Any, dtype: Any, shape: Shape) -> Any:
        """The same bytes with another shape and type, by its name in NumPy or the library."""
        return packed.reshape(-1).view(dtype).reshape(shape)


def allocate(
    like: ArrayView, make: Callable[[Iterator[Shape], Any], list[Any]], shapes: Shapes, dtype: Any
) -> list[Any]:
    """``make(shapes, dtype)``; an error gives the size of the array that did not fit."""
    rest = iter(shapes)
    try:
        return make(rest, dtype)
    except (MemoryError, RuntimeError) as error:
        wanted = prod(shapes[-1 - len(list(rest))]) * int(dtype.itemsize)
        raise not_allocated(like, wanted, error) from None


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
