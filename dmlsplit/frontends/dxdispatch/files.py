"""Files next to a DxDispatch model: which paths are allowed, and the bytes of source files."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from dmlsplit.arrays.npy_header import read_npy_header
from dmlsplit.directml.tensor import NUMPY_TYPES, TensorDataType
from dmlsplit.errors import InvalidArgumentError, within
from dmlsplit.fields import Field

LITTLE_ENDIAN = {kind: np.dtype(f"<{name}") for kind, name in NUMPY_TYPES.items()}
_KINDS = {dtype: kind for kind, dtype in LITTLE_ENDIAN.items()}
_KINDS[np.dtype("?")] = TensorDataType.UINT8


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The bytes of a file after its header, if it has one.

    Big-endian elements are swapped: `swapped_bytes` is their size, or 1.
    """

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
            raise InvalidArgumentError(f"{self.path} cannot be read: {error}") from None
        if count != self.size_in_bytes:
            raise InvalidArgumentError(f"{self.path} became shorter while it was read")
        if self.swapped_bytes > 1:
            target.view(f"u{self.swapped_bytes}").byteswap(inplace=True)


def inside(field: Field, folder: Path) -> Path:
    """Return the path that a field names; one that leads out of the folder is refused."""
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
    # From Python 3.13 on, resolve() leaves links that lead in a circle as they are.
    if any(each.is_symlink() for each in (real, *real.parents)):
        raise field.error("a path that can be followed")
    if home not in real.parents:
        raise field.error("a path inside the folder of the model; links out are not followed")
    return path


def read_file(
    field: Field, data_type: TensorDataType, folder: Path
) -> tuple[TensorDataType, SourceFile]:
    """Find the data type and the bytes of a .npy or raw file. Nothing is loaded."""
    path = inside(field, folder)
    suffix = path.suffix.lower()
    try:
        if not path.is_file():
            raise field.error("a file that exists")
        if suffix == ".npy":
            found, values = _npy(field, path)
            if data_type not in (TensorDataType.UNKNOWN, found):
                raise field.wrong(f"has {found.name}; initialValuesDataType is {data_type.name}")
            return found, values
        size = path.stat().st_size
    except OSError as error:
        raise field.error(f"a file that can be read ({type(error).__name__})") from None
    if suffix in (".png", ".jpg"):
        raise field.wrong("is an image; save its pixels as .npy")
    if data_type is TensorDataType.UNKNOWN:
        raise field.wrong("needs an initialValuesDataType, because the file is raw bytes")
    return data_type, SourceFile(path, 0, size)


def _npy(field: Field, path: Path) -> tuple[TensorDataType, SourceFile]:
    with within(field.path), path.open("rb") as file:
        header = read_npy_header(file)
    dtype, wanted = header.dtype, header.size_in_bytes
    kind = _KINDS.get(dtype.newbyteorder("<"))
    if kind is None:
        raise field.wrong(f"has elements of type {str(dtype)[:40]}, which DirectML does not have")
    if header.fortran_order and len(header.shape) > 1:
        raise field.wrong("is in Fortran order; save it in C order")
    found = path.stat().st_size - header.offset
    if wanted != found:
        raise field.wrong(f"has {found} bytes of data; its header says {wanted}")
    swapped = dtype.itemsize if dtype.byteorder == ">" else 1
    return kind, SourceFile(path, header.offset, wanted, swapped)
