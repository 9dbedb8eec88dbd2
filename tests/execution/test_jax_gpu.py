"""`dml.split` inside JAX's transforms on a real GPU."""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from tests.support.jax_splits import random

pytestmark = pytest.mark.gpu


@pytest.fixture
def jax() -> Any:
    """JAX on a GPU; a test that takes it is skipped without one."""
    jax_module = pytest.importorskip("jax", reason="JAX is not installed")
    if jax_module.default_backend() != "gpu":
        pytest.skip(f"JAX runs on {jax_module.default_backend()}, not on the GPU")
    return jax_module


@pytest.mark.parametrize("kind", ["int8", "float16", "float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize(
    ("shape", "axis", "sizes"),
    [((64, 30), 1, (7, 0, 23)), ((3, 5, 7), 0, (1, 2)), ((4096, 1027), -1, (512, 3, 512))],
)
def test_pieces_are_those_of_numpy_in_eager_and_compiled_calls(
    jax: Any, kind: str, shape: Any, axis: int, sizes: Any
) -> None:
    array = random(shape, kind)
    expected_pieces = np.split(np.asarray(array), list(np.cumsum(sizes)[:-1]), axis)
    for transform in (jax.jit, lambda function: function):
        pieces = transform(lambda array: dml.split(array, sizes, axis))(array)
        for piece, view in zip(pieces, expected_pieces, strict=True):
            assert (piece.dtype, piece.devices()) == (array.dtype, array.devices())
            assert np.asarray(piece).tobytes() == view.tobytes()


def test_work_before_and_after_the_split_is_in_order(jax: Any) -> None:
    """XLA makes the input and reads the pieces, again and again, without a wait in between."""

    @jax.jit
    def step(array: Any) -> Any:
        left, right = dml.split(array + 1, (3000, 1096), 1)
        return jax.numpy.concatenate([right, left], 1)

    array = jax.numpy.zeros((2048, 4096))
    for _ in range(50):
        array = step(array)
    assert float(array.min()) == float(array.max()) == 50


def test_a_compiled_split_allocates_only_the_pieces(jax: Any) -> None:
    array = jax.numpy.zeros((1024, 1024))
    compiled_split = jax.jit(lambda array: dml.split(array, 4, 1)).lower(array).compile()
    assert compiled_split.memory_analysis().temp_size_in_bytes < array.nbytes
