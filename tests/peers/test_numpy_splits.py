"""NumPy's and CuPy's own splits and `dml.split` give pieces with the same bytes."""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from tests.peers.cuts import CUPY, NUMPY, Cut

LIBRARIES = ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)]


def ramp(cut: Cut, dtype: str = "int64") -> np.ndarray:
    return (np.arange(np.prod(cut.shape)) % 100).astype(dtype).reshape(cut.shape)


def layouts(library: str, values: np.ndarray) -> list[Any]:
    """Equal values, packed and with other strides, made without CuPy's own kernels."""
    of_library = pytest.importorskip(library).asarray
    return [
        of_library(values),
        of_library(values.T.copy()).T,
        of_library(values.repeat(2, -1))[..., ::2],
        of_library(values[::-1].copy())[::-1],
    ]


def assert_equal(found: list[Any], wanted: list[np.ndarray], kind: type = np.ndarray) -> None:
    assert len(found) == len(wanted)
    for one, two in zip(found, wanted, strict=True):
        assert (type(one), one.dtype, one.shape) == (kind, two.dtype, two.shape)
        assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("cut", [*NUMPY, *CUPY])
def test_counts_and_positions_agree_with_array_split(library: str, cut: Cut) -> None:
    wanted = np.array_split(ramp(cut), cut.at, cut.axis)
    for array in layouts(library, ramp(cut)):
        if not cut.is_partition:
            with pytest.raises(dml.InvalidArgumentError, match="they must be at least 0 and add"):
                dml.split(array, cut.sizes(wanted), cut.axis)
            continue
        assert_equal(dml.split(array, cut.sizes(wanted), cut.axis), wanted, type(array))
        is_count = isinstance(cut.at, int)
        if is_count and not cut.shape[cut.axis] % cut.at:
            assert_equal(dml.split(array, cut.at, cut.axis), wanted, type(array))
        elif is_count:
            with pytest.raises(dml.InvalidArgumentError, match=rf"^count is {cut.at}; it must"):
                dml.split(array, cut.at, cut.axis)
