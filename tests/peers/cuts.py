"""Published splits, and those of peers' own tests, rewritten as shapes, cuts and axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

Cuts: TypeAlias = "int | Sequence[int]"


@dataclass(frozen=True)
class Cut:
    """A shape, the number of sections or the points to cut at, and an axis."""

    shape: tuple[int, ...]
    at: Cuts
    axis: int = 0

    def sizes(self, pieces: Sequence[Any]) -> list[int]:
        """The sizes for our split: those of the peer's own pieces along the axis."""
        return [piece.shape[self.axis] for piece in pieces]

    @property
    def is_partition(self) -> bool:
        """Whether the pieces make up the whole array: no point is before an earlier one."""
        if isinstance(self.at, int):
            return True
        whole = self.shape[self.axis]
        ends = [min(max(at + whole * (at < 0), 0), whole) for at in self.at]
        return ends == sorted(ends)

    @property
    def is_inside(self) -> bool:
        """Whether it is a partition whose points all count from the start and are in the axis."""
        points = [] if isinstance(self.at, int) else self.at
        return self.is_partition and all(0 <= at <= self.shape[self.axis] for at in points)


# numpy/lib/tests/test_shape_base.py: TestArraySplit, TestSplit.
NUMPY = [
    *(Cut((10,), count) for count in range(1, 12)),
    *(Cut((2, 10), 3, axis) for axis in (0, -1)),
    Cut((2, 10), (0, 1)),
    *(Cut((10,), at, -1) for at in ((1, 5, 7), (0, 5, 7), (0, 5, 7, 10, 12))),
]
# cupy_tests/manipulation_tests/test_split.py.
CUPY = [
    *(Cut((3, 11), 4, axis) for axis in (1, -1)),
    Cut((5, 0), (2, 4)),
    Cut((3, 11), ()),
    Cut((2, 3), (3,)),
    Cut((0,), (1,)),
    Cut((5,), (4, 2)),
    Cut((5, 3), 4),
    *(Cut((3, 11), (2, 4, 9), axis) for axis in (1, -1)),
    Cut((3, 11), (-9, 4, -2), 1),
]
# jax/tests/lax_numpy_test.py: equal sections, the named splits, and uneven sections.
JAX = [
    Cut((3,), 3), Cut((12,), 3), Cut((12, 4), 4), Cut((12, 4), 2, 1), Cut((2, 3, 4), 2, -1),
    Cut((2, 3, 4), 3, -2), Cut((2, 3, 4), 2, 2), Cut((4, 3, 4), 2), Cut((12,), 5),
    Cut((12, 4), 7), Cut((12, 4), 3, 1), Cut((2, 3, 5), 2, -1), Cut((2, 4, 4), 3, -2),
    Cut((7, 2, 2), 3), Cut((3,), (1, 2)),
]  # fmt: skip


def sized(shape: tuple[int, ...], sizes: Sequence[int], axis: int) -> Cut:
    """A cut into pieces of these sizes."""
    return Cut(shape, tuple(accumulate(sizes))[:-1], axis)


# The worked examples of DML_SPLIT_OPERATOR_DESC's documentation, and DxDispatch's dml_split.json;
# Chromium, WebNNGraphDMLImplTest, BuildAndComputeSingleOperatorSplit and WithSplitAndReshape;
# webnn-native, SplitTests.cpp; PyDirectML (aisk), tests/test_operators.py; Web Platform Tests,
# webnn/conformance_tests/split.https.any.js; tfdml, test/ops/split_op_test.py.
PUBLISHED = [
    sized((1, 1, 6, 2), (2, 1, 3), 2), sized((1, 1, 6, 2), (1, 1), 3), sized((6,), (2, 2, 2), 0),
    sized((2, 1, 3, 4), (1, 1), 0), sized((1, 2, 3, 4), (1, 1), 1), sized((2, 1, 3, 4), (1, 2), 2),
    sized((2, 1, 3, 4), (2, 2), 3), sized((2, 5), (2, 3), 1),
    sized((6,), (2, 4), 0), sized((2, 6), (3, 3), 1), sized((2, 6), (2, 4), 1),
    sized((1, 1, 2, 3), (1, 2), 3),
    Cut((24,), 3), Cut((8, 3), 2), Cut((4, 3, 2), 2), Cut((12, 1, 1, 2), 4), Cut((12, 1, 1, 2), 3),
    Cut((6, 1, 1, 2, 2), 2), sized((12, 1, 1, 2), (3, 3, 3, 3), 0),
    sized((1, 1, 6, 2, 2), (3, 3), 2), sized((6, 1, 1, 2, 2), (2, 4), 0),
    Cut((8, 0, 21), 2), Cut((8, 0, 21), 4, 1), Cut((8, 0, 21), 7, 2),
    sized((4, 4), (0, 4), 0), sized((4, 4), (4, 0), 1),
    *(Cut((4, 5, 2, 3), 1, axis) for axis in range(-4, 4)),
    Cut((6, 10, 18), 3), Cut((6, 7, 18), 3), Cut((6, 7, 9), 3), Cut((1, 64, 32768), 64, 1),
    sized((1, 64, 32768), (32, 16, 8, 4, 2, 1, 1), 1),
    sized((3, 1499), (*(1 + i % 2 for i in range(999)), 1), 1),
]  # fmt: skip
