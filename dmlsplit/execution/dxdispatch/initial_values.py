"""Initial values of DxDispatch resources: arrays, constants, sequences, files.

Each form knows its size in bytes, but makes the bytes only when a model runs, and only as many of
the first ones as the model uses. Conversions follow DxDispatch's source (microsoft/DirectML,
DxDispatch/src/model) bit for bit.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.directml.tensor import NUMPY_TYPES, UINT_MAX, TensorDataType
from dmlsplit.errors import InvalidArgumentError, one_line, prefix_errors
from dmlsplit.files.fields import Field
from dmlsplit.files.npy_header import read_npy_header

LITTLE_ENDIAN = {member: np.dtype(f"<{name}") for member, name in NUMPY_TYPES.items()}
_DATA_TYPES = {dtype: data_type for data_type, dtype in LITTLE_ENDIAN.items()}
_DATA_TYPES[np.dtype("?")] = TensorDataType.UINT8
_WORDS = ("inf", "-inf", "nan")


@dataclass(frozen=True, slots=True)
class Numbers:
    """One value, many times or growing by `delta`; or all the values that the file lists, once."""

    data_type: TensorDataType
    item: bytes
    count: int = 1
    delta: bytes = b""

    @property
    def item_bytes(self) -> int:
        """The bytes of which `fill` writes a multiple."""
        return len(self.item)

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all values."""
        return len(self.item) * self.count

    def fill(self, target: np.ndarray) -> None:
        """Write the first values into an array of bytes."""
        if not self.delta:
            target.view(f"V{len(self.item)}")[:] = np.void(self.item)
            return
        dtype = LITTLE_ENDIAN[self.data_type]
        steps = target.view(dtype)
        steps[:] = np.frombuffer(self.delta, dtype)
        steps[:1] = np.frombuffer(self.item, dtype)
        # DxDispatch adds in the data type, in C++: integers wrap, and floats overflow to inf.
        with np.errstate(over="ignore"):
            np.add.accumulate(steps, dtype=dtype, out=steps)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The bytes of a file, without its header if it has one."""

    data_type: TensorDataType
    path: Path
    start: int
    size_in_bytes: int
    item_bytes: int = 1

    def fill(self, target: np.ndarray) -> None:
        """Read the first bytes into an array."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                count = file.readinto(target.data)
        except OSError as error:
            why = one_line(error, with_path=False)
            raise InvalidArgumentError(f"{self.path} cannot be read: {why}") from None
        if count != len(target):
            raise InvalidArgumentError(
                f"{self.path} became shorter while it was read: it has {self.start + count} bytes; "
                f"it must have at least {self.start + len(target)}. Fix: run this while nothing "
                "writes to the file"
            )


InitialValues = Numbers | SourceFile


def read_values(field: Field, data_type: TensorDataType, folder: Path) -> InitialValues:
    """Read ``initialValues``; they have the given data type, or that of a .npy file."""
    if isinstance(field.value, list):
        if data_type is TensorDataType.UNKNOWN:
            raise field.invalid("needs an initialValuesDataType, such as FLOAT32")
        return Numbers(data_type, encode(field.items(), data_type))
    keys = [key for key in ("value", "valueStart", "sourcePath") if field.find(key)]
    if len(keys) != 1:
        present = " and ".join(map(repr, keys)) or "none"
        raise field.invalid(
            "must be an array, or have one of 'value', 'valueStart', 'sourcePath'; it has "
            f"{present} of them"
        )
    if keys == ["sourcePath"]:
        return _read_file(field.get("sourcePath"), data_type, folder)
    if data_type not in LITTLE_ENDIAN:
        raise field.invalid("needs an initialValuesDataType, such as FLOAT32")
    count = field.get("valueCount").integer(1, UINT_MAX)
    if keys == ["value"]:
        return Numbers(data_type, encode([field.get("value")], data_type), count)
    if data_type is TensorDataType.FLOAT16:
        raise field.invalid("counts in FLOAT16, which is not supported. Fix: list the values")
    names = "valueStart", "valueDelta"
    start, delta = (encode([field.get(name)], data_type) for name in names)
    return Numbers(data_type, start, count, delta)


