"""Reads the elements of small constants; external data is never opened."""

from math import prod

import numpy as np

from dmlsplit.frontends.onnx.messages import MAXIMUM_VALUES, Tensor, TensorValues, shown_name
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.reader import Reader, WireError

# Elements of a value that does not depend on the inputs, or their tensor.
Constant = Tensor | tuple[int, ...] | int


def elements(reader: Reader, constant: Constant) -> np.ndarray:
    """Return the elements of a small constant of integers or floats.

    Raises
    ------
    WireError
        If it is external, too large, of another type, or its bytes do not fill its shape.
    """
    if not isinstance(constant, Tensor):
        return np.array(constant, np.int64)
    name = shown_name(constant.name)
    if constant.data_type not in _STORAGE or constant.location is not None:
        raise WireError(f"tensor {name!r} cannot be read as numbers")
    kind, field = _STORAGE[ElementType(constant.data_type)]
    dtype = np.dtype(kind)
    count = prod(constant.shape) if min(constant.shape, default=0) >= 0 else -1
    if not 0 <= count <= MAXIMUM_VALUES:
        raise WireError(
            f"tensor {name!r} has sizes {list(constant.shape)}; at most {MAXIMUM_VALUES} "
            "values are read"
        )
    stored = _stored(reader, constant, field, dtype.itemsize)
    if len(stored) != count * dtype.itemsize:
        raise WireError(
            f"tensor {name!r} has {len(stored)} bytes; its {count} values take "
            f"{count * dtype.itemsize}"
        )
    return np.frombuffer(stored, dtype).reshape(constant.shape)


def _stored(reader: Reader, tensor: Tensor, field: str, item_bytes: int) -> bytes:
    """Return a tensor's values as raw bytes, from `raw_data` or the field of its type."""
    most = MAXIMUM_VALUES * item_bytes
    values = reader.read(TensorValues, tensor.span)
    if values.raw_data is not None:
        return reader.copy(values.raw_data, most)
    entries = getattr(values, field)
    if len(entries) > MAXIMUM_VALUES:
        raise WireError(f"byte {tensor.span.start}: more than {MAXIMUM_VALUES} values")
    if field in ("float_data", "double_data"):
        return b"".join(reader.copy(inside, most) for inside in entries)
    return np.array(entries, np.int64).astype(f"<i{item_bytes}").tobytes()


# Type and field of a tensor's values. The bits of a FLOAT16 are a number in int32_data.
_STORAGE = {
    ElementType.INT64: ("<i8", "int64_data"),
    ElementType.INT32: ("<i4", "int32_data"),
    ElementType.FLOAT: ("<f4", "float_data"),
    ElementType.DOUBLE: ("<f8", "double_data"),
    ElementType.FLOAT16: ("<f2", "int32_data"),
}
