"""The interface to an array library, and the errors that all adapters share."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from dmlsplit.arrays.array_view import ArrayView, device_number_of
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.errors import DmlError, InvalidArgumentError, OutOfMemoryError
from dmlsplit.messages import Note

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = tuple[Shape, ...]
Allocation: TypeAlias = tuple[list[Any], list[int]]  # arrays, and their addresses


class NewArrays(NamedTuple):
    """Arrays of one type to allocate."""

    shapes: Shapes
    # The type; None for that of the input.
    dtype: np.dtype | None = None
    # Shapes, and strides in bytes, of the views that replace the arrays; None without views.
    layouts: tuple[tuple[Shape, Shape], ...] | None = None


class Requirement(NamedTuple):
    """The memory that an array must have, in the order of the last fields of an `ArrayView`."""

    shape: Shape
    # The strides in bytes.
    strides: Shape
    type: str
    item_bytes: int
    device: str
    # Whether the array may be read-only.
    read_only: bool = False


class Adapter(Protocol):
    """One array library. Methods with a body are defaults, for NumPy and CuPy."""

    def view(self, array: Any, name: str) -> ArrayView:
        """Describe the memory of an array; see `dmlsplit.arrays.view`."""

    def empty(self, like: ArrayView, new: NewArrays, stream: Stream | None = None) -> Allocation:
        """Packed arrays on the device of `like`, and the address of the first element of each.

        Only work on `stream` may use them; None is the current one. An OutOfMemoryError says that
        they do not fit in memory, and on CUDA how much is free.
        """

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        """A view of a packed array's memory, with strides in bytes."""

    def current_stream(self, array: Any) -> Callable[[], int] | None:
        """A function that returns the library's current stream; None for CuPy's, or on the CPU."""
        return None

    def record_stream(self, array: Any, stream: Stream) -> None:
        """Tell the library to keep an array's memory until the work queued on a stream is done."""
        return


def allocation_error(
    like: ArrayView, shapes: Shapes, remaining: Iterator[Shape], dtype: Any, error: Exception
) -> DmlError:
    """The error for an array that did not fit in memory; `remaining` has the shapes after it."""
    failed = max(0, len(shapes) - len(list(remaining)) - 1)
    size = prod(shapes[failed]) * int(dtype.itemsize)
    if like.device == "cpu":
        return OutOfMemoryError(
            f"an output of {size} bytes does not fit in memory. Fix: split a part of the array at "
            "a time, or give out= arrays in a memory map"
        )
    device = device_number_of(like.device)
    return driver.load().dml_error(error, device, "an output cannot be allocated", size)


def package_of(value: object) -> str:
    """The package that an object's type comes from."""
    return type(value).__module__.partition(".")[0]


def type_name(value: object) -> str:
    """The name of an object's type with its package, such as ``torch.Tensor``."""
    return f"{package_of(value)}.{type(value).__qualname__}".removeprefix("builtins.")


def sharing_error(
    array: Any, name: str, reason: Exception | str, fix: str = ""
) -> InvalidArgumentError:
    """The error for an array whose library does not share its memory, with the fix if known."""
    reason = str(reason).rstrip(".")
    fault = f"{name}, a {type_name(array)}, cannot be shared without a copy: {reason}"
    return InvalidArgumentError(Note(fault, fix))
