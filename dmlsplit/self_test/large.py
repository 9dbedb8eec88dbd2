"""Splits of many bytes: the input repeats a block, so that the bytes of every output are known.

A split of 256 MiB or more takes the same path as a user's. It would take long to keep its bytes on
the host and to split them with NumPy, so both are done for one block only.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

import numpy as np

from dmlsplit.backends import BoundCopy
from dmlsplit.geometry import ceil_div
from dmlsplit.self_test.byte_comparison import GUARD, Bind, CaseResult, difference
from dmlsplit.self_test.case import SENTINEL, Case
from dmlsplit.self_test.memory import ALIGNMENT, Buffer, Memory

# The input repeats a block of about this many bytes.
BLOCK_BYTES = 1 << 20
# Outputs are read back in parts of about this many bytes.
PART_BYTES = 16 << 20


def source_bytes(case: Case) -> int:
    """The size of the buffer of the input."""
    return case.phases[0] + case.source.size


def target_bytes(case: Case) -> int:
    """The size of the buffer of all outputs."""
    return _output_starts(case)[-1] + case.output_tensors[-1].size + GUARD


def prepared_copy(
    case: Case, bind: Bind, memory: Memory, source: Buffer, target: Buffer
) -> BoundCopy:
    """The copy of a split; its input has the data, and its outputs the sentinel."""
    memory.fill(target, SENTINEL)
    fill_with_copies(
        memory, _buffer_after(source, case.phases[0]), _block(case).data(), case.source.size
    )
    addresses = [target.address + start for start in _output_starts(case)]
    return bind(source.address + case.phases[0], addresses)


def compare_outputs(case: Case, memory: Memory, target: Buffer, step: int = 1) -> CaseResult:
    """Compare the outputs, or one in `step` parts of them, and what surrounds them."""
    pieces = list(_block(case).expected(_block(case).data()))
    if _is_joined(case):
        pieces *= len(case.sizes)
    digest = sha256()
    first_difference = None
    outputs = zip(case.output_tensors, pieces, _output_starts(case), strict=True)
    for number, (tensor, piece, start) in enumerate(outputs):
        for begin, expected in _expected_parts(tensor.size, piece, step):
            actual = memory.read(target, start + begin, start + begin + expected.size)
            name = f"output {number}"
            first_difference = first_difference or difference(name, begin, actual, expected)
            if begin == 0:
                digest.update(actual[: piece.size].tobytes())
    return CaseResult(case, first_difference, digest.hexdigest()[:16])


def fill_with_copies(memory: Memory, buffer: Buffer, block: np.ndarray, size: int) -> None:
    """Fill a buffer's first `size` bytes with copies of a block."""
    memory.write(buffer, block[:size])
    filled = block.size
    while filled < size:
        memory.plain_copy(buffer, _buffer_after(buffer, filled), min(filled, size - filled))()
        filled *= 2


def _block(case: Case) -> Case:
    """The part of a split along its first dimension after which the input repeats."""
    slice_bytes = case.source.strides[0]
    slice_count, *slice_shape = case.shape
    # An odd number of slices, so that no tile or chunk of a kernel is a multiple of a block.
    wanted = 1 if slice_bytes == 0 or _is_joined(case) else BLOCK_BYTES // slice_bytes | 1
    count = min(wanted, slice_count)
    sizes = (count,) if _is_joined(case) else case.sizes
    return replace(case, shape=(count, *slice_shape), sizes=sizes)


def _is_joined(case: Case) -> bool:
    """Whether each output is some whole slices of the first dimension."""
    return case.axis == 0


def _output_starts(case: Case) -> list[int]:
    """Where each output begins in the buffer of all."""
    starts = []
    end = 0
    for tensor, phase in zip(case.output_tensors, case.output_phases, strict=True):
        starts.append(ceil_div(end + GUARD, ALIGNMENT) * ALIGNMENT + phase)
        end = starts[-1] + tensor.size
    return starts


def _expected_parts(size: int, piece: np.ndarray, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """The expected bytes of an output that repeats `piece`, by parts, and around it."""
    around = np.full(GUARD, SENTINEL, np.uint8)
    part = np.tile(piece, ceil_div(min(PART_BYTES, size), piece.size))
    last = (size - 1) // part.size * part.size
    yield -GUARD, around
    for begin in sorted({*range(0, size, step * part.size), last}):
        yield begin, part[: size - begin]
    yield size, around


def _buffer_after(buffer: Buffer, begin: int) -> Buffer:
    """The buffer without its first bytes."""
    return Buffer(buffer.address + begin, buffer.owner[begin:])
