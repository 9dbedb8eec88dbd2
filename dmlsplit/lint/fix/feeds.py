"""Inputs for running a model: random ones, and those of an .npz file, which is untrusted."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from dmlsplit.errors import DmlError, InvalidArgumentError, about, one_line, within
from dmlsplit.file_kinds import beginning, identify
from dmlsplit.lint.fix.graphs import fix_dimensions
from dmlsplit.storage.npy_header import NpyHeader, read_npy_header

Feeds = dict[str, np.ndarray]
# Sizes to try for dynamic dimensions: small ones, then those of images and sequences.
_DYNAMIC_SIZES = ((2, 1, 3), (4, 8, 16), (32, 64, 128), (224, 256, 512))
_MOST_ELEMENTS = 1 << 26
# Of all arrays, unpacked: a zip archive may expand a thousandfold.
_MOST_BYTES = 1 << 30


class _Input(NamedTuple):
    name: str
    kind: np.dtype
    sizes: tuple[int | str, ...] | None  # a name is a dynamic size; None is a dynamic rank


def feeds_of(
    path: str, sizes: Mapping[str, int], feed: Path | None
) -> Iterator[tuple[Feeds, bool]]:
    """Inputs for a model, and whether a failure on them is fatal (only if the file fixes them).

    Integers span their whole range, then only 0 and 1, because some are indices or sizes.
    """
    inputs = {value.name: value for value in _inputs(path, sizes)}
    arrays = _read_feed(feed, inputs) if feed else {}
    # Not a generator itself, so that a file that does not fit is an error at once.
    return _attempts([value for name, value in inputs.items() if name not in arrays], arrays)


def _attempts(missing: Sequence[_Input], arrays: Feeds) -> Iterator[tuple[Feeds, bool]]:
    """Three runs meet three sizes of every dynamic dimension, all of them different in each run.

    If a model does not run with different sizes, equal ones follow, and then larger ones.
    """
    names = dict.fromkeys(n for value in missing for n in value.sizes or () if isinstance(n, str))
    random = np.random.default_rng(20)
    kinds = _full_range, _small
    groups: Sequence[Sequence[int]] = _DYNAMIC_SIZES if names else [(0, 0)]
    for group, make, spread in product(groups, kinds, (1, 0) if len(names) > 1 else (0,)):
        for first in range(len(group)):
            sizes = {n: group[(first + spread * i) % len(group)] for i, n in enumerate(names)}
            shapes = [
                tuple(sizes[n] if isinstance(n, str) else n for n in value.sizes or ())
                for value in missing
            ]
            if max(map(prod, shapes), default=0) > _MOST_ELEMENTS:
                return
            pairs = zip(missing, shapes, strict=True)
            made = {value.name: make(random, value.kind, shape) for value, shape in pairs}
            yield {**arrays, **made}, bool(arrays) and not names


def _inputs(path: str, sizes: Mapping[str, int]) -> Iterator[_Input]:
    """The inputs without an initializer."""
    model = onnx.load_model(path, load_external_data=False)
    fix_dimensions(model, sizes)
    initialized = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in initialized:
            continue
        if not value.type.HasField("tensor_type"):
            what = f"input {value.name!r} is not a tensor"
            raise RuntimeError(f"{what}, so no random value can be made for it")
        tensor = value.type.tensor_type
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        # Some exporters write -1 for a dynamic size.
        shape = tuple(
            d.dim_value
            if d.HasField("dim_value") and d.dim_value >= 0
            else d.dim_param or f"{value.name}.{axis}"
            for axis, d in enumerate(tensor.shape.dim)
        )
        yield _Input(value.name, kind, shape if tensor.HasField("shape") else None)


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


def _read_feed(path: Path, inputs: Mapping[str, _Input]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, which must fit the inputs that the model declares."""
    with about(path):
        if path.exists() and not path.is_file():
            raise InvalidArgumentError("is not a regular file; it must be an .npz file")
        try:
            with zipfile.ZipFile(path) as archive:
                return _arrays(archive, inputs)
        except zipfile.BadZipFile:
            start = beginning(path)
            kind = "" if start.startswith(b"PK") else identify(start)
            raise InvalidArgumentError(
                kind or "is not an intact .npz file of numpy.savez"
            ) from None
        except OSError as error:
            raise InvalidArgumentError(one_line(error, with_path=False)) from None


def _arrays(archive: zipfile.ZipFile, inputs: Mapping[str, _Input]) -> dict[str, np.ndarray]:
    size = sum(entry.file_size for entry in archive.infolist())
    if size > _MOST_BYTES:
        raise InvalidArgumentError(f"unpacks to {size} bytes; it must be at most {_MOST_BYTES}")
    arrays: dict[str, np.ndarray] = {}
    for entry in archive.infolist():
        name = entry.filename.removesuffix(".npy")
        if name not in inputs:
            raise InvalidArgumentError(f"has {name!r}; the model's inputs are {', '.join(inputs)}")
        if name in arrays:
            raise InvalidArgumentError(f"has {name!r} twice")
        with within(name):
            try:
                arrays[name] = _array(archive, entry, inputs[name])
            except (DmlError, OSError):
                raise
            except Exception as error:  # each compression method has its own errors
                raise InvalidArgumentError(f"is damaged: {one_line(error)[:200]}") from None
    return arrays


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, value: _Input) -> np.ndarray:
    with archive.open(entry) as file:
        header = read_npy_header(file)
        _check(header, value)
        data = file.read(header.size_in_bytes + 1)
    if len(data) != header.size_in_bytes:
        raise InvalidArgumentError(f"is damaged: its header declares {header.size_in_bytes} bytes")
    array = np.ndarray(header.shape, header.dtype, data, order="F" if header.fortran_order else "C")
    array = array.astype(header.dtype.newbyteorder("="))
    return array.astype(str).astype(object) if value.kind.hasobject else array.view(value.kind)


def _check(header: NpyHeader, value: _Input) -> None:
    dtype, sizes = header.dtype.newbyteorder("="), value.sizes
    # NumPy stores types that it lacks, such as bfloat16, as bytes.
    allowed = (value.kind, np.dtype(value.kind.str))
    if dtype.kind not in "US" if value.kind.hasobject else dtype not in allowed:
        raise InvalidArgumentError(
            f"has data type {dtype}; the model's input has {value.kind}. "
            f"Fix: {value.name}.astype('{value.kind}')"
        )
    if sizes is None:
        return
    pairs = zip(header.shape, sizes, strict=False)
    if len(header.shape) != len(sizes) or any(isinstance(m, int) and m != n for n, m in pairs):
        declared = str(tuple("any" if isinstance(n, str) else n for n in sizes)).replace("'", "")
        raise InvalidArgumentError(f"has shape {header.shape}; the model's input has {declared}")
