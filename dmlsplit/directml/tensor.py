"""Buffer tensors: DML_TENSOR_DATA_TYPE, DML_TENSOR_FLAGS and DML_BUFFER_TENSOR_DESC.

Constructors refuse only what is not a descriptor at all, such as a size that is no
integer. Every DirectML rule lives in `dmlsplit.directml.validation`, so that a bad descriptor can
be built, printed and reported on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from math import prod
from typing import SupportsIndex

from dmlsplit.checks import integer, integers

# DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT, DirectML.h.
MINIMUM_BUFFER_TENSOR_ALIGNMENT = 16
# DML_TENSOR_DIMENSION_COUNT_MAX1, DirectML.h; the limit of every operator at any level.
DIMENSION_COUNT_MAX = 8

UINT_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1


class TensorDataType(IntEnum):
    """DML_TENSOR_DATA_TYPE, with the values of DirectML.h.

    `UINT4` and `INT4` exist since DML_TARGET_VERSION 0x6300; no Split accepts them.
    """

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13

    @property
    def bits(self) -> int:
        """Size of one element in bits; 0 for UNKNOWN."""
        return int("".join(filter(str.isdecimal, self.name)) or 0)

    @classmethod
    def parse(cls, value: object) -> TensorDataType:
        """Read a data type from its DirectML name, its short name, a NumPy dtype or its value.

        Parameters
        ----------
        value
            ``"FLOAT32"``, ``"float32"``, ``"DML_TENSOR_DATA_TYPE_FLOAT32"``,
            ``numpy.dtype("float32")`` or ``1``.

        Raises
        ------
        ValueError
            If no data type has that name or value.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            if value in cls._value2member_map_:
                return cls(value)
        elif not isinstance(value, bool):
            name = str(value).upper().removeprefix("DML_TENSOR_DATA_TYPE_")
            if name in cls.__members__:
                return cls[name]
        raise ValueError(
            f"data type is {value!r}; it must be one of {', '.join(cls.__members__)} "
            f"(with or without DML_TENSOR_DATA_TYPE_) or a value from 0 to {max(cls)}"
        )


# NumPy's names of the types, without byte order.
NUMPY_TYPES = {
    TensorDataType.FLOAT32: "f4",
    TensorDataType.FLOAT16: "f2",
    TensorDataType.FLOAT64: "f8",
    TensorDataType.UINT8: "u1",
    TensorDataType.UINT16: "u2",
    TensorDataType.UINT32: "u4",
    TensorDataType.UINT64: "u8",
    TensorDataType.INT8: "i1",
    TensorDataType.INT16: "i2",
    TensorDataType.INT32: "i4",
    TensorDataType.INT64: "i8",
}


class TensorFlags(IntFlag):
    """DML_TENSOR_FLAGS."""

    NONE = 0
    OWNED_BY_DML = 1

    @classmethod
    def parse(cls, value: object) -> TensorFlags:
        """Read flags from their value, a DirectML name, a short name, or a list of names."""
        if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1):
            return cls(value)
        if isinstance(value, (list, tuple)):
            flags = cls.NONE
            for name in value:
                flags |= cls.parse(name)
            return flags
        name = str(value).upper().removeprefix("DML_TENSOR_FLAG_")
        if name in ("NONE", "OWNED_BY_DML"):
            return cls[name]
        raise ValueError(f"tensor flags are {value!r}; they must be NONE or OWNED_BY_DML")


