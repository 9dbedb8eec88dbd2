"""The function that JAX calls on a CUDA device makes one launch on XLA's stream.

The tests need neither JAX nor a GPU.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dmlsplit.frameworks import jax
from tests.support.fake_cuda import FakeDriver

STREAM = 0x7E


class Buffer:
    """A buffer of XLA: a shape, a type, and memory that DLPack gives access to."""

    def __init__(self, memory: np.ndarray, device: tuple[int, int]) -> None:
        self.memory, self.shape, self.dtype = memory, memory.shape, memory.dtype
        self._device = device

    def __dlpack__(self) -> Any:
        return self.memory.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    @property
    def address(self) -> int:
        return int(self.memory.__array_interface__["data"][0])


def call(shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]) -> list[Buffer]:
    """Call back with an array of 16-bit elements and pieces on device 1, and return them all."""
    shapes = [shape, *((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)]
    array, *pieces = [Buffer(np.zeros(one, "i2"), (2, 1)) for one in shapes]
    jax._copy(axis, sizes, SimpleNamespace(stream=STREAM), pieces, array)
    return [array, *pieces]


def test_the_callback_is_one_launch_on_xlas_stream(fake: FakeDriver) -> None:
    buffers = call((64, 30), 1, (7, 23))
    (launched,) = fake.launched
    assert (launched.device, launched.stream) == (1, STREAM)
    assert launched.addresses == tuple(buffer.address for buffer in buffers)


def test_a_repeated_callback_makes_no_other_cuda_call(fake: FakeDriver) -> None:
    call((64, 30), 1, (7, 23))
    fake.calls.clear()
    call((64, 30), 1, (7, 23))
    assert fake.calls == ["pack", "launch"]


def test_a_split_without_bytes_launches_nothing(fake: FakeDriver) -> None:
    call((0, 30), 1, (7, 23))
    assert not fake.launched


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
    for piece, wanted in zip(pieces, np.split(host, [7, 7], -1), strict=True):
        np.testing.assert_array_equal(piece.get(), wanted)
