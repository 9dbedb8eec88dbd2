"""Splits that peers have published, on NumPy's arrays and on those of the strict array API."""

from typing import TypeAlias

import numpy as np
import pytest

import dmlsplit as dml
from tests.support.each import each

# A shape, the sizes or the number of the pieces, and an axis.
Split: TypeAlias = tuple[tuple[int, ...], "int | tuple[int, ...]", int]

# The worked examples of DML_SPLIT_OPERATOR_DESC's documentation, and DxDispatch's dml_split.json;
# Chromium, WebNNGraphDMLImplTest, BuildAndComputeSingleOperatorSplit and WithSplitAndReshape;
# webnn-native, SplitTests.cpp; PyDirectML (aisk), tests/test_operators.py; Web Platform Tests,
# webnn/conformance_tests/split.https.any.js; tfdml, test/ops/split_op_test.py.
PUBLISHED: list[Split] = [
    ((1, 1, 6, 2), (2, 1, 3), 2), ((1, 1, 6, 2), (1, 1), 3), ((6,), (2, 2, 2), 0),
    ((2, 1, 3, 4), (1, 1), 0), ((1, 2, 3, 4), (1, 1), 1), ((2, 1, 3, 4), (1, 2), 2),
    ((2, 1, 3, 4), (2, 2), 3), ((2, 5), (2, 3), 1),
    ((6,), (2, 4), 0), ((2, 6), (3, 3), 1), ((2, 6), (2, 4), 1), ((1, 1, 2, 3), (1, 2), 3),
    ((24,), 3, 0), ((8, 3), 2, 0), ((4, 3, 2), 2, 0), ((12, 1, 1, 2), 4, 0),
    ((12, 1, 1, 2), 3, 0), ((6, 1, 1, 2, 2), 2, 0), ((12, 1, 1, 2), (3, 3, 3, 3), 0),
    ((1, 1, 6, 2, 2), (3, 3), 2), ((6, 1, 1, 2, 2), (2, 4), 0),
    ((8, 0, 21), 2, 0), ((8, 0, 21), (0, 0, 0, 0), 1), ((8, 0, 21), 7, 2),
    ((4, 4), (0, 4), 0), ((4, 4), (4, 0), 1),
    *(((4, 5, 2, 3), 1, axis) for axis in range(-4, 4)),
    ((6, 10, 18), 3, 0), ((6, 7, 18), 3, 0), ((6, 7, 9), 3, 0), ((1, 64, 32768), 64, 1),
    ((1, 64, 32768), (32, 16, 8, 4, 2, 1, 1), 1),
    ((3, 1499), (*(1 + i % 2 for i in range(999)), 1), 1),
]  # fmt: skip


def pieces(array: np.ndarray, split: Split) -> list[np.ndarray]:
    """NumPy's pieces."""
    _, parts, axis = split
    return np.split(array, parts if isinstance(parts, int) else np.cumsum(parts)[:-1], axis)


def small_numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers below 100, which every type of the array API can hold."""
    return (np.arange(np.prod(shape), dtype="i4") % 100).reshape(shape)


@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
@each(split=PUBLISHED)
def test_published_splits_are_computed(library: str, split: Split) -> None:
    shape, parts, axis = split
    array = pytest.importorskip(library).asarray(small_numbers(shape))
    for piece, right in zip(
        dml.split(array, parts, axis), pieces(small_numbers(shape), split), strict=True
    ):
        assert (type(piece), piece.dtype, piece.shape) == (type(array), right.dtype, right.shape)
        assert piece.tobytes() == right.tobytes()


@each(split=[split for split in PUBLISHED if np.prod(split[0]) < 1000])
def test_pieces_of_strict_array_api_arrays_equal_those_of_numpy(split: Split) -> None:
    xp = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    shape, parts, axis = split
    info = xp.__array_namespace_info__()
    for device in info.devices():
        for dtype in info.dtypes(device=device).values():
            array = xp.astype(xp.asarray(small_numbers(shape), device=device), dtype)
            rights = pieces(small_numbers(shape), split)
            for piece, right in zip(dml.split(array, parts, axis), rights, strict=True):
                assert (type(piece), piece.dtype, piece.device) == (type(array), dtype, device)
                assert piece.shape == right.shape
                assert bool(xp.all(piece == xp.astype(xp.asarray(right, device=device), dtype)))
