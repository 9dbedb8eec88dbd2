"""Arrays of an .npz file that may be damaged or malicious: sizes and types are checked first."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dmlsplit.arrays.npy_header import NpyHeader, read_npy_header
from dmlsplit.errors import DmlError, InvalidArgumentError, about, one_line, within
from dmlsplit.mistaken import BEGINNING_BYTES, what_it_is

# Of all arrays, unpacked: a zip archive may hold a thousand times its size.
MOST_BYTES = 1 << 30


class ModelInput(NamedTuple):
    """What a model declares of an input."""

    name: str
    kind: np.dtype
    sizes: tuple[int | None, ...] | None  # None is a dynamic size, or rank


def read_feed(path: Path, inputs: Mapping[str, ModelInput]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, which must be what the model declares of its inputs."""
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
        with path.open("rb") as file:
            start = file.read(BEGINNING_BYTES)
        known = "" if start.startswith(b"PK") else what_it_is(start)
        raise InvalidArgumentError(known or "is not a whole .npz file, of numpy.savez") from None


def _arrays(archive: zipfile.ZipFile, inputs: Mapping[str, ModelInput]) -> dict[str, np.ndarray]:
    size = sum(entry.file_size for entry in archive.infolist())
    if size > MOST_BYTES:
        raise InvalidArgumentError(f"unpacks to {size} bytes; it must be at most {MOST_BYTES}")
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
            except Exception as error:  # each way to pack has errors of its own
                raise InvalidArgumentError(f"is damaged: {one_line(error)[:200]}") from None
    return arrays


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, wanted: ModelInput) -> np.ndarray:
    with archive.open(entry) as file:
        header = read_npy_header(file)
        _check(header, wanted)
        data = file.read(header.size_in_bytes + 1)
    if len(data) != header.size_in_bytes:
        raise InvalidArgumentError(f"is damaged: its header says {header.size_in_bytes} bytes")
    shape = header.shape[::-1] if header.fortran_order else header.shape
    array = np.ndarray(shape, header.dtype, data).astype(header.dtype.newbyteorder("="))
    array = array.T if header.fortran_order else array
    return array.astype(str).astype(object) if wanted.kind.hasobject else array.view(wanted.kind)


def _check(header: NpyHeader, wanted: ModelInput) -> None:
    """Refuse an array that is not what the model declares."""
    found, sizes = header.dtype.newbyteorder("="), wanted.sizes
    # NumPy writes types that it lacks, such as bfloat16, as bytes.
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
