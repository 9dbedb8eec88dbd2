"""Initial values of DxDispatch resources: arrays, constants, sequences, typed lists, files.

Each form knows its size in bytes, but makes the bytes only when a model runs. Conversions follow
DxDispatch's source (microsoft/DirectML, DxDispatch/src/model) bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from dmlsplit.arrays.npy_header import read_npy_header
from dmlsplit.directml.tensor import NUMPY_TYPES, UINT_MAX, TensorDataType
from dmlsplit.errors import InvalidArgumentError, within
from dmlsplit.fields import Field

LITTLE_ENDIAN = {kind: np.dtype(f"<{name}") for kind, name in NUMPY_TYPES.items()}
_KINDS = {dtype: kind for kind, dtype in LITTLE_ENDIAN.items()}
_KINDS[np.dtype("?")] = TensorDataType.UINT8
_WORDS = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


@dataclass(frozen=True, slots=True)
class Repeated:
    """One value, many times; or all the values that the file lists, once."""

    item: bytes
    count: int

    @property
    def size_in_bytes(self) -> int:
        """The number of bytes that `fill` writes."""
        return len(self.item) * self.count

    def fill(self, target: np.ndarray) -> None:
        """Write the values into an array of bytes of that size."""
        target.view(f"V{len(self.item)}")[:] = np.void(self.item)


@dataclass(frozen=True, slots=True)
class Ramp(Repeated):
    """One value, then `delta` more at each step; the sums are computed in the data type."""

    data_type: TensorDataType
    delta: bytes

    def fill(self, target: np.ndarray) -> None:
        """Write the values into an array of bytes of that size."""
        dtype = LITTLE_ENDIAN[self.data_type]
        steps = target.view(dtype)
        steps[:] = np.frombuffer(self.delta, dtype)
        steps[:1] = np.frombuffer(self.item, dtype)
        if self.data_type is TensorDataType.FLOAT16:
            _add_up_halves(steps)
            return
        # As in C++, integers wrap and floats overflow to inf.
        with np.errstate(over="ignore"):
            np.add.accumulate(steps, dtype=dtype, out=steps)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The bytes of a file, without its header if it has one."""

    path: Path
    start: int
    size_in_bytes: int
    swapped_bytes: int = 1  # the size of big-endian elements; 1 if none

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


InitialValues = Repeated | SourceFile


def read_values(
    field: Field, data_type: TensorDataType, folder: Path
) -> tuple[TensorDataType, InitialValues]:
    """Read ``initialValues``, and the data type, which is the given one or that of a .npy file."""
    if isinstance(field.value, list):
        if data_type is TensorDataType.UNKNOWN:
            typed = [(e.get("value"), data_type_of(e.get("type"))) for e in field.items()]
            return data_type, Repeated(b"".join(encoded([e], kind) for e, kind in typed), 1)
        return data_type, Repeated(encoded(field.items(), data_type), 1)
    if field.value == "deferred":
        raise field.wrong("is 'deferred', which is for ONNX dispatchables only")
    forms = {form: field.find(form) for form in ("value", "valueStart", "sourcePath")}
    given = [form for form, member in forms.items() if member]
    if len(given) != 1:
        raise field.wrong("must be an array, or have one of 'value', 'valueStart', 'sourcePath'")
    if given == ["sourcePath"]:
        return _read_file(field.get("sourcePath"), data_type, folder)
    if data_type not in LITTLE_ENDIAN:
        raise field.wrong("needs an initialValuesDataType, such as FLOAT32")
    count = field.get("valueCount").integer(1, UINT_MAX)
    if given == ["value"]:
        return data_type, Repeated(encoded([field.get("value")], data_type), count)
    start, delta = (encoded([field.get(f)], data_type) for f in ("valueStart", "valueDelta"))
    return data_type, Ramp(start, count, data_type, delta)


