"""Arrays and operators, most of them for tests on a GPU or on the simulated card."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.execution import device, in_memory, slices


def noise(shape: tuple[int, ...], dtype: str = "u1", seed: int = 0) -> np.ndarray:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(count), dtype).reshape(shape)


def compiled_split(
    shape: tuple[int, ...],
    sizes: Sequence[int],
    axis: int = 1,
    device: str = "cuda",
    kind: str = "FLOAT32",
) -> dml.CompiledOperator:
    x = dml.TensorDesc(kind, shape)
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=axis, sizes=sizes)
    return dml.Device(device).compile(desc)


def bound(source: Any, outs: list[Any], axis: int = 1, device: str = "cuda") -> dml.BoundOperator:
    sizes = [out.shape[axis] for out in outs]
    return compiled_split(source.shape, sizes, axis=axis, device=device).bind(source, outs)


class Interface:
    """An array of a library that has only ``__cuda_array_interface__``."""

    def __init__(self, array: Any, stream: int | None = None) -> None:
        self._array = array
        described = dict(array.__cuda_array_interface__)
        described.pop("stream", None)
        if stream is not None:
            described["stream"] = stream
        self.__cuda_array_interface__ = described


def source_and_outputs(columns: int = 100) -> tuple[Any, list[Any]]:
    import cupy

    source = cupy.asarray(noise((512, 3 * columns), "u4").view("f4"))
    return source, [cupy.zeros((512, columns), "f4"), cupy.zeros((512, 2 * columns), "f4")]


def is_split_into(source: Any, outs: list[Any]) -> bool:
    output_values = np.concatenate([out.get() for out in outs], 1)
    return bool(output_values.tobytes() == source.get().tobytes())


@contextmanager
def another_driver() -> Iterator[None]:
    """Use a new driver, for which no kernel is loaded."""
    import cupy

    with pytest.MonkeyPatch.context() as patch:
        make = partial(driver.Driver, cupy, driver.load().device_count)
        patch.setattr(driver, "load", cache(make))
        forget_programs()
        cupy.clear_memo()  # CuPy's own cache of kernels
        yield
    forget_programs()
    for number in range(driver.load().device_count):
        with cupy.cuda.Device(number):
            cupy.cuda.Device().synchronize()
    gc.collect()


def forget_programs() -> None:
    """Clear the caches that hold programs of a driver."""
    device._operators_of_few_pieces.cache_clear()
    device._operators_of_many_pieces.cache_clear()
    in_memory._backend.cache_clear()
    in_memory._splits_of_few_pieces.cache_clear()
    slices._indices.cache_clear()
    in_memory._splits_of_many_pieces.cache_clear()
