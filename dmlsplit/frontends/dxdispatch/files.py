"""Files beside a DxDispatch model: which may be touched, and what a source file holds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import Any

import numpy as np

from dmlsplit.directml.tensor import NUMPY_TYPES, TensorDataType
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.dxdispatch.strict_json import Field

LITTLE_ENDIAN = {kind: np.dtype(f"<{name}") for kind, name in NUMPY_TYPES.items()}
_KINDS = {dtype: kind for kind, dtype in LITTLE_ENDIAN.items()}
_KINDS[np.dtype("?")] = TensorDataType.UINT8


@dataclass(frozen=True, slots=True)
class SourceFile:
    """Bytes of a file, behind its header if it has one."""

    path: Path
    start: int
    size_in_bytes: int
    swapped_bytes: int = 1

    def fill(self, target: np.ndarray) -> None:
        """Read the bytes into an array of that size."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                count = file.readinto(target.data)
        except OSError as error:
            raise InvalidArgumentError(f"{self.path}: cannot be read: {error}") from None
        if count != self.size_in_bytes:
            raise InvalidArgumentError(f"{self.path}: became shorter while it was read")
        if self.swapped_bytes > 1:
            target.view(f"u{self.swapped_bytes}").byteswap(inplace=True)


def inside(field: Field, folder: Path) -> Path:
    """Return the path that a field names, which must lie inside the folder.

    Raises
    ------
    InvalidArgumentError
        If it is absolute, climbs with ``..``, or a link leads out.
    """
    # Files written on Windows separate folders with backslashes.
    name = field.text().replace("\\", "/")
    parts = PurePosixPath(name)
    drive = len(name) > 1 and name[1] == ":"
    if not name or "\0" in name or parts.is_absolute() or drive or ".." in parts.parts:
        raise field.error("a relative path inside the folder of the model")
    path = folder / parts
    try:
        real, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError):
        raise field.error("a path that can be followed") from None
    if home not in real.parents:
        raise field.error("a path inside the folder of the model; links out are not followed")
    return path


def read_file(
    field: Field, data_type: TensorDataType, folder: Path
) -> tuple[TensorDataType, SourceFile]:
    """Look at a .npy or raw file: its data type and where its bytes lie. Nothing is loaded."""
    path = inside(field, folder)
    suffix = path.suffix.lower()
    try:
        if not path.is_file():
            raise field.error("a file that exists")
        size = path.stat().st_size
        if suffix == ".npy":
            found, values = _npy(field, path, size)
            if data_type not in (TensorDataType.UNKNOWN, found):
                raise field.wrong(f"holds {found.name}; initialValuesDataType is {data_type.name}")
            return found, values
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise field.error(f"a file that can be read ({type(error).__name__})") from None
    if suffix in (".png", ".jpg"):
        raise field.wrong("is an image; save its pixels as .npy")
    if data_type is TensorDataType.UNKNOWN:
        raise field.wrong("needs an initialValuesDataType, because the file is raw bytes")
    return data_type, SourceFile(path, 0, size)


def _npy(field: Field, path: Path, size: int) -> tuple[TensorDataType, SourceFile]:
    with path.open("rb") as file:
        try:
            shape, fortran, dtype = _npy_header(file)
        except (ValueError, TypeError, SyntaxError, TokenError, OverflowError) as error:
            first = (str(error).splitlines() or ["?"])[0]
            raise field.wrong(f"is not a .npy file: {first[:120]}") from None
        except (RecursionError, MemoryError):
            raise field.wrong("is not a .npy file: its header nests too deeply") from None
        start = file.tell()
    kind = None if dtype.hasobject else _KINDS.get(dtype.newbyteorder("<"))
    if kind is None:
        raise field.wrong(f"holds elements of type {str(dtype)[:40]}, which DirectML has not")
    if fortran and len(shape) > 1:
        raise field.wrong("is in Fortran order; save it in C order")
    wanted = prod(shape) * dtype.itemsize
    if wanted != size - start:
        raise field.wrong(f"has {size - start} bytes of data; its header says {wanted}")
    swapped = dtype.itemsize if dtype.byteorder == ">" else 1
    return kind, SourceFile(path, start, wanted, swapped)


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"its version is {version}; it must be (1, 0) or (2, 0)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, fortran, dtype = readers[version](file)
    if any(size < 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype
