"""Peers' splits of dask arrays, by dask's own `assert_eq`: graph, chunks, type and values."""

import numpy as np
import pytest

import dmlsplit as dml
from tests.peers.cuts import CUPY, JAX, NUMPY, Cut
from tests.support.each import each

da = pytest.importorskip("dask.array", reason="dask is not installed")


@pytest.mark.parametrize("cut", [cut for cut in (*NUMPY, *CUPY, *JAX) if cut.is_partition])
@each(chunk=[1, 3, -1, "uneven"])
def test_pieces_equal_those_of_array_split(cut: Cut, chunk: int | str) -> None:
    from dask.array.utils import assert_eq

    values = np.arange(np.prod(cut.shape)).reshape(cut.shape)
    chunks = chunk
    if chunk == "uneven":
        chunks = tuple((n // 3, n - n // 3) if n > 2 else (n,) for n in cut.shape)
    array = da.from_array(values, chunks)
    wanted = np.array_split(values, cut.at, cut.axis)
    for one, two in zip(dml.split(array, cut.sizes(wanted), cut.axis), wanted, strict=True):
        assert_eq(one, two, scheduler="sync")
