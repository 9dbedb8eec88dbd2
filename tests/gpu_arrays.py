"""Arrays and bound operators for tests on a GPU or on the simulated card."""

from __future__ import annotations

from typing import Any

import numpy as np

import dmlsplit as dml


def noise(shape: tuple[int, ...], dtype: str = "u1", seed: int = 0) -> np.ndarray:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(count), dtype).reshape(shape)


def cuts(sizes: tuple[int, ...]) -> list[int]:
    return [int(end) for end in np.cumsum(sizes)[:-1]]


def bound(source: Any, outs: list[Any]) -> dml.BoundOperator:
    x = dml.TensorDesc("FLOAT32", source.shape)
    sizes = [out.shape[1] for out in outs]
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=sizes)
    return dml.Device("cuda").compile(desc).bind(source, outs)


def problem(columns: int = 100) -> tuple[Any, list[Any]]:
    import cupy

    source = cupy.asarray(noise((512, 3 * columns), "u4").view("f4"))
    return source, [cupy.zeros((512, columns), "f4"), cupy.zeros((512, 2 * columns), "f4")]


def same(source: Any, outs: list[Any]) -> bool:
    joined = np.concatenate([out.get() for out in outs], 1)
    return bool(joined.tobytes() == source.get().tobytes())
