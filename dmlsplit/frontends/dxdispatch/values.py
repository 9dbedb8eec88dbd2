"""Initial values of DxDispatch resources: arrays, constants, sequences, typed lists, files.

Each form is a value that knows how many bytes it makes; the bytes are made only when a model
runs. Conversions follow DxDispatch's source (microsoft/DirectML, DxDispatch/src/model),
so that both start from the same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.directml.tensor import UINT_MAX, TensorDataType
from dmlsplit.fields import Field
from dmlsplit.frontends.dxdispatch.files import LITTLE_ENDIAN, SourceFile, read_file

_WORDS = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


@dataclass(frozen=True, slots=True)
class Repeated:
    """Some bytes, many times: one value, or once for values that the file spells out."""

    item: bytes
    count: int = 1

    @property
    def size_in_bytes(self) -> int:
        """Bytes that `fill` writes."""
        return len(self.item) * self.count

    def fill(self, target: np.ndarray) -> None:
        """Write the values into an array of bytes of that size."""
        target.view(f"V{len(self.item)}")[:] = np.void(self.item)


@dataclass(frozen=True, slots=True)
class Ramp:
    """A start value and steps from one value to the next, computed in the data type itself."""

    data_type: TensorDataType
    start: bytes
    delta: bytes
    count: int

    @property
    def size_in_bytes(self) -> int:
        """Bytes that `fill` writes."""
        return len(self.start) * self.count

    def fill(self, target: np.ndarray) -> None:
        """Write the values into an array of bytes of that size."""
        dtype = LITTLE_ENDIAN[self.data_type]
        steps = target.view(dtype)
        steps[:] = np.frombuffer(self.delta, dtype)
        steps[:1] = np.frombuffer(self.start, dtype)
        if self.data_type is TensorDataType.FLOAT16:
            _add_up_halves(steps)
            return
        # Sums leave the range of the type as they do in C++: integers wrap, floats end at inf.
        with np.errstate(over="ignore"):
            np.add.accumulate(steps, dtype=dtype, out=steps)


InitialValues = Repeated | Ramp | SourceFile


def read_values(
    field: Field, data_type: TensorDataType, folder: Path
) -> tuple[TensorDataType, InitialValues]:
    """Read ``initialValues``. The data type is the given one, or that of a .npy file."""
    if isinstance(field.value, list):
        if data_type is TensorDataType.UNKNOWN:
            typed = [(e.get("value"), data_type_of(e.get("type"))) for e in field.items()]
            return data_type, Repeated(b"".join(encoded([e], kind) for e, kind in typed))
        return data_type, Repeated(encoded(field.items(), data_type))
    if field.value == "deferred":
        raise field.wrong("is 'deferred', which is for ONNX dispatchables only")
    forms = {form: field.find(form) for form in ("value", "valueStart", "sourcePath")}
    given = [form for form, member in forms.items() if member]
    if len(given) != 1:
        raise field.wrong("must be an array or have one of 'value', 'valueStart', 'sourcePath'")
    if given == ["sourcePath"]:
        return read_file(field.get("sourcePath"), data_type, folder)
    if data_type not in LITTLE_ENDIAN:
        raise field.wrong("needs an initialValuesDataType, such as FLOAT32")
    count = field.get("valueCount").integer(1, UINT_MAX)
    if given == ["value"]:
        return data_type, Repeated(encoded([field.get("value")], data_type), count)
    start, delta = (encoded([field.get(f)], data_type) for f in ("valueStart", "valueDelta"))
    return data_type, Ramp(data_type, start, delta, count)


def data_type_of(field: Field) -> TensorDataType:
    """Read a DML_TENSOR_DATA_TYPE."""
    kind: TensorDataType = field.one_of(TensorDataType.__members__, "DML_TENSOR_DATA_TYPE_")
    return kind


def encoded(fields: Sequence[Field], data_type: TensorDataType) -> bytes:
    """Return numbers as the bytes of a data type; a number that does not fit is refused."""
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
    """Return float32 values as float16, rounded toward zero as DxDispatch's half type does."""
    near = values.astype("<f2")
    bits = near.view("<u2")
    # One unit down in magnitude; from infinity that is the largest finite value.
    bits[(np.abs(near.astype(np.float32)) > np.abs(values)) & (np.abs(values) < 65536)] -= 1
    return near


def _add_up_halves(steps: np.ndarray) -> None:
    """Replace float16 steps by their running sums, each rounded toward zero."""
    value = steps[:1]
    for at in range(1, len(steps)):
        with np.errstate(over="ignore", invalid="ignore"):
            following = halved(value.astype(np.float32) + steps[at].astype(np.float32))
        if following.tobytes() == value.tobytes():
            # Too large for the step to make a difference: it stays.
            steps[at:] = value
            return
        steps[at] = following[0]
        value = following
