"""Global memory of a split: an input that is a hash of its addresses, and checked outputs.

Tensors are not held in memory, so a launch can have any size. A stored byte is right if it is the
input byte that the geometry demands, which follows from its place in the output.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dmlsplit.geometry import SplitGeometry, StridedCopy
from tests.sass.threads import LANES, Access, Array, SassError

INPUT_ADDRESS = 1 << 46
OUTPUT_ADDRESS = 1 << 44
ALIGNMENT = 512  # of buffers, and the least gap between them
VECTOR = 16
# Bytes of a DRAM row: an assumption.
ROW_BYTES = 2048
BLOCK_BITS = 48  # above the number of a row


def input_words(addresses: Array) -> Array:
    """The 32 bits of the input at addresses that are multiples of 4."""
    mixed = (addresses >> np.uint64(2)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return ((mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)).astype(np.uint32)


def input_runs(addresses: Array, size: int) -> Array:
    """The `size` input bytes that begin at each address: an array of shape (addresses, size)."""
    phase = addresses & np.uint64(3)
    steps = np.arange(0, size + 3, 4, dtype=np.uint64)
    word_bytes = input_words((addresses - phase)[:, None] + steps).view(np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(word_bytes, size, axis=1)
    return windows[np.arange(len(word_bytes)), phase.astype(np.intp)]


class Places:
    """The input byte of each byte of each output: the loops of the pieces, as arrays."""

    def __init__(self, pieces: Sequence[StridedCopy]) -> None:
        depth = max(len(piece.loops) for piece in pieces)
        self.run = np.array([piece.run_bytes for piece in pieces])
        self.origin = np.array([piece.input_offset for piece in pieces])
        self.first = np.zeros(len(pieces), np.int64)  # lowest offset, below 0 for negative strides
        self.extent = np.zeros(len(pieces), np.int64)  # bytes from there
        self.loops = np.zeros((depth, 3, len(pieces)), np.int64)  # count, input and output stride
        self.loops[:, 0], self.loops[:, 2] = 1, 1 << 62
        for number, piece in enumerate(pieces):
            self._add(number, piece)

    def _add(self, number: int, piece: StridedCopy) -> None:
        extent = piece.run_bytes
        for level, (count, src, dst) in reversed(list(enumerate(piece.loops))):
            if dst < 0:  # Visit the same places upwards.
                self.first[number] += (count - 1) * dst
                self.origin[number] += (count - 1) * src
                src, dst = -src, -dst
            if dst < extent:
                raise NotImplementedError(f"{piece}: loops of the output that are interleaved")
            extent += (count - 1) * dst
            self.loops[level, :, number] = count, src, dst
        self.extent[number] = extent if piece.total_bytes else 0

    def of(self, output: Array, offset: Array) -> tuple[Array, Array]:
        """The offsets in the input of output bytes, and how many bytes follow each in both tensors.

        The byte itself is among those that follow. Bytes between elements have -1 << 62 and 0.
        """
        rest = offset - _of(self.first, output)
        origin = self.origin[output]
        is_inside = (rest >= 0) & (rest < _of(self.extent, output))
        for count, src, dst in self.loops:
            step = _of(dst, output)
            index = rest // step
            is_inside &= index < _of(count, output)
            rest = rest - index * step
            origin = origin + index * _of(src, output)
        bytes_left = _of(self.run, output) - rest
        is_inside &= bytes_left > 0
        return np.where(is_inside, origin + rest, -1 << 62), np.where(is_inside, bytes_left, 0)


def _of(values: Array, output: Array) -> Array:
    """The value of each output, or the value of all: NumPy divides by one number much faster."""
    return values[0] if (values == values[0]).all() else values[output]


@dataclass(frozen=True)
class Stored:
    """The stores of one instruction: addresses, bytes of shape (stores, size), and threads."""

    access: Access
    lanes: Array
    addresses: Array
    data: Array


class SplitMemory:
    """Memory of one launch of a split.

    Parameters
    ----------
    geometry : SplitGeometry
    outputs : sequence of int
        The pieces that the launch writes, in the order of its parameters.
    input_phase : int
        The address of the input modulo 512.
    output_phases : int or sequence of int
        The same for all outputs, or for each of `outputs`.

    Attributes
    ----------
    addresses : list of int
        Of the first element of the input, then of each output.
    """

    def __init__(
        self,
        geometry: SplitGeometry,
        outputs: Sequence[int],
        input_phase: int = 0,
        output_phases: int | Sequence[int] = 0,
    ) -> None:
        self.places = Places([geometry.pieces[output] for output in outputs])
        self.total_bytes = sum(geometry.pieces[output].total_bytes for output in outputs)
        self.input = INPUT_ADDRESS + input_phase
        low, high = input_span(geometry)
        self.lowest_word = (self.input + low) // VECTOR * VECTOR
        self.end_of_words = -(-(self.input + high) // VECTOR) * VECTOR
        room = (self.places.extent // ALIGNMENT + 3) * ALIGNMENT
        below = -(self.places.first // ALIGNMENT) * ALIGNMENT  # of each first element, at least
        starts = OUTPUT_ADDRESS + np.cumsum(room) - room + below + np.asarray(output_phases)
        self.outputs = starts + self.places.first
        self.addresses = [self.input, *map(int, starts)]
        self.stored: list[Stored] = []

    def load(self, access: Access) -> list[Array]:
        """The words that threads get."""
        address = access.addresses
        last = np.uint64(self.end_of_words - access.size)
        outside = (address < np.uint64(self.lowest_word)) | (address > last)
        access.refuse_if(outside, "loads from a 16-byte word without a byte of the input")
        if access.size >= 4:
            steps = range(0, access.size, 4)
            return [input_words(address + np.uint64(step)) for step in steps]
        shift = ((address & np.uint64(3)) << np.uint64(3)).astype(np.uint32)
        return [(input_words(address) >> shift) & np.uint32((1 << 8 * access.size) - 1)]

    def store(self, access: Access, words: list[Array]) -> None:
        """Keep the stores until `check`."""
        lanes = np.flatnonzero(access.mask)
        data = np.stack([word[access.mask] for word in words], axis=1).astype(np.uint32)
        addresses = access.addresses[access.mask].astype(np.int64)
        self.stored.append(Stored(access, lanes, addresses, data.view(np.uint8)[:, : access.size]))

    def count_rows(self, start: int) -> Counter[str]:
        """The DRAM rows of each counted block's stores, since the one with index `start`.

        Stores follow the code, and its warps each other. A GPU may take another order, in which a
        block switches to at least as many rows as it stores to.
        """
        places = [np.empty(0, np.int64)]  # the block and the row in one number, which sorts faster
        for store in self.stored[start:]:
            t = store.access.threads
            block = np.where(t.counted, t.of_block, -1)[store.lanes // LANES, 0]
            places.append((block << BLOCK_BITS) + store.addresses // ROW_BYTES)
        place = np.concatenate(places)
        place = place[place >= 0]
        place = place[np.argsort(place >> BLOCK_BITS, kind="stable")]
        turns = np.count_nonzero(np.diff(place, prepend=-1))
        return Counter(row_turns=turns, stored_rows=np.unique(place).size)

    def check(self) -> int:
        """Check all stores, forget them, and return how many bytes they had.

        Raises
        ------
        SassError
            A byte is wrong, outside the outputs, or stored twice.
        """
        for size in {store.access.size for store in self.stored}:
            self._check_bytes([store for store in self.stored if store.access.size == size])
        total = self._check_once()
        self.stored.clear()
        return total

    def _check_bytes(self, stores: list[Stored]) -> None:
        addresses = np.concatenate([part.addresses for part in stores])
        data = np.concatenate([part.data for part in stores])
        output = np.maximum(np.searchsorted(self.outputs, addresses, "right") - 1, 0)
        starts = self.outputs - self.places.first
        offset = addresses - starts[output]
        origin, bytes_left = self.places.of(output, offset)
        wrong = np.empty(data.shape, bool)
        whole = bytes_left >= data.shape[1]  # the bytes of the store follow each other in the input
        runs = input_runs((self.input + origin[whole]).astype(np.uint64), data.shape[1])
        wrong[whole] = data[whole] != runs
        wrong[~whole] = self._wrong(output[~whole], offset[~whole], data[~whole])
        if wrong.any():
            row, byte = (int(part[0]) for part in np.nonzero(wrong))
            position, number = offset[row] + byte, output[row]
            input_byte, _ = self.places.of(number, position)
            problem = f"is {data[row, byte]:#x}, not byte {input_byte} of the input"
            if input_byte == -1 << 62:
                problem = "is not in the output, or between its elements"
            place = f"byte {position - self.places.first[number]} of output {number}"
            raise SassError(f"{_thread(stores, row)}: {place} {problem}")

    def _wrong(self, output: Array, offset: Array, data: Array) -> Array:
        """Whether each byte of stores is wrong, looked up one by one."""
        byte_offsets = offset[:, None] + np.arange(data.shape[1])
        origin, bytes_left = self.places.of(
            np.broadcast_to(output[:, None], byte_offsets.shape), byte_offsets
        )
        addresses = (self.input + np.where(bytes_left, origin, 0)).astype(np.uint64)
        return (bytes_left == 0) | (data != input_runs(addresses.ravel(), 1).reshape(data.shape))

    def _check_once(self) -> int:
        if not self.stored:
            return 0
        starts = np.concatenate([part.addresses for part in self.stored])
        sizes = [np.full(len(part.addresses), part.access.size) for part in self.stored]
        ends = starts + np.concatenate(sizes)
        order = np.argsort(starts, kind="stable")
        twice = np.flatnonzero(ends[order][:-1] > starts[order][1:])
        if len(twice):
            row = int(order[twice[0] + 1])
            raise SassError(
                f"{_thread(self.stored, row)}: address {starts[row]:#x} is stored twice"
            )
        return int((ends - starts).sum())


def _thread(stores: list[Stored], row: int) -> str:
    """The instruction and the thread of a row of all stores, for messages."""
    for part in stores:
        if row < len(part.lanes):
            access = part.access
            return f"{access.instruction}: {access.threads.name(int(part.lanes[row]))}"
        row -= len(part.lanes)
    raise IndexError(row)


def input_span(geometry: SplitGeometry) -> tuple[int, int]:
    """The lowest offset of the input that is read, and one past the highest."""
    lows, highs = [], []
    for piece in geometry.pieces:
        if piece.total_bytes:
            steps = [(loop.size - 1) * loop.input_stride for loop in piece.loops]
            lows.append(piece.input_offset + sum(min(0, step) for step in steps))
            highs.append(piece.input_offset + sum(max(0, step) for step in steps) + piece.run_bytes)
    return min(lows), max(highs)