def path_in(field: Field, folder: Path) -> Path:
    """The path that a field names; it must not lead out of the folder."""
    name = field.text().replace("\\", "/")  # Windows' separator
    path = folder / name
    home = folder.resolve()
    try:
        real = path.resolve()
    except (OSError, RuntimeError, ValueError):
        real = home
    has_drive = name[1:2] == ":"
    # Since Python 3.13, `resolve` leaves circular links unresolved.
    is_link = os.path.islink(real)  # noqa: PTH114, which raises an error if a name is too long
    if has_drive or home not in real.parents or is_link:
        raise field.error(
            "a path inside the folder of the model; nothing outside it is read or written"
        )
    return path


def _read_file(field: Field, data_type: TensorDataType, folder: Path) -> SourceFile:
    """The file of ``sourcePath``, which must exist; only the header of a .npy file is read."""
    path = path_in(field, folder)
    suffix = path.suffix.lower()
    try:
        if not path.is_file():
            raise field.error("a file that exists")
        if suffix == ".npy":
            values = _npy(field, path)
            if data_type not in (TensorDataType.UNKNOWN, values.data_type):
                raise field.invalid(
                    f"has elements of {values.data_type.name}; initialValuesDataType is "
                    f"{data_type.name}, and must be the same. Fix: remove it"
                )
            return values
        size = path.stat().st_size
    except OSError as error:
        raise field.error(f"a file that can be read ({one_line(error, with_path=False)})") from None
    if suffix in (".png", ".jpg"):
        raise field.invalid("is an image, which is not supported. Fix: save its pixels as .npy")
    if data_type is TensorDataType.UNKNOWN:
        raise field.invalid("needs an initialValuesDataType, because the file is raw bytes")
    return SourceFile(data_type, path, 0, size)


def _npy(field: Field, path: Path) -> SourceFile:
    """The elements of a .npy file, whose size must be what its header says."""
    with prefix_errors(field.path), path.open("rb") as file:
        header = read_npy_header(file)
    data_type = _DATA_TYPES.get(header.dtype)
    declared = header.size_in_bytes
    if data_type is None:
        raise field.invalid(
            f"has elements of type {str(header.dtype)[:40]}, which DirectML lacks. Fix: save it "
            f"with one of the types {', '.join(sorted(map(str, _DATA_TYPES)))}"
        )
    if header.fortran_order:
        raise field.invalid("is in Fortran order, which is not supported. Fix: save it in C order")
    size = path.stat().st_size - header.offset
    if declared != size:
        raise field.invalid(
            f"has {size} bytes of data; its header says {declared}. Fix: copy the file again"
        )
    return SourceFile(data_type, path, header.offset, declared)


def encode(fields: Sequence[Field], data_type: TensorDataType) -> bytes:
    """The bytes of the numbers in a data type; an InvalidArgumentError if one does not fit."""
    if not fields:
        return b""
    if data_type not in LITTLE_ENDIAN:
        allowed = ", ".join(known.name for known in LITTLE_ENDIAN)
        raise fields[0].invalid(f"has the type {data_type.name}; it must be one of {allowed}")
    dtype = LITTLE_ENDIAN[data_type]
    if dtype.kind != "f":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return np.array([field.integer(low, high) for field in fields], dtype).tobytes()
    doubles = np.array([_real(field) for field in fields], np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        is_half = dtype.itemsize == 2
        values = to_float16(doubles.astype(np.float32)) if is_half else doubles.astype(dtype)
    for index in map(int, np.flatnonzero(np.isinf(values) & ~np.isinf(doubles))):
        raise fields[index].error(f"a number that fits {data_type.name}")
    return values.tobytes()


def _real(field: Field) -> float:
    """A number, which JSON may have to write as a string."""
    value: Any = field.value
    is_word = isinstance(value, str) and value.lower() in _WORDS
    if isinstance(value, bool) or not (is_word or isinstance(value, (int, float))):
        raise field.error("a number, 'nan', 'inf' or '-inf'")
    return float(value)


def to_float16(values: np.ndarray) -> np.ndarray:
    """Float32 values as float16, rounded toward zero as in DxDispatch's half type."""
    halves = values.astype("<f2")
    has_grown = np.abs(halves.astype(np.float32)) > np.abs(values)
    # One unit down; infinity becomes the largest finite value.
    halves.view("<u2")[has_grown & (np.abs(values) < 65536)] -= 1
    return halves
