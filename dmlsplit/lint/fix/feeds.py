"""Inputs to run a model on: those of an .npz file, and random ones."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from dmlsplit.frontends.onnx.inference import fix_dimensions
from dmlsplit.lint.fix.feed_file import ModelInput, read_feed

Feeds = dict[str, np.ndarray]
# Sizes for dynamic dimensions that have none: small ones, then those of images and sequences.
_DYNAMIC_SIZES = (2, 1, 4, 8, 3, 16, 32, 64, 128, 224, 256, 512)
_MOST_ELEMENTS = 1 << 26


def feeds_of(
    path: str, sizes: Mapping[str, int], given: Path | None
) -> Iterator[tuple[Feeds, bool]]:
    """Inputs for a model, and whether a failure on them is fatal: only for those of the file.

    Integers are of their whole range, or else 0 and 1: some are indices or sizes.
    """
    inputs = {each.name: each for each in _inputs(path, sizes)}
    arrays = read_feed(given, inputs) if given else {}
    return _attempts([each for name, each in inputs.items() if name not in arrays], arrays)


def _attempts(missing: Sequence[ModelInput], arrays: Feeds) -> Iterator[tuple[Feeds, bool]]:
    dynamic = any(None in (each.sizes or ()) for each in missing)
    random = np.random.default_rng(20)
    attempts = product(_DYNAMIC_SIZES if dynamic else (0, 0), (_full_range, _small))
    for size, make in attempts:
        shapes = [tuple(size if n is None else n for n in each.sizes or ()) for each in missing]
        if max(map(prod, shapes), default=0) > _MOST_ELEMENTS:
            return
        pairs = zip(missing, shapes, strict=True)
        made = {each.name: make(random, each.kind, shape) for each, shape in pairs}
        yield {**arrays, **made}, bool(arrays) and not dynamic


def _inputs(path: str, sizes: Mapping[str, int]) -> Iterator[ModelInput]:
    """The inputs that have no initializer."""
    model = onnx.load_model(path, load_external_data=False)
    fix_dimensions(model, sizes)
    given = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in given:
            continue
        if not value.type.HasField("tensor_type"):
            raise RuntimeError(
                f"input {value.name!r} is not a tensor, so no random value can be made for it"
            )
        tensor = value.type.tensor_type
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        # Some exporters write -1 for a dynamic size.
        shape = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None
            for d in tensor.shape.dim
        )
        yield ModelInput(value.name, kind, shape if tensor.HasField("shape") else None)


def _full_range(random: np.random.Generator, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    return _small(random, kind, shape)


def _small(random: np.random.Generator, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    if kind.kind in "OUST":
        return random.integers(0, 100, shape).astype(str).astype(object)
    if kind.kind in "iub":
        return random.integers(0, 2, shape).astype(kind)
    return random.standard_normal(shape).astype(kind)