def inside(field: Field, folder: Path) -> Path:
    """The path that a field names; it must not lead out of the folder."""
    name = field.text().replace("\\", "/")  # Windows' separator
    parts = PurePosixPath(name)
    drive = len(name) > 1 and name[1] == ":"
    if not name or "\0" in name or parts.is_absolute() or drive or ".." in parts.parts:
        raise field.error("a relative path inside the folder of the model")
    path = folder / parts
    try:
        real, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError):
        raise field.error("a path that can be followed") from None
    # Since Python 3.13, `resolve` leaves circular links unresolved.
    if any(each.is_symlink() for each in (real, *real.parents)):
        raise field.error("a path that can be followed")
    if home not in real.parents:
        raise field.error(
            "a path inside the folder of the model, because links out of it are not followed"
        )
    return path


def _read_file(
    field: Field, data_type: TensorDataType, folder: Path
) -> tuple[TensorDataType, SourceFile]:
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
        raise field.wrong("is an image, which is not supported. Fix: save its pixels as .npy")
    if data_type is TensorDataType.UNKNOWN:
        raise field.wrong("needs an initialValuesDataType, because the file is raw bytes")
    return data_type, SourceFile(path, 0, size)


def _npy(field: Field, path: Path) -> tuple[TensorDataType, SourceFile]:
    with within(field.path), path.open("rb") as file:
        header = read_npy_header(file)
    dtype, wanted = header.dtype, header.size_in_bytes
    kind = _KINDS.get(dtype.newbyteorder("<"))
    if kind is None:
        raise field.wrong(f"has elements of type {str(dtype)[:40]}, which DirectML lacks")
    if header.fortran_order and len(header.shape) > 1:
        raise field.wrong("is in Fortran order, which is not supported. Fix: save it in C order")
    found = path.stat().st_size - header.offset
    if wanted != found:
        raise field.wrong(f"has {found} bytes of data; its header says {wanted}")
    swapped = dtype.itemsize if dtype.byteorder == ">" else 1
    return kind, SourceFile(path, header.offset, wanted, swapped)


def data_type_of(field: Field) -> TensorDataType:
    """Read a DML_TENSOR_DATA_TYPE."""
    kind: TensorDataType = field.one_of(TensorDataType.__members__, "DML_TENSOR_DATA_TYPE_")
    return kind


def encoded(fields: Sequence[Field], data_type: TensorDataType) -> bytes:
    """The bytes of the numbers in a data type; an InvalidArgumentError if one does not fit."""
    if not fields:
        return b""
    if data_type not in LITTLE_ENDIAN:
        raise fields[0].wrong(f"has the type {data_type.name}, which resources cannot have")
    dtype = LITTLE_ENDIAN[data_type]
    if dtype.kind != "f":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        return np.array([f.integer(least, most) for f in fields], dtype).tobytes()
    wide = np.array([_real(field) for field in fields], np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = halved(wide.astype(np.float32)) if dtype.itemsize == 2 else wide.astype(dtype)
    lost = np.flatnonzero(np.isinf(narrow) & ~np.isinf(wide))
    if len(lost):
        raise fields[lost[0]].error(f"a number that fits {data_type.name}")
    return narrow.tobytes()


def _real(field: Field) -> float:
    value: Any = field.value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise field.error("a number, 'nan', 'inf' or '-inf'")
    return float(value)


def halved(values: np.ndarray) -> np.ndarray:
    """Float32 values as float16, rounded toward zero as in DxDispatch's half type."""
    near = values.astype("<f2")
    bits = near.view("<u2")
    # Where the magnitude grew, go one unit down; infinity becomes the largest finite value.
    bits[(np.abs(near.astype(np.float32)) > np.abs(values)) & (np.abs(values) < 65536)] -= 1
    return near


def _add_up_halves(steps: np.ndarray) -> None:
    """Replace float16 steps by their running sums, each rounded toward zero, in place."""
    value = steps[:1]
    for at in range(1, len(steps)):
        with np.errstate(over="ignore", invalid="ignore"):
            following = halved(value.astype(np.float32) + steps[at].astype(np.float32))
        if following.tobytes() == value.tobytes():
            steps[at:] = value  # further steps do not change the value either
            return
        steps[at] = following[0]
        value = following
