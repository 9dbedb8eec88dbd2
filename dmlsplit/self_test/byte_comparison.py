"""One split on the device, and every byte of its memory compared with NumPy's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from dmlsplit.backends import BoundCopy
from dmlsplit.self_test.case import AROUND_INPUT, SENTINEL, Case, Mode
from dmlsplit.self_test.memory import ALIGNMENT, Buffer, Memory

# Bytes before and after each tensor, which no split may write.
GUARD = ALIGNMENT
# `Program.bind`, or a function that replaces it.
Bind = Callable[[int, Sequence[int]], BoundCopy]


class Difference(NamedTuple):
    """The first byte that is wrong. Byte numbers below 0 or past the end are outside the tensor."""

    tensor: str  # "input" or "output N"
    byte: int
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"{self.tensor}, byte {self.byte}: {self.actual:#04x}, expected {self.expected:#04x}"


class CaseResult(NamedTuple):
    """How one split ended."""

    case: Case
    difference: Difference | None
    # A digest of all bytes of the outputs.
    digest: str


def compare(case: Case, bind: Bind, memory: Memory, source: int | None = None) -> CaseResult:
    """Run a split in its mode, and compare.

    If `source` is given, the input's first element is at that address, in memory of the caller.
    """
    data = case.data()
    buffers = [memory.upload(image) for image in _initial_images(case, data)]
    starts = _tensor_starts(case)
    tensors = (case.source, *case.output_tensors)
    input_address, *output_addresses = (
        buffer.address + start + tensor.origin
        for buffer, start, tensor in zip(buffers, starts, tensors, strict=True)
    )
    copy = bind(source or input_address, output_addresses)
    if case.mode is Mode.GRAPH:
        replay = memory.capture(copy)
        replay()
        data = case.data(1)
        for buffer, image in zip(buffers, _initial_images(case, data), strict=True):
            memory.write(buffer, image)
        replay()
    elif case.mode is Mode.STREAM:
        memory.on_stream(copy)
    else:
        copy()
    return _case_result(case, data, buffers, memory)


def _tensor_starts(case: Case) -> list[int]:
    """Where the input and each output begin in their buffers."""
    return [GUARD + phase for phase in (case.phases[0], *case.output_phases)]


def _initial_images(case: Case, data: np.ndarray) -> Iterator[np.ndarray]:
    """The input's buffer with its data, and the buffers of the outputs before the split."""
    empty = (np.full(tensor.size, SENTINEL, np.uint8) for tensor in case.output_tensors)
    return _buffer_images(case, [data, *empty])


def _buffer_images(case: Case, contents: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Buffers of the input and the outputs, with guards around these contents."""
    guards = [AROUND_INPUT, *[SENTINEL] * len(case.sizes)]
    for start, guard, content in zip(_tensor_starts(case), guards, contents, strict=True):
        image = np.full(start + content.size + GUARD, guard, np.uint8)
        image[start : start + content.size] = content
        yield image


def _case_result(
    case: Case, data: np.ndarray, buffers: Sequence[Buffer], memory: Memory
) -> CaseResult:
    """Compare the buffers with what they hold after a right split of `data`."""
    names = ["input", *(f"output {number}" for number in range(len(case.sizes)))]
    contents = [data, *case.expected(data)]
    digest = sha256()
    first_difference = None
    rows = zip(
        names, contents, _buffer_images(case, contents), buffers, _tensor_starts(case), strict=True
    )
    for name, content, image, buffer, start in rows:
        actual = memory.read(buffer)
        digest.update(actual[start : start + content.size].tobytes())
        first_difference = first_difference or difference(name, -start, actual, image)
    return CaseResult(case, first_difference, digest.hexdigest()[:16])


def difference(
    tensor: str, begin: int, actual: np.ndarray, expected: np.ndarray
) -> Difference | None:
    """The first wrong byte of a part of a tensor that begins at byte `begin`; None if none is."""
    if np.array_equal(actual, expected):
        return None
    index = int(np.argmax(actual != expected))  # the first True
    return Difference(tensor, begin + index, int(expected[index]), int(actual[index]))
