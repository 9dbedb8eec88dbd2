"""Checks the arrays of a split: whether they fit it, and share no memory.

`dml.split`, `op()`, `dispatch`, `bind` and the front ends all use this module. An array that fits
exactly reaches only `fits_exactly`, and on the fast paths of execution/slices.py and
execution/torch_fast_path.py not even that; a rule about such arrays is needed there too. A rule
about the arrays of one library, such as tensors that PyTorch tracks, belongs in the `view` of its
adapter.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
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


# One call for all fields, because every array of every call is compared.
_layout_of = attrgetter("shape", "strides", "type", "item_bytes", "device")


def fits_exactly(array: ArrayView, required: Requirement) -> bool:
    """Whether an array is exactly as required."""
    return bool(_layout_of(array) == _layout_of(required)) and array.read_only <= required.read_only


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
        if _overlaps_itself(array.shape, array.strides, array.item_bytes):
            yield Mismatch("strides", array.strides, None)
    elif not _has_required_strides(array, required):
        yield Mismatch("strides", array.strides, required.strides)


def _has_required_strides(array: ArrayView, required: Requirement) -> bool:
    """Whether the strides are as required, counted in elements: a wrong type may be wider."""
    # The stride of a dimension of size 1 is never used.
    dims = zip(array.shape, array.strides, required.strides, strict=True)
    return all(
        size <= 1 or stride * required.item_bytes == step * array.item_bytes
        for size, stride, step in dims
    )


def accept_outputs(
    out: Any, source: ArrayView, required: Sequence[Requirement]
) -> tuple[list[int], tuple[tuple[int, ...], ...] | None]:
    """The addresses of arrays to write to, and their strides if these are not as required.

    An InvalidArgumentError names the first array that does not fit or shares memory with another.
    """
    check_output_count(out, len(required))
    outputs = [view(array, f"out[{index}]", True) for index, array in enumerate(out)]
    check_output_arrays(outputs, source, required)
    strides = tuple([output.strides for output in outputs])
    are_packed = strides == tuple([requirement.strides for requirement in required])
    return [output.address for output in outputs], None if are_packed else strides


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
        if fits_exactly(output, requirement):
            continue
        mismatch = next(mismatches(output, requirement, any_strides=True), None)
        if mismatch is not None:
            raise InvalidArgumentError(f"out[{index}]{_mismatch_text(mismatch)}")
    if pair := first_overlap([source, *outputs]):
        first, second = (f"out[{index - 1}]" if index else "array" for index in pair)
        raise InvalidArgumentError(
            f"{first} and {second} share memory; they must not overlap. Fix: give each output "
            "memory of its own"
        )


def _mismatch_text(mismatch: Mismatch) -> str:
    """What is wrong with an output, after its name."""
    field, actual, required = mismatch
    match field:
        case "read_only":
            return " is read-only. Fix: pass an array that can be written, such as a copy"
        case "strides":
            return f": strides are {actual}; its elements must not overlap"
        case "type":
            actual = data_type_name(actual)
            required = data_type_name(required)
            fix = f"Fix: pass an array of {required}"
            return f": data type is {actual}; it must be {required}. {fix}"
    return f": {field} is {actual}; it must be {required}"


@lru_cache(maxsize=1024)
def _overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> bool:
    """Whether elements of an array may share a byte; strides may be negative."""
    steps = tuple(map(abs, strides))
    if item_bytes and any(step % item_bytes for step in steps):
        return may_overlap_itself((*shape, item_bytes), (*steps, 1))  # element by element, bytes
    return may_overlap_itself(shape, steps)
