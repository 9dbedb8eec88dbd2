"""Arrays that are compared bit by bit."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def assert_same(found: Sequence[Any], wanted: Sequence[np.ndarray]) -> None:
    """Assert that arrays are NumPy's, with the data types, shapes and bits of others."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is np.ndarray
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
