"""JAX's own split, called like ours, and random arrays."""

from typing import Any

import numpy as np


def own(array: Any, sizes: Any, axis: int = 0) -> list[Any]:
    import jax

    return jax.numpy.split(array, np.cumsum(sizes)[:-1], axis)


def random(shape: tuple[int, ...], kind: str = "float32") -> Any:
    """A JAX array of random bytes, so that every NaN can occur."""
    import jax

    dtype = jax.numpy.dtype(kind)
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 256, count, np.uint8)
    return jax.numpy.asarray(raw.view(dtype).reshape(shape))
