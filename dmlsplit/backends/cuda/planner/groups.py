"""Outputs of a transposed split that one launch copies, and the loop nests that they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dmlsplit.geometry import StridedCopy


@dataclass(frozen=True, slots=True)
class Group:
    """Outputs of one launch."""

    unit: int  # bytes of an element
    outputs: tuple[int, ...]  # by index
    offsets: tuple[int, ...]  # where each output begins in the input, in bytes
    nests: tuple[StridedCopy, ...]  # the distinct ones, with offset 0
    nest_of: tuple[int, ...]  # for each output, the index of its nest

    @property
    def total_bytes(self) -> int:
        """Bytes in all outputs."""
        return sum(self.nests[nest].total_bytes for nest in self.nest_of)


def parts(
    alike: dict[StridedCopy, list[int]], most: int, most_nests: int
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