def packed_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides, in elements, of a tensor without padding."""
    strides = []
    stride = 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def last_element_index(sizes: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    """Return the index, in elements, of the last element that a tensor reaches.

    DMLCalcBufferTensorSize (Microsoft, "DirectML helper functions") computes this value in
    a 32-bit UINT when strides are given; here it is exact. Returns -1 for an empty tensor.
    """
    if any(size <= 0 for size in sizes):
        return -1
    if strides is None:
        return prod(sizes) - 1
    return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=False))


def calc_buffer_tensor_size(
    data_type: TensorDataType, sizes: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> int:
    """Return the smallest legal TotalTensorSizeInBytes of a tensor, in bytes.

    The arithmetic of DMLCalcBufferTensorSize (Microsoft, "DirectML helper functions"): the
    last byte reached, rounded up to a multiple of 4; 0 for UNKNOWN. Exact where the
    original wraps at 32 bits; see `wrapped_buffer_tensor_size`.
    """
    return _size_in_bytes(last_element_index(sizes, strides), data_type.bits)


def wrapped_buffer_tensor_size(
    data_type: TensorDataType, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> int:
    """Return what DMLCalcBufferTensorSize returns when its 32-bit index wraps, in bytes."""
    return _size_in_bytes(last_element_index(sizes, strides) & UINT_MAX, data_type.bits)


def _size_in_bytes(last_index: int, element_bits: int) -> int:
    size = ((last_index + 1) * element_bits + 7) // 8
    return (size + 3) // 4 * 4


@dataclass(frozen=True, slots=True, init=False)
class TensorDesc:
    """DML_BUFFER_TENSOR_DESC: how one tensor lies in a buffer.

    Parameters
    ----------
    data_type
        Anything that `TensorDataType.parse` reads.
    sizes
        Elements per dimension, outermost first.
    strides
        Elements between neighbours of each dimension; None means packed row-major.
        0 repeats one element (broadcast).
    flags
        `TensorFlags`.
    total_tensor_size_in_bytes
        None means the smallest legal size, `calc_buffer_tensor_size`.
    guaranteed_base_offset_alignment
        Bytes; 0 promises nothing.

    Raises
    ------
    TypeError
        If a number is not an integer.
    ValueError
        If the data type or the flags do not exist.
    """

    data_type: TensorDataType  # DataType
    sizes: tuple[int, ...]  # Sizes
    strides: tuple[int, ...] | None  # Strides
    flags: TensorFlags  # Flags
    total_tensor_size_in_bytes: int  # TotalTensorSizeInBytes
    guaranteed_base_offset_alignment: int  # GuaranteedBaseOffsetAlignment

    def __init__(
        self,
        data_type: object,
        sizes: Iterable[SupportsIndex],
        *,
        strides: Iterable[SupportsIndex] | None = None,
        flags: object = TensorFlags.NONE,
        total_tensor_size_in_bytes: SupportsIndex | None = None,
        guaranteed_base_offset_alignment: SupportsIndex = 0,
    ) -> None:
        kind = TensorDataType.parse(data_type)
        shape = integers("sizes", sizes)
        steps = None if strides is None else integers("strides", strides)
        put = object.__setattr__
        put(self, "data_type", kind)
        put(self, "sizes", shape)
        put(self, "strides", steps)
        put(self, "flags", TensorFlags.parse(flags))
        put(
            self,
            "total_tensor_size_in_bytes",
            calc_buffer_tensor_size(kind, shape, steps)
            if total_tensor_size_in_bytes is None
            else integer("total_tensor_size_in_bytes", total_tensor_size_in_bytes),
        )
        put(
            self,
            "guaranteed_base_offset_alignment",
            integer("guaranteed_base_offset_alignment", guaranteed_base_offset_alignment),
        )

    @property
    def dimension_count(self) -> int:
        """DimensionCount."""
        return len(self.sizes)

    @property
    def element_count(self) -> int:
        """Product of the sizes."""
        return prod(self.sizes)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; 0 for UNKNOWN and the 4-bit types."""
        return self.data_type.bits // 8

    @property
    def effective_strides(self) -> tuple[int, ...]:
        """The strides in elements, packed ones where none were given."""
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @property
    def minimum_size_in_bytes(self) -> int:
        """The smallest legal TotalTensorSizeInBytes."""
        return calc_buffer_tensor_size(self.data_type, self.sizes, self.strides)

    def __str__(self) -> str:
        text = f"{self.data_type.name}[{','.join(map(str, self.sizes))}]"
        if self.strides is not None:
            text += f" strides [{','.join(map(str, self.strides))}]"
        return text
