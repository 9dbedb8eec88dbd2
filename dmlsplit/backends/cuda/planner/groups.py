"""Outputs of a strided split that one launch copies, and the loop nests that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dmlsplit.backends.cuda.launch import OFFSET_64, Constant
from dmlsplit.geometry import StridedCopy

# Distinct nests that one launch makes code for: each adds about as much code as the kernel itself.
MOST_NESTS = 16


@dataclass(frozen=True, slots=True)
class Group:
    """Outputs of one launch."""

    unit: int  # bytes that a thread loads at once
    outputs: tuple[int, ...]  # by index
    offsets: tuple[int, ...]  # where each output begins in the input, in bytes
    nests: tuple[StridedCopy, ...]  # the distinct ones, with offset 0
    nest_of: tuple[int, ...]  # for each output, the index of its nest

    @property
    def total_bytes(self) -> int:
        """Bytes in all outputs."""
        return sum(self.nests[nest].total_bytes for nest in self.nest_of)

    def starts(self, nest_blocks: Sequence[int]) -> tuple[int, ...]:
        """Return the first block of each output, and the end, from the blocks of each nest."""
        return (0, *accumulate(nest_blocks[nest] for nest in self.nest_of))

    def tables(self, starts: tuple[int, ...]) -> tuple[Constant, ...]:
        """Return the constants that say where each output and its nest are."""
        return (
            Constant("int", "kUnit", self.unit),
            Constant("int", "kNests", len(self.nests)),
            Constant("unsigned char", "kOutputNests", self.nest_of),
            Constant("unsigned", "kTileStarts", starts),
            Constant(OFFSET_64, "kOffsets", self.offsets),
        )


def parts(
    alike: dict[StridedCopy, list[int]], most: int, most_nests: int = MOST_NESTS
) -> Iterator[dict[StridedCopy, list[int]]]:
    """Cut outputs by nest into parts of at most `most_nests` nests and `most` outputs."""
    part: dict[StridedCopy, list[int]] = {}
    for nest, outputs in alike.items():
        for index in outputs:
            has_all_nests = len(part) == most_nests and nest not in part
            if has_all_nests or sum(map(len, part.values())) == most:
                yield part
                part = {}
            part.setdefault(nest, []).append(index)
    if part:
        yield part


def loop_tables(nests: Sequence[Sequence[tuple[int, ...]]], index: str) -> list[Constant]:
    """Return sizes and strides of loop nests, each filled up in front to the deepest one."""
    depth = max(1, *(len(sizes) for sizes, _, _ in nests))
    tables: list[list[int]] = [[], [], []]
    for nest in nests:
        for table, row, filler in zip(tables, nest, (1, 0, 0), strict=True):
            table += [filler] * (depth - len(row)) + list(row)
    return [
        Constant("int", "kDimensions", depth),
        Constant(index, "kSizes", tuple(tables[0])),
        Constant(OFFSET_64, "kInputStrides", tuple(tables[1])),
        Constant(OFFSET_64, "kOutputStrides", tuple(tables[2])),
    ]
