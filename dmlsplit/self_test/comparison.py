"""One split on the device, and every byte of its memory compared with NumPy's."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from dmlsplit.backends import BoundCopy
from dmlsplit.self_test.cases import SENTINEL, Case, Mode
from dmlsplit.self_test.memory import ALIGNMENT, Buffer, Memory

# Bytes before and after each tensor, which no split may write.
GUARD = ALIGNMENT
Bind = Callable[[int, Sequence[int]], BoundCopy]  # `Program.bind`


class Difference(NamedTuple):
    """The first byte that is wrong. Byte numbers below 0 or past the end are outside the tensor."""

    tensor: str  # "input" or "output N"
    byte: int
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"{self.tensor}, byte {self.byte}: {self.actual:#04x}, expected {self.expected:#04x}"


class Outcome(NamedTuple):
    """How one split ended."""

    case: Case
    difference: Difference | None
    digest: str  # of all bytes of the outputs


class _Tensors(NamedTuple):
    """Host images of the input and of each output, guards included, and the device's copies."""

    images: list[np.ndarray]
    buffers: list[Buffer]
    starts: list[int]  # of the tensor in each image


def compare(case: Case, bind: Bind, memory: Memory, source: int | None = None) -> Outcome:
    """Run a split in its mode, and compare.

    If `source` is given, the input's first element is at that address, in memory of the caller.
    """
    data = case.data()
    tensors = _upload(case, data, memory)
    origins = [case.source.origin, *(tensor.origin for tensor in case.targets)]
    first, *outputs = (
        buffer.address + start + origin
        for buffer, start, origin in zip(tensors.buffers, tensors.starts, origins, strict=True)
    )
    copy = bind(source or first, outputs)
    if case.mode is Mode.GRAPH:
        data = case.data(1)
        _replay(memory.capture(copy), tensors, data, memory)
    elif case.mode is Mode.STREAM:
        memory.on_stream(copy)
    else:
        copy()
    return _outcome(case, data, tensors, memory)


def _upload(case: Case, data: np.ndarray, memory: Memory) -> _Tensors:
    source, *targets = (GUARD + case.phases[0], *[GUARD + case.phases[1]] * len(case.sizes))
    images = [_image(source, data)]
    empty = (np.full(tensor.size, SENTINEL, np.uint8) for tensor in case.targets)
    images += [_image(start, content) for start, content in zip(targets, empty, strict=True)]
    return _Tensors(images, list(map(memory.upload, images)), [source, *targets])


def _image(start: int, content: np.ndarray) -> np.ndarray:
    """A buffer with guards around its content."""
    image = np.full(start + content.size + GUARD, SENTINEL, np.uint8)
    image[start : start + content.size] = content
    return image


def _replay(
    replay: Callable[[], object], tensors: _Tensors, data: np.ndarray, memory: Memory
) -> None:
    """Replay a graph once, then with other data and fresh outputs."""
    replay()
    begin = tensors.starts[0]
    tensors.images[0][begin : begin + data.size] = data
    for buffer, image in zip(tensors.buffers, tensors.images, strict=True):
        memory.write(buffer, image)
    replay()


def _outcome(case: Case, data: np.ndarray, tensors: _Tensors, memory: Memory) -> Outcome:
    names = ["input", *(f"output {number}" for number in range(len(case.sizes)))]
    contents = [data, *case.expected(data)]
    digest, difference = sha256(), None
    for name, content, buffer, start in zip(
        names, contents, tensors.buffers, tensors.starts, strict=True
    ):
        actual, expected = memory.read(buffer), _image(start, content)
        digest.update(actual[start : start + content.size].tobytes())
        wrong = np.flatnonzero(actual != expected)
        if wrong.size and difference is None:
            first = int(wrong[0])
            values = int(expected[first]), int(actual[first])
            difference = Difference(name, first - start, *values)
    return Outcome(case, difference, digest.hexdigest()[:16])
