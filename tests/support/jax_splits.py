"""JAX's own split, called like ours, and random arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dmlsplit.execution import jax as frameworks
from tests.support.arrays import random_bits


def own(array: Any, sizes: Any, axis: int = 0) -> list[Any]:
    import jax

    return jax.numpy.split(array, np.cumsum(sizes)[:-1], axis)


def random(shape: tuple[int, ...], kind: str = "float32") -> Any:
    """A JAX array of random bytes, so that every NaN can occur."""
    import jax

    return jax.numpy.asarray(random_bits(shape, jax.numpy.dtype(kind)))


@contextmanager
def lowered(to: str) -> Iterator[None]:
    """Splits become callbacks, however small, or what they usually become (XLA's own splits)."""
    with pytest.MonkeyPatch.context() as patch:
        if to == "callback":
            patch.setattr(frameworks, "MAX_BYTES", 0)
        frameworks._jitted_split.cache_clear()
        yield
    frameworks._jitted_split.cache_clear()
