"""What runs of benchmarks need: a machine that they name, and host arrays instead of a GPU's."""

from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.cases import Case

MACHINE = {"time": "2026-01-01T00:00:00+00:00", "commit": "c0ffee", "machine": {"processor": "p"}}


class HostArray(np.ndarray):
    """A NumPy array with the address where CuPy's arrays have it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def unwritten(case: Case, shape: tuple[int, ...]) -> np.ndarray:
    """An output whose bytes no split has written yet."""
    return np.full(prod(shape), 0xA5, case.dtype).reshape(shape)
