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

from dmlsplit.arrays.npy_header import NpyHeader, read_npy_header
from dmlsplit.errors import DmlError, InvalidArgumentError, about, one_line, within
from dmlsplit.frontends.onnx.inference import fix_dimensions
from dmlsplit.mistaken import beginning, what_it_is

Feeds = dict[str, np.ndarray]
# Sizes to try for dynamic dimensions: small ones, then those of images and sequences.
_DYNAMIC_SIZES = (2, 1, 4, 8, 3, 16, 32, 64, 128, 224, 256, 512)
_MOST_ELEMENTS = 1 << 26
# Of all arrays, unpacked: a zip archive may expand a thousandfold.
_MOST_BYTES = 1 << 30


class _Input(NamedTuple):
    name: str
    kind: np.dtype
    sizes: tuple[int | None, ...] | None  # None is a dynamic size, or rank


def feeds_of(
    path: str, sizes: Mapping[str, int], given: Path | None
) -> Iterator[tuple[Feeds, bool]]:
    """Inputs for a model, and whether a failure on them is fatal (only if the file fixes them).

    Integers span their whole range, then only 0 and 1, because some are indices or sizes.
    """
    inputs = {each.name: each for each in _inputs(path, sizes)}
    arrays = _read_feed(given, inputs) if given else {}
    return _attempts([each for name, each in inputs.items() if name not in arrays], arrays)


def _attempts(missing: Sequence[_Input], arrays: Feeds) -> Iterator[tuple[Feeds, bool]]:
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


def _inputs(path: str, sizes: Mapping[str, int]) -> Iterator[_Input]:
    """The inputs without an initializer."""
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
            with _opened(path) as archive:
                return _arrays(archive, inputs)
        except OSError as error:
            raise InvalidArgumentError(one_line(error, with_path=False)) from None


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        start = beginning(path)
        known = "" if start.startswith(b"PK") else what_it_is(start)
        raise InvalidArgumentError(known or "is not an intact .npz file of numpy.savez") from None


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


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, wanted: _Input) -> np.ndarray:
    with archive.open(entry) as file:
        header = read_npy_header(file)
        _check(header, wanted)
        data = file.read(header.size_in_bytes + 1)
    if len(data) != header.size_in_bytes:
        raise InvalidArgumentError(f"is damaged: its header declares {header.size_in_bytes} bytes")
    array = np.ndarray(header.shape, header.dtype, data, order="F" if header.fortran_order else "C")
    array = array.astype(header.dtype.newbyteorder("="))
    return array.astype(str).astype(object) if wanted.kind.hasobject else array.view(wanted.kind)


def _check(header: NpyHeader, wanted: _Input) -> None:
    found, sizes = header.dtype.newbyteorder("="), wanted.sizes
    # NumPy stores types that it lacks, such as bfloat16, as bytes.
    allowed = (wanted.kind, np.dtype(wanted.kind.str))
    if found.kind not in "US" if wanted.kind.hasobject else found not in allowed:
        raise InvalidArgumentError(
            f"has data type {found}; the model's input has {wanted.kind}. "
            f"Fix: {wanted.name}.astype('{wanted.kind}')"
        )
    if sizes is None:
        return
    pairs = zip(header.shape, sizes, strict=False)
    if len(header.shape) != len(sizes) or any(m not in (None, n) for n, m in pairs):
        declared = str(tuple("any" if n is None else n for n in sizes)).replace("'", "")
        raise InvalidArgumentError(f"has shape {header.shape}; the model's input has {declared}")
