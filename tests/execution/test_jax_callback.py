"""The function that JAX calls on a CUDA device; the tests do not need JAX."""

from types import SimpleNamespace

import numpy as np
import pytest

from dmlsplit.execution import jax


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 30), (5, 40, 30)])
def test_the_callback_copies_every_byte_on_a_gpu(shape: tuple[int, ...]) -> None:
    """CuPy arrays have the attributes of a buffer of XLA."""
    import cupy

    host = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    array = cupy.asarray(host)
    pieces = [cupy.empty((*shape[:-1], size), "u1") for size in (7, 0, 23)]
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    jax._copy(array.ndim - 1, (7, 0, 23), SimpleNamespace(stream=stream.ptr), pieces, array)
    stream.synchronize()
    for piece, expected in zip(pieces, np.split(host, [7, 7], -1), strict=True):
        np.testing.assert_array_equal(piece.get(), expected)
