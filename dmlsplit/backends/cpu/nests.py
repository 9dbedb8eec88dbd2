"""What the CPU engine copies: loop nests over items, equal ones of consecutive outputs together.

An item is one contiguous run: u1 to u8 and c16 for runs of 1 to 16 bytes, ``V<n>`` up to
`tuning.WIDEST_ITEM` bytes. Longer runs are one more loop, over bytes. A *row* is one iteration of
the outermost loop, which is the one that tasks and blocks cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod
from typing import Any

import numpy as np

from dmlsplit.backends.cpu import tuning
from dmlsplit.geometry import ONE_TURN, Loop, StridedCopy

_ITEMS = {1: "|u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


@dataclass(frozen=True, slots=True)
class EqualNests:
    """Equal loop nests of consecutive outputs, over items, as NumPy describes an array."""

    outputs: tuple[int, ...]  # by index
    item: np.dtype  # one contiguous run
    shape: tuple[int, ...]
    input_strides: tuple[int, ...]  # in bytes
    output_strides: tuple[int, ...]
    input_offset: int  # bytes from the first element of the input to the first nest
    step: int = 0  # bytes from one nest to the next in the input

    @property
    def items(self) -> int:
        """Items of all outputs."""
        return len(self.outputs) * prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all outputs."""
        return len(self.outputs) * self.item.itemsize * prod(self.shape[1:])


def equal_nests(pieces: Sequence[StridedCopy]) -> Iterator[EqualNests]:
    """Join neighbouring outputs that differ by nothing but an equal step in the input."""

    def form(index: int) -> tuple[Any, ...]:
        return pieces[index].loops, pieces[index].run_bytes

    solid = [index for index, piece in enumerate(pieces) if piece.run_bytes]
    for _, alike in groupby(solid, form):
        outputs = tuple(alike)
        steps = {pieces[b].input_offset - pieces[a].input_offset for a, b in pairwise(outputs)}
        if pieces[outputs[0]].run_bytes <= tuning.WIDEST_ITEM and len(steps) == 1:
            yield _nests(outputs, pieces[outputs[0]], *steps)
        else:
            yield from (_nests((output,), pieces[output]) for output in outputs)


def _nests(outputs: tuple[int, ...], piece: StridedCopy, step: int = 0) -> EqualNests:
    item_bytes = piece.run_bytes
    loops = list(piece.loops)
    if item_bytes > tuning.WIDEST_ITEM:
        loops.append(Loop(item_bytes, 1, 1))
        item_bytes = 1
    # Tasks cut the outermost loop. Where its iterations are longer than a task may be, the longest
    # loop comes first instead.
    if loops and piece.total_bytes > tuning.TASK_BYTES * loops[0].size:
        loops.sort(reverse=True)
    shape, src, dst = zip(*loops or [ONE_TURN], strict=True)
    item = np.dtype(_ITEMS.get(item_bytes, f"|V{item_bytes}"))
    return EqualNests(outputs, item, shape, src, dst, piece.input_offset, step)
