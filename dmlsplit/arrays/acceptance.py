"""Checks the arrays of a split: whether they fit it, and share no memory.

`dml.split`, `op()`, `dispatch`, `bind` and the front ends all use this module. An array that fits
exactly reaches only `matches`, and on the fast paths of execution/slices.py and
execution/torch_fast_path.py not even that; a rule about such arrays is needed there too. A rule
about the arrays of one library, such as tensors that PyTorch tracks, belongs in the `view` of its
adapter.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.adapter import Requirement
from dmlsplit.arrays.array_view import data_type_name
from dmlsplit.arrays.overlap import first_overlap
from dmlsplit.directml.self_overlap import may_overlap_itself
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import counted


class Mismatch(NamedTuple):
    """A field of an `ArrayView` that is not as required."""

    field: str
    actual: Any
    required: Any


def matches(array: ArrayView, required: Requirement) -> bool:
    """Whether an array is exactly as required."""
    return array[2:-1] == required[:-1] and array.read_only <= required.read_only


def mismatches(
    array: ArrayView, required: Requirement, any_strides: bool = False
) -> Iterator[Mismatch]:
    """The fields of an array that are not as required.

    With `any_strides`, elements may be anywhere as long as they do not overlap.
    """
    if array.device != required.device:
        yield Mismatch("device", array.device, required.device)
    if array.read_only and not required.read_only:
        yield Mismatch("read_only", True, False)
    if array.type != required.type:
        yield Mismatch("type", array.type, required.type)
    if array.shape != required.shape:
        yield Mismatch("shape", array.shape, required.shape)
    elif any_strides:
        if _overlaps_itself(array.shape, array.strides):
            yield Mismatch("strides", array.strides, None)
    # The stride of a dimension of size 1 is never used. Elements of a wrong type may have another
    # size, so strides are compared in elements.
    elif any(
        n > 1 and s * required.item_bytes != t * array.item_bytes
        for n, s, t in zip(*array[2:4], required.strides, strict=True)
    ):
        yield Mismatch("strides", array.strides, required.strides)


def accept_outputs(
    out: Any, source: ArrayView, required: Sequence[Requirement]
) -> tuple[list[int], tuple[tuple[int, ...], ...] | None]:
    """The addresses of arrays to write to, and their strides if these are not as required.

    An InvalidArgumentError names the first array that does not fit or shares memory with another.
    """
    check_output_count(out, len(required))
    outputs = [view(array, f"out[{index}]") for index, array in enumerate(out)]
    check_output_arrays(outputs, source, required)
    are_packed = all(map(matches, outputs, required))
    strides = None if are_packed else tuple([output.strides for output in outputs])
    return [output.address for output in outputs], strides


def check_output_count(out: Any, count: int) -> None:
    """Refuse anything but a list or a tuple of `count` arrays."""
    is_list = isinstance(out, (list, tuple))
    if not is_list or len(out) != count:
        actual = counted(len(out), "array") if is_list else f"the type {type(out).__name__}"
        raise InvalidArgumentError(f"out has {actual}; it must be a list of {count} arrays")


def check_output_arrays(
    outputs: Sequence[ArrayView], source: ArrayView, required: Sequence[Requirement]
) -> None:
    """Refuse outputs that share a byte or are not as required; their strides may differ."""
    for index, (output, requirement) in enumerate(zip(outputs, required, strict=True)):
        if matches(output, requirement):
            continue
        mismatch = next(mismatches(output, requirement, any_strides=True), None)
        if mismatch is not None:
            raise InvalidArgumentError(f"out[{index}]{_mismatch_text(*mismatch)}")
    if pair := first_overlap([source, *outputs]):
        first, second = (f"out[{index - 1}]" if index else "array" for index in pair)
        raise InvalidArgumentError(f"{first} and {second} share memory; they must not overlap")


def _mismatch_text(field: str, actual: Any, required: Any) -> str:
    """What is wrong with an output, after its name."""
    match field:
        case "read_only":
            return " is read-only. Fix: pass an array that can be written, such as a copy"
        case "strides":
            return f": strides are {actual}; its elements must not overlap"
        case "type":
            name = data_type_name(required)
            return (
                f": data type is {data_type_name(actual)}; it must be {name}. Fix: pass an array "
                f"of {name}"
            )
    return f": {field} is {actual}; it must be {required}"


@lru_cache(maxsize=1024)
def _overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return may_overlap_itself(shape, tuple(map(abs, strides)))
