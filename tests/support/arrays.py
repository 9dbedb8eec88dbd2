"""Arrays of random bits, and comparisons bit by bit."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def ramp(*shape: int) -> np.ndarray:
    """The floats 1, 2, 3 and so on, so that each element differs from its neighbours and from 0."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def random_bits(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """An array of random bytes: NaN payloads and denormals included."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape)) * kind.itemsize
    raw = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    if kind == np.bool_:
        raw &= 1
    return raw.view(kind).reshape(shape)


def assert_same(pieces: Sequence[Any], expected_pieces: Sequence[np.ndarray]) -> None:
    """Assert that arrays are NumPy's, with the data types, shapes and bits of other arrays."""
    assert len(pieces) == len(expected_pieces)
    for piece, expected in zip(pieces, expected_pieces, strict=True):
        assert type(piece) is np.ndarray
        assert piece.dtype == expected.dtype
        assert piece.shape == expected.shape
        assert piece.tobytes() == expected.tobytes()
