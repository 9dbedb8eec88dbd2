"""The elements of small constants, without NumPy, whose import would double the time of a scan.

Elements are read from the model only; external data is never opened.
"""

import struct
from math import prod
from typing import Any

from dmlsplit.frontends.onnx.messages import Tensor, shown_name
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.reader import MAXIMUM_VALUES, Reader, WireError

# A number, or a dynamic size in a tensor of sizes: its name, or "?".
Item = int | float | str
# Elements of a value that does not depend on the inputs, in row-major order, or their tensor.
Constant = Tensor | tuple[Item, ...]


def elements(reader: Reader, constant: Constant) -> tuple[Any, ...]:
    """The elements of a small constant of integers, truths or floats.

    It is a WireError if it is external, too large, of another type, or does not fill its shape.
    """
    if not isinstance(constant, Tensor):
        return constant
    name = shown_name(constant.name)
    if constant.data_type not in _STORAGE or constant.location is not None:
        raise WireError(f"tensor {name!r} cannot be read as numbers")
    code, field = _STORAGE[ElementType(constant.data_type)]
    width = struct.calcsize(code)
    count = prod(constant.shape) if min(constant.shape, default=0) >= 0 else -1
    if not 0 <= count <= MAXIMUM_VALUES:
        raise WireError(
            f"tensor {name!r} has sizes {list(constant.shape)}; at most {MAXIMUM_VALUES} "
            "values are read"
        )
    stored = _stored(reader, constant, field, width)
    if len(stored) != count * width:
        raise WireError(
            f"tensor {name!r} has byte length {len(stored)}; its sizes {list(constant.shape)} need "
            f"{count * width}"
        )
    return struct.unpack(f"<{count}{code}", stored)


def _stored(reader: Reader, tensor: Tensor, field: str, width: int) -> bytes:
    limit = MAXIMUM_VALUES * width
    if tensor.raw_data is not None:
        return reader.copy(tensor.raw_data, limit)
    spans = getattr(tensor, field)
    if field in ("float_data", "double_data"):
        return b"".join(reader.copy(span, limit) for span in spans)
    numbers: list[int] = []
    for span in spans:
        reader.add_numbers(numbers, span)
    return b"".join((number % (1 << 8 * width)).to_bytes(width, "little") for number in numbers)


# Type, as `struct` names it, and field of a tensor's values. The bits of a FLOAT16 are a number in
# int32_data.
_STORAGE = {
    ElementType.INT64: ("q", "int64_data"),
    ElementType.INT32: ("i", "int32_data"),
    ElementType.FLOAT: ("f", "float_data"),
    ElementType.DOUBLE: ("d", "double_data"),
    ElementType.FLOAT16: ("e", "int32_data"),
    ElementType.BOOL: ("?", "int32_data"),
}
