"""JAX's own split, called like ours, and random arrays."""

from typing import Any

import numpy as np

from tests.support.arrays import random_bits


def own(array: Any, sizes: Any, axis: int = 0) -> list[Any]:
    import jax

    return jax.numpy.split(array, np.cumsum(sizes)[:-1], axis)


def random(shape: tuple[int, ...], kind: str = "float32") -> Any:
    """A JAX array of random bytes, so that every NaN can occur."""
    import jax

    return jax.numpy.asarray(random_bits(shape, jax.numpy.dtype(kind)))
