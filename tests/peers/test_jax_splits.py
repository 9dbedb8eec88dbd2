"""JAX's own splits and the same splits by `dml.split`, compiled and not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from tests.peers.cuts import CUPY, JAX, NUMPY, Cut

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

# JAX refuses all other points.
CUTS = [cut for cut in (*JAX, *NUMPY, *CUPY) if cut.is_inside]


def assert_equal(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for one, two in zip(found, wanted, strict=True):
        assert isinstance(one, jax.Array)
        assert (one.shape, one.dtype, one.sharding) == (two.shape, two.dtype, two.sharding)
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap], ids=["call", "jit", "vmap"])
@pytest.mark.parametrize("cut", CUTS)
def test_counts_and_positions_agree_with_array_split(
    transform: Callable[[Any], Any], cut: Cut
) -> None:
    array = jnp.arange(np.prod(cut.shape), dtype="f4").reshape(cut.shape)
    sizes = cut.sizes(jnp.array_split(array, cut.at, cut.axis))
    if transform is jax.vmap:
        array = jnp.stack([array, -array])
    found = transform(lambda array: dml.split(array, sizes, cut.axis))(array)
    assert_equal(found, transform(lambda array: jnp.array_split(array, cut.at, cut.axis))(array))
