"""Versions of ONNX's splits: their inputs, attributes and element types.

Source: the operator schemas of ONNX, `Split` and `SplitToSequence`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from dmlsplit.checks import integer_argument
from dmlsplit.directml.tensor import NUMPY_TYPES, TensorDataType
from dmlsplit.errors import InvalidArgumentError

OPERATORS = ("Split", "SplitToSequence")


class ElementType(IntEnum):
    """TensorProto.DataType, with the values of onnx.proto.

    See Also
    --------
    OperatorVersion : Which of them an operator splits.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> onnx.ElementType.BFLOAT16.value
    16
    """

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @classmethod
    def _missing_(cls, value: object) -> "ElementType | None":
        # A later version of ONNX may define the number.
        return cls.UNDEFINED if isinstance(value, int) else None

    @classmethod
    def of_dtype(cls, dtype: object) -> "ElementType":
        """The type of the elements of an array.

        Parameters
        ----------
        dtype : dtype
            The `dtype` of an array of any library, or the name of one.

        Returns
        -------
        ElementType
            STRING for strings and Python objects; UNDEFINED if ONNX has no such type.

        Examples
        --------
        >>> import numpy as np
        >>> ElementType.of_dtype(np.dtype("float32")).name
        'FLOAT'
        """
        name = str(dtype).removeprefix("torch.")
        if name == "object" or name.startswith(("<U", ">U", "StringDType")):
            return cls.STRING
        name = {"float32": "float", "float64": "double"}.get(name, name).upper().replace("_", "")
        # ONNX omits "finite" and "unsigned" from the name of a type that has no other form.
        names = (name, name.removesuffix("FN"), name.removesuffix("FNU"))
        return next((cls[n] for n in names if n in cls.__members__), cls.UNDEFINED)


class Carrier(NamedTuple):
    """The DirectML type that carries an element, and its lanes: how many make up one element."""

    data_type: TensorDataType
    lanes: int = 1

    @property
    def lane_dimensions(self) -> tuple[int, ...]:
        """The dimensions that lanes add to the shape of a tensor."""
        return (self.lanes,) if self.lanes > 1 else ()


# Types that DirectML lacks travel as the unsigned type of the same size; strings do not travel.
CARRIERS = {
    ElementType.FLOAT: Carrier(TensorDataType.FLOAT32),
    ElementType.DOUBLE: Carrier(TensorDataType.FLOAT64),
    ElementType.BFLOAT16: Carrier(TensorDataType.UINT16),
    ElementType.BOOL: Carrier(TensorDataType.UINT8),
    ElementType.COMPLEX64: Carrier(TensorDataType.UINT64),
    ElementType.COMPLEX128: Carrier(TensorDataType.UINT64, lanes=2),
} | {
    ElementType[data_type.name]: Carrier(data_type)
    for data_type in NUMPY_TYPES
    if data_type.name in ElementType.__members__
}


def element_bytes(name: str | None) -> int | None:
    """The bytes of an element of this type, which is FLOAT if unknown; None for strings."""
    carrier = CARRIERS.get(ElementType[name or "FLOAT"])
    return carrier and carrier.data_type.bits * carrier.lanes // 8


_FLOATS = frozenset({ElementType.FLOAT, ElementType.DOUBLE, ElementType.FLOAT16})
_ALL = frozenset(CARRIERS) | {ElementType.STRING}
_WITHOUT_BFLOAT16 = _ALL - {ElementType.BFLOAT16}
_INT64 = frozenset({ElementType.INT64})
_INT32_OR_64 = _INT64 | {ElementType.INT32}


@dataclass(frozen=True, slots=True)
class OperatorVersion:
    """The signature of one version of one operator.

    Attributes
    ----------
    name : str
        ``Split`` or ``SplitToSequence``.
    since : int
        The opset that introduced the version.
    data_types : frozenset of ElementType
        Data types that it splits.
    attributes : tuple of str
        Names of its attributes.
    split_types : frozenset of ElementType
        Types of the optional second input, `split`; empty if there is no such input. In Split-1
        it must have the type of the data.

    See Also
    --------
    operator_version : The version of an operator in an operator set.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> version = onnx.operator_version("Split", 17)
    >>> version.since, version.attributes
    (13, ('axis',))
    """

    name: str
    since: int
    data_types: frozenset[ElementType]
    attributes: tuple[str, ...]
    split_types: frozenset[ElementType]

    def __str__(self) -> str:
        return f"{self.name}-{self.since}"

    @property
    def makes_sequence(self) -> bool:
        """Whether the output is a sequence of tensors."""
        return self.name == "SplitToSequence"


_VERSIONS = (
    OperatorVersion("Split", 1, _FLOATS, ("axis", "split"), _FLOATS),
    OperatorVersion("Split", 2, _WITHOUT_BFLOAT16, ("axis", "split"), frozenset()),
    OperatorVersion("Split", 11, _WITHOUT_BFLOAT16, ("axis", "split"), frozenset()),
    OperatorVersion("Split", 13, _ALL, ("axis",), _INT64),
    OperatorVersion("Split", 18, _ALL, ("axis", "num_outputs"), _INT64),
    OperatorVersion("SplitToSequence", 11, _WITHOUT_BFLOAT16, ("axis", "keepdims"), _INT32_OR_64),
    OperatorVersion("SplitToSequence", 24, _ALL, ("axis", "keepdims"), _INT32_OR_64),
)


def operator_version(name: str, opset: int) -> OperatorVersion:
    """The version of an operator that a model with this opset means.

    Parameters
    ----------
    name : str
        ``Split`` or ``SplitToSequence``.
    opset : int
        The version of the domain ai.onnx that the model imports.

    Returns
    -------
    OperatorVersion
        The newest version that is not above the opset, as ONNX specifies (docs/Versioning.md).

    Raises
    ------
    InvalidArgumentError
        If the operator does not exist in that opset.

    See Also
    --------
    OperatorVersion : The types and attributes of a version.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> str(onnx.operator_version("SplitToSequence", 18))
    'SplitToSequence-11'
    """
    versions = [version for version in _VERSIONS if version.name == name]
    if not versions:
        raise InvalidArgumentError(f"name is {name!r}; it must be Split or SplitToSequence")
    opset = integer_argument("opset", opset, name)
    usable = [version for version in versions if version.since <= opset]
    if not usable:
        raise InvalidArgumentError(
            f"{name}: opset is {opset}; the operator exists since opset {versions[0].since}"
        )
    return usable[-1]
