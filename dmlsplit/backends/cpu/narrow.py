"""Machine code that copies narrow rows in one pass; NumPy makes one pass for each output.

NumPy copies item by item. With items of a few bytes, that takes four to eight times as long as the
memory needs. llvmlite, an optional package, compiles a loop that reads each row once. It is only
imported for splits that repay it (`RowLoop`).
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import gcd
from typing import Any

from dmlsplit.backends.cpu.machine_code import compiling, engine_of, is_allowed
from dmlsplit.geometry import RowSplit

MOST_OUTPUTS, MOST_WIDTH = 16, 16  # in bytes
MOST_ELEMENTS = 64  # of a row: each takes a few instructions, and 64 take 50 ms to compile
MOST_WORDS = 8  # LLVM sorts the elements of up to 8 vectors at a time
# Rows of at most this many elements are copied eight vectors at a time, which took a fifth less
# time in the second-level cache. Rows of more elements would need too many registers. Three of one
# or two bytes are sorted in vectors of 16 bytes, because wider ones need more shuffles.
FEW_ELEMENTS = 4
LEAST_ITEMS = 4096  # rows times outputs; with fewer, a call costs as much as it saves
# NumPy copies this many bytes before a loop is compiled. By then it has lost as much time as the
# import (150 ms) and a loop (10 to 60 ms) cost. Operators of WORTH_BYTES compile at once.
PATIENCE_BYTES = 256 << 20
WORTH_BYTES = 256 << 10
# Each loop takes 1 MB and is never freed: freeing takes llvmlite's lock at an arbitrary moment, and
# a child that is forked at that moment would wait for the lock forever.
MOST_LOOPS = 32

Copy = Callable[..., None]  # of the addresses of the first rows, and how many rows
_engines: list[Any] = []


class RowLoop:
    """A loop over rows of `pitch` bytes, each of which begins with pieces of `widths` bytes.

    It is compiled once NumPy has copied so many of these rows that compiling is likely to pay.
    """

    def __init__(self, pitch: int, widths: tuple[int, ...]) -> None:
        self.pitch, self.widths = pitch, widths
        self.element = gcd(8, pitch, *widths)  # bytes
        self._waited, self._is_tried = 0, False
        self._copy: Copy | None = None

    @property
    def word(self) -> int:
        """Bytes per read: the least that make a row at most MOST_WORDS words, else an element."""
        # Words must divide the row exactly, because memory may end with the last row.
        divisor = gcd(8, self.pitch, sum(self.widths))
        words = [word for word in (1, 2, 4, 8) if self.element <= word <= divisor]
        return next((word for word in words if self.pitch <= MOST_WORDS * word), self.element)

    def after(self, waited: int) -> Copy | None:
        """The compiled loop; None if NumPy should copy these `waited` bytes, which are counted."""
        self._waited += waited
        if self._waited > PATIENCE_BYTES and not self._is_tried:
            with compiling:
                self._copy = self._copy or _compiled(self)
                self._is_tried = True
        return self._copy


_loop = lru_cache(maxsize=1024)(RowLoop)


@dataclass(frozen=True, slots=True)
class NarrowSplit:
    """A split of narrow rows, which a compiled loop can copy."""

    split: RowSplit  # the outputs that have elements
    loop: RowLoop

    def prepare(self) -> None:
        """Compile the loop now if the split is large enough for repeated copies to repay it."""
        if self.split.total_bytes >= WORTH_BYTES and is_allowed():
            self.loop.after(PATIENCE_BYTES + 1)

    def ready(self) -> Copy | None:
        """The compiled loop; None if NumPy should copy."""
        if self.split.rows * len(self.split.outputs) < LEAST_ITEMS or not is_allowed():
            return None
        return self.loop.after(self.split.total_bytes)

    def part(
        self, copy: Copy, src: int, dsts: Sequence[int], start: int, stop: int
    ) -> Callable[[], None]:
        """A function that copies rows `start` to `stop`."""
        pieces = zip(self.split.outputs, self.split.widths, strict=True)
        outputs = [dsts[output] + start * width for output, width in pieces]
        return partial(copy, src + start * self.split.pitch, *outputs, stop - start)


def narrow_split(split: RowSplit) -> NarrowSplit | None:
    """The split if its rows are short and cut into a few narrow pieces, else None."""
    if split.rows == 1:
        return None
    split = split.take(split.filled)
    if not 2 <= len(split.outputs) <= MOST_OUTPUTS or max(split.widths) > MOST_WIDTH:
        return None
    loop = _loop(split.pitch, split.widths)
    return NarrowSplit(split, loop) if loop.pitch <= MOST_ELEMENTS * loop.element else None


def _compiled(loop: RowLoop) -> Copy | None:
    """The machine code; None if llvmlite cannot compile it, or MOST_LOOPS exist."""
    if len(_engines) == MOST_LOOPS or not (engine := engine_of("\n".join(_assembly(loop)))):
        return None
    _engines.append(engine)
    kinds = [ctypes.c_void_p] * (1 + len(loop.widths))
    return ctypes.CFUNCTYPE(None, *kinds, ctypes.c_int64)(engine.get_function_address("copy"))


def _assembly(loop: RowLoop) -> Iterator[str]:
    """LLVM assembly that, for each row, loads its words and stores the elements of each piece.

    If a row has too many elements for LLVM to load one by one, they are shifted out of words.
    """
    element, word = f"i{8 * loop.element}", f"i{8 * loop.word}"
    outputs = [f"%out{index}" for index in range(len(loop.widths))]
    # `noalias`: callers have checked that outputs share no byte with each other or the input.
    arguments = [f"ptr noalias {name}" for name in ("%in", *outputs)]
    yield f"define void @copy({', '.join(arguments)}, i64 %rows) {{"
    yield "start:\n br label %loop\nloop:\n %row = phi i64 [0, %start], [%next, %loop]"
    # Indices without array types, with which 16 pieces of 3 bytes take four times as long.
    yield f" %first = mul nuw nsw i64 %row, {loop.pitch // loop.word}"
    for at in range(sum(loop.widths) // loop.word):
        yield f" %w{at}.at = add nuw nsw i64 %first, {at}"
        yield f" %w{at}.in = getelementptr inbounds {word}, ptr %in, i64 %w{at}.at"
        yield f" %w{at} = load {word}, ptr %w{at}.in, align 1"
    place = 0
    for output, width in zip(outputs, loop.widths, strict=True):
        count = width // loop.element
        yield f" {output}.row = mul nuw nsw i64 %row, {count}"
        for index in range(count):
            at, shift = divmod(place, loop.word)
            place += loop.element
            name, found = f"{output}.{index}", f"%w{at}"
            if word != element:
                yield f" {name}.low = lshr {word} {found}, {8 * shift}"
                yield f" {name} = trunc {word} {name}.low to {element}"
                found = name
            yield f" {name}.at = add nuw nsw i64 {output}.row, {index}"
            yield f" {name}.to = getelementptr inbounds {element}, ptr {output}, i64 {name}.at"
            yield f" store {element} {found}, ptr {name}.to, align 1"
    yield " %next = add nuw nsw i64 %row, 1\n %more = icmp ult i64 %next, %rows"
    elements = loop.pitch // loop.element
    hint = ", !llvm.loop !0" if elements <= FEW_ELEMENTS else ""
    yield f" br i1 %more, label %loop, label %end{hint}\nend:\n ret void\n}}"
    yield f"!0 = distinct !{{!0, !1{', !2' if elements == 3 and loop.element <= 2 else ''}}}"
    yield '!1 = !{!"llvm.loop.interleave.count", i32 8}'
    yield f'!2 = !{{!"llvm.loop.vectorize.width", i32 {16 // loop.element}}}'
