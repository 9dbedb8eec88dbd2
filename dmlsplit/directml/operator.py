"""DML_SPLIT_OPERATOR_DESC: one input tensor, an axis, and the tensors it is split into."""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex

from dmlsplit.checks import Integers, instance, integer, integers, sequence
from dmlsplit.directml.tensor import TensorDesc, byte_strides
from dmlsplit.geometry import SplitGeometry, piece_shapes, split_geometry
from dmlsplit.messages import counted, digits


@dataclass(frozen=True, slots=True, init=False)
class SplitOperatorDesc:
    """A split as DirectML describes it: DML_SPLIT_OPERATOR_DESC.

    The constructor checks only types; the rules of Microsoft's "DML_SPLIT_OPERATOR_DESC" are
    checked by `validate` and `Device.compile`.

    Parameters
    ----------
    input_tensor : TensorDesc
        The tensor to split.
    output_tensors : sequence of TensorDesc
        The tensors to write, in order along the axis: with the data type and the sizes of the
        input, except along the axis, where their sizes add up to that of the input.
    axis : int
        The dimension to split, counted from 0. It cannot count from the end, because DirectML's
        Axis is a UINT.

    Raises
    ------
    InvalidArgumentError
        If a tensor is not a `TensorDesc` or the axis is not an integer. The error is also a
        TypeError.

    See Also
    --------
    validate : Which rules a descriptor breaks.
    Device.compile : An operator that runs a descriptor.
    split : Splits an array without a descriptor.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("FLOAT32", (6, 2))
    >>> parts = [dml.TensorDesc("FLOAT32", (2, 2)), dml.TensorDesc("FLOAT32", (4, 2))]
    >>> print(dml.SplitOperatorDesc(x, parts, axis=0))
    SPLIT axis 0: FLOAT32[6,2] -> FLOAT32[2,2], FLOAT32[4,2]
    """

    input_tensor: TensorDesc  # InputTensor
    output_tensors: tuple[TensorDesc, ...]  # OutputTensors
    axis: int  # Axis

    def __init__(
        self, input_tensor: TensorDesc, output_tensors: Iterable[TensorDesc], axis: SupportsIndex
    ) -> None:
        outputs = sequence("output_tensors", output_tensors, "TensorDesc")
        for index, tensor in enumerate(outputs):
            instance(f"output_tensors[{index}]", tensor, TensorDesc)
        object.__setattr__(self, "input_tensor", instance("input_tensor", input_tensor, TensorDesc))
        object.__setattr__(self, "output_tensors", outputs)
        object.__setattr__(self, "axis", integer("axis", axis))

    @classmethod
    def from_sizes(
        cls, input_tensor: TensorDesc, *, axis: SupportsIndex, sizes: Integers
    ) -> SplitOperatorDesc:
        """The descriptor of a split into packed pieces of the given sizes along an axis.

        Parameters
        ----------
        input_tensor : TensorDesc
            The tensor to split.
        axis : int
            The dimension to split, counted from 0.
        sizes : sequence of int
            The size of each output along the axis.

        Returns
        -------
        SplitOperatorDesc
            A descriptor that `validate` need not accept: the sizes may have any sum.

        Raises
        ------
        InvalidArgumentError
            If `input_tensor` is not a `TensorDesc`, or the axis or a size is not an integer. The
            error is also a TypeError.

        Examples
        --------
        >>> x = TensorDesc("FLOAT32", (1, 1, 6, 2))
        >>> print(SplitOperatorDesc.from_sizes(x, axis=2, sizes=(2, 1, 3)))
        SPLIT axis 2: FLOAT32[1,1,6,2] -> FLOAT32[1,1,2,2], FLOAT32[1,1,1,2], FLOAT32[1,1,3,2]
        """
        axis = integer("axis", axis)
        shape = instance("input_tensor", input_tensor, TensorDesc).sizes
        # An axis that is out of range stays in the descriptor, for validation to report.
        is_in_range = 0 <= axis < len(shape)
        output_sizes = integers("sizes", sizes)
        unique = tuple(set(output_sizes))  # a split may have many outputs of one size
        shapes = piece_shapes(shape, axis, unique) if is_in_range else [shape] * len(unique)
        tensors = [TensorDesc(input_tensor.data_type, shape) for shape in shapes]
        by_size = dict(zip(unique, tensors, strict=True))
        return cls(input_tensor, [by_size[size] for size in output_sizes], axis)

    @property
    def output_count(self) -> int:
        """The number of outputs (OutputCount)."""
        return len(self.output_tensors)

    @property
    def split_sizes(self) -> tuple[int, ...]:
        """The size of each output along the axis; empty if the axis is out of range."""
        shapes = [tensor.sizes for tensor in self.output_tensors]
        is_in_range = all(0 <= self.axis < len(shape) for shape in shapes)
        return tuple(shape[self.axis] for shape in shapes) if is_in_range else ()

    def __str__(self) -> str:
        head = f"SPLIT axis {digits(self.axis)}: {self.input_tensor} ->"
        if not 0 <= self.axis < self.input_tensor.dimension_count:
            # `from_sizes` cannot know the shapes of these outputs.
            return f"{head} {counted(self.output_count, 'output')}"
        outputs = [str(tensor) for tensor in self.output_tensors[:8]]
        if self.output_count > len(outputs):
            outputs.append(f"... ({self.output_count} outputs)")
        return f"{head} {', '.join(outputs)}"


def named_tensors(desc: SplitOperatorDesc) -> list[tuple[str, TensorDesc]]:
    """The tensors with their names in reports, the input first."""
    outputs = enumerate(desc.output_tensors)
    named = ((f"OutputTensors[{index}]", tensor) for index, tensor in outputs)
    return [("InputTensor", desc.input_tensor), *named]


def descriptor_geometry(desc: SplitOperatorDesc) -> SplitGeometry:
    """The byte copies of a descriptor that has passed validation."""
    shape = desc.input_tensor.sizes
    width = desc.input_tensor.element_bytes
    tensors = desc.input_tensor, *desc.output_tensors
    source, *outputs = map(byte_strides, tensors)
    return split_geometry(shape, desc.axis, desc.split_sizes, width, source, outputs)
