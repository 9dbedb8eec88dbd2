"""Buffer tensors: DML_TENSOR_DATA_TYPE, DML_TENSOR_FLAGS and DML_BUFFER_TENSOR_DESC.

Constructors refuse only values that cannot be in a descriptor, such as a size that is not an
integer. The rules are in `dmlsplit.directml.validation`, so that a bad descriptor can be built and
reported.
"""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from functools import partial, reduce
from math import prod
from operator import or_
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

from dmlsplit.checks import Integers, integer, integers
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import packed_byte_strides
from dmlsplit.messages import did_you_mean, digits

if TYPE_CHECKING:
    import numpy as np

# DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT, DirectML.h.
MINIMUM_BUFFER_TENSOR_ALIGNMENT = 16
# DML_TENSOR_DIMENSION_COUNT_MAX1, DirectML.h: the limit of every operator at every level.
DIMENSION_COUNT_MAX = 8

UINT_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1

_E = TypeVar("_E", bound=Enum)


class TensorDataType(IntEnum):
    """DML_TENSOR_DATA_TYPE, with the values of DirectML.h.

    `UINT4` and `INT4` exist since DML_TARGET_VERSION 0x6300; no Split accepts them.

    Attributes
    ----------
    bits : int
        Bits of one element; 0 for UNKNOWN.
    numpy_name : str
        NumPy's name of the type, such as ``f4``, without byte order; empty if NumPy has none.

    See Also
    --------
    TensorDesc : A tensor of such elements.
    Device.supports_data_type : Whether Split accepts a type at a level.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> dml.TensorDataType.FLOAT16.bits
    16
    >>> dml.TensorDataType.parse("float32").name
    'FLOAT32'
    """

    _value_: int
    bits: int  # of one element; 0 for UNKNOWN
    numpy_name: str  # without byte order; empty if NumPy has no such type

    UNKNOWN = 0, 0
    FLOAT32 = 1, 32, "f4"
    FLOAT16 = 2, 16, "f2"
    UINT32 = 3, 32, "u4"
    UINT16 = 4, 16, "u2"
    UINT8 = 5, 8, "u1"
    INT32 = 6, 32, "i4"
    INT16 = 7, 16, "i2"
    INT8 = 8, 8, "i1"
    FLOAT64 = 9, 64, "f8"
    UINT64 = 10, 64, "u8"
    INT64 = 11, 64, "i8"
    UINT4 = 12, 4
    INT4 = 13, 4

    def __new__(cls, value: int, bits: int, numpy_name: str = "") -> TensorDataType:
        """Make a member from its value and attributes."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.bits = bits
        member.numpy_name = numpy_name
        return member

    @classmethod
    def parse(cls, value: TensorDataType | str | int | np.dtype) -> TensorDataType:
        """Read a data type from its DirectML name, its short name, a NumPy dtype or its value.

        For example ``"FLOAT32"``, ``"float32"``, ``"DML_TENSOR_DATA_TYPE_FLOAT32"``,
        ``numpy.dtype("float32")`` or ``1``.

        Parameters
        ----------
        value : TensorDataType, str, int or numpy.dtype
            The name, in any case, with or without ``DML_TENSOR_DATA_TYPE_``; or the value.

        Returns
        -------
        TensorDataType
            The data type.

        Raises
        ------
        InvalidArgumentError
            If no data type has that name or value.
        """
        return parse_data_type(value)


def parse_data_type(
    value: TensorDataType | str | int | np.dtype, name: str = "data type"
) -> TensorDataType:
    """`TensorDataType.parse`; `name` is that of the argument in errors."""
    member = _member(TensorDataType, value, "DML_TENSOR_DATA_TYPE_")
    if member is None:
        names = [member.name for member in TensorDataType if member]
        near = did_you_mean(value.upper(), names) if isinstance(value, str) else ""
        raise InvalidArgumentError(
            f"{name} is {value!r}; it must be one of {', '.join(names)} (with or without "
            f"DML_TENSOR_DATA_TYPE_) or a value from 1 to {max(TensorDataType)}{near}"
        )
    return member


NUMPY_TYPES = {member: member.numpy_name for member in TensorDataType if member.numpy_name}


class TensorFlags(IntFlag):
    """The flags of a tensor: DML_TENSOR_FLAGS.

    See Also
    --------
    TensorDesc : A tensor with flags.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> dml.TensorDesc("FLOAT32", (6,), flags="OWNED_BY_DML").flags.name
    'OWNED_BY_DML'
    """

    NONE = 0
    OWNED_BY_DML = 1

    @classmethod
    def parse(cls, value: TensorFlags | str | int | Sequence[str]) -> TensorFlags:
        """Read flags from their value, a DirectML name, a short name, or a list of names.

        Parameters
        ----------
        value : TensorFlags, str, int or list of str
            For example ``"OWNED_BY_DML"``, ``"DML_TENSOR_FLAG_OWNED_BY_DML"`` or ``1``.

        Returns
        -------
        TensorFlags
            The flags.

        Raises
        ------
        InvalidArgumentError
            If there are no such flags.
        """
        if isinstance(value, (list, tuple)):
            return reduce(or_, map(cls.parse, value), cls.NONE)
        flags = _member(cls, value, "DML_TENSOR_FLAG_")
        if flags is None:
            raise InvalidArgumentError(
                f"tensor flags are {value!r}; they must be NONE or OWNED_BY_DML"
            )
        return flags


def _member(enum: type[_E], value: object, prefix: str) -> _E | None:
    """The member with a value or name, with or without the prefix of DirectML.h."""
    members = enum.__members__
    if value is None:  # str(None) would name TensorFlags.NONE
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        # This map also has nameless members, which a Flag made earlier from unknown bits.
        member = enum._value2member_map_.get(value)
        return None if member is None else members.get(member._name_)
    return members.get(str(value).upper().removeprefix(prefix))


@dataclass(frozen=True, slots=True, init=False)
class TensorDesc:
    """DML_BUFFER_TENSOR_DESC: the layout of one tensor in a buffer.

    The constructor checks only types; the rules of Microsoft's "DML_BUFFER_TENSOR_DESC" are checked
    by `validate` and `Device.compile`.

    Parameters
    ----------
    data_type : TensorDataType, str, int or numpy.dtype
        Anything that `TensorDataType.parse` reads.
    sizes : sequence of int
        Elements per dimension, outermost first: 1 to 8 sizes of at least 1.
    strides : sequence of int, optional
        Elements between neighbours of each dimension, as many as `sizes`; None means packed
        row-major. 0 repeats one element (broadcast).
    flags : TensorFlags, str, int or list of str
        Anything that `TensorFlags.parse` reads; NONE if none are given.
    total_tensor_size_in_bytes : int, optional
        A multiple of 4. None means the smallest valid size, `minimum_size_in_bytes`.
    guaranteed_base_offset_alignment : int
        A power of two that divides the offset of every binding, in bytes; 0 promises nothing.

    Raises
    ------
    InvalidArgumentError
        If the data type or the flags do not exist, or if a number is not an integer. In the last
        case the error is also a TypeError.

    See Also
    --------
    SplitOperatorDesc : A split of such a tensor.
    TensorFlags : What `flags` may be.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> packed = dml.TensorDesc("UINT8", (1, 480, 640, 3))
    >>> packed.total_tensor_size_in_bytes
    921600
    >>> print(dml.TensorDesc("UINT8", (480, 640, 3), strides=(2048, 3, 1)))  # rows with padding
    UINT8[480,640,3] strides [2048,3,1]
    """

    # Each field's name in DML_BUFFER_TENSOR_DESC is beside it.
    data_type: TensorDataType  # DataType
    sizes: tuple[int, ...]  # Sizes
    strides: tuple[int, ...] | None  # Strides
    flags: TensorFlags  # Flags
    total_tensor_size_in_bytes: int  # TotalTensorSizeInBytes
    guaranteed_base_offset_alignment: int  # GuaranteedBaseOffsetAlignment

    def __init__(
        self,
        data_type: TensorDataType | str | int | np.dtype,
        sizes: Integers,
        *,
        strides: Integers | None = None,
        flags: TensorFlags | str | int | Sequence[str] = TensorFlags.NONE,
        total_tensor_size_in_bytes: SupportsIndex | None = None,
        guaranteed_base_offset_alignment: SupportsIndex = 0,
    ) -> None:
        put = partial(object.__setattr__, self)
        put("data_type", TensorDataType.parse(data_type))
        put("sizes", integers("sizes", sizes))
        put("strides", None if strides is None else integers("strides", strides))
        put("flags", TensorFlags.parse(flags))
        name = "total_tensor_size_in_bytes"
        total = total_tensor_size_in_bytes
        put(name, self.minimum_size_in_bytes if total is None else integer(name, total))
        name = "guaranteed_base_offset_alignment"
        put(name, integer(name, guaranteed_base_offset_alignment))

    @property
    def dimension_count(self) -> int:
        """The number of dimensions (DimensionCount)."""
        return len(self.sizes)

    @property
    def element_count(self) -> int:
        """The product of the sizes."""
        return prod(self.sizes)

    @property
    def element_bytes(self) -> int:
        """The bytes of one element; 0 for UNKNOWN and the 4-bit types."""
        return self.data_type.bits // 8

    @property
    def effective_strides(self) -> tuple[int, ...]:
        """The strides in elements; those of a packed tensor if none were given."""
        return packed_byte_strides(self.sizes, 1) if self.strides is None else self.strides

    @property
    def last_element_index(self) -> int:
        """The largest element index that the tensor reaches; -1 if it has no element.

        If strides are given, DMLCalcBufferTensorSize (Microsoft, "DirectML helper functions")
        computes this value in a 32-bit UINT. Here it is exact.
        """
        if min(self.sizes, default=1) <= 0:
            return -1
        if self.strides is None:
            return self.element_count - 1
        # Not strict, because a descriptor can be built with too few or too many strides.
        steps = zip(self.sizes, self.strides, strict=False)
        return sum((size - 1) * stride for size, stride in steps)

    @property
    def minimum_size_in_bytes(self) -> int:
        """The smallest valid TotalTensorSizeInBytes; 0 for UNKNOWN.

        Like DMLCalcBufferTensorSize, this is the number of bytes up to the end of the last element,
        rounded up to a multiple of 4. Unlike it, it never wraps; see `wrapped_size_in_bytes`.
        """
        return self._size_up_to(self.last_element_index)

    @property
    def wrapped_size_in_bytes(self) -> int:
        """The result of DMLCalcBufferTensorSize, whose 32-bit index may wrap."""
        return self._size_up_to(self.last_element_index & UINT_MAX)

    def _size_up_to(self, last_index: int) -> int:
        """The bytes of the elements up to an index, rounded up to a multiple of 4."""
        size = ((last_index + 1) * self.data_type.bits + 7) // 8
        return (size + 3) // 4 * 4

    def __str__(self) -> str:
        text = f"{self.data_type.name}[{','.join(map(digits, self.sizes))}]"
        if self.strides is not None:
            text += f" strides [{','.join(map(digits, self.strides))}]"
        return text


def byte_strides(tensor: TensorDesc) -> tuple[int, ...]:
    """The strides of a tensor whose elements have whole bytes, in bytes."""
    return tuple(step * tensor.element_bytes for step in tensor.effective_strides)
