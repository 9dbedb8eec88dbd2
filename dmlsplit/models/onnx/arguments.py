"""Arguments of Split and SplitToSequence, with every check that does not need the shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NoReturn

from dmlsplit.checks import instance, integer_argument, integers, is_count, sequence
from dmlsplit.directml.rules.violation import ValidationReport
from dmlsplit.errors import InvalidArgumentError, prefix_errors
from dmlsplit.messages import counted
from dmlsplit.models.onnx.operators import ElementType, OperatorVersion
from dmlsplit.models.site import ProviderRemark


class Lengths(Enum):
    """A placeholder for lengths that are known only at run time.

    See Also
    --------
    node_arguments : Reads the arguments of a node whose lengths may be unknown.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> split = onnx.operator_version("Split", 13)
    >>> onnx.node_arguments(split, {}, [onnx.Lengths.AT_RUN_TIME], 2).split.name
    'AT_RUN_TIME'
    """

    AT_RUN_TIME = "known only when the model runs"


# The size of each output, or the chunk size of SplitToSequence.
SplitArgument = tuple[int, ...] | int | Lengths | None


@dataclass(frozen=True, slots=True)
class Arguments:
    """The checked arguments of a split.

    Attributes
    ----------
    operator : OperatorVersion
        The operator version.
    axis : int
        The axis as given; may be negative.
    split : tuple of int, int, Lengths or None
        Size of each output, or the chunk size of SplitToSequence; None if neither is given.
    num_outputs : int or None
        The attribute of Split-18; None if it is not set.
    keepdims : bool
        Whether keepdims of SplitToSequence is not 0; true for Split.
    output_count : int or None
        Number of outputs; None for a sequence.
    assumed : tuple of str
        Choices that the operator's specification leaves open, one sentence each.
    split_type : ElementType or None
        Data type of the sizes, if they are an array; None for other sizes.

    See Also
    --------
    read_arguments : Reads them from the attributes and inputs of a call.
    node_arguments : Reads them from a node of a model.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> arguments = onnx.read_arguments(onnx.operator_version("Split", 13), split=[2, 4])
    >>> arguments.axis, arguments.split
    (0, (2, 4))
    """

    operator: OperatorVersion
    axis: int
    split: SplitArgument
    num_outputs: int | None
    keepdims: bool
    output_count: int | None
    assumed: tuple[str, ...]
    split_type: ElementType | None = None

    @property
    def sized_by(self) -> str:
        """What gives the number of pieces, ``split``, ``chunk``, ``num_outputs`` or ``outputs``.

        ``chunk`` is a scalar split; ``outputs`` means that there is nothing else.
        """
        if isinstance(self.split, int):
            return "chunk"
        if self.split is not None:
            return "split"
        return "outputs" if self.num_outputs is None else "num_outputs"

    @property
    def keeps_axis(self) -> bool | None:
        """Whether the pieces keep the axis.

        None for keepdims=0 beside a scalar split, which ONNX and ONNX Runtime read differently.
        """
        if self.keepdims or isinstance(self.split, tuple):
            return True
        return False if self.split is None else None


# What ONNX Runtime must have to find that an argument is wrong: the model, the model with the size
# of the axis, or the tensors with which it runs the node. Seen with 1.15 to 1.32.
Found = Literal["load", "axis", "run"]


class SplitArgumentError(InvalidArgumentError):
    """An argument of a split breaks a rule; `found` says when ONNX Runtime finds that."""

    def __init__(
        self, message: str, report: ValidationReport | None = None, found: Found = "load"
    ) -> None:
        super().__init__(message, report)
        self.found = found


def refuse(
    operator: object, problem: str, allowed: str, fix: str = "", found: Found = "load"
) -> NoReturn:
    """Raise an error about an argument, in this front end's form."""
    hint = f". Fix: {fix}" if fix else ""
    raise SplitArgumentError(f"{operator}: {problem}; {allowed}{hint}", found=found)


def check_types(
    operator: OperatorVersion, data: ElementType | None, split: ElementType | None
) -> None:
    """Refuse data types that the operator does not accept; None if unknown or not given."""
    if data is not None and data not in operator.data_types:
        allowed = ", ".join(sorted(accepted.name for accepted in operator.data_types))
        bfloat = data is ElementType.BFLOAT16
        needed = "BFLOAT16 needs 13 for Split, 24 for SplitToSequence"
        fix = f"raise the opset: {needed}" if bfloat else ""
        refuse(operator, f"the data type is {data.name}", f"it must be one of {allowed}", fix)
    split_types = operator.split_types
    if data is not None and operator.since == 1:
        split_types = frozenset({data})
    if split is not None and operator.split_types and split not in split_types:
        allowed = " or ".join(sorted(accepted.name for accepted in split_types))
        refuse(operator, f"split has data type {split.name}", f"it must be {allowed}")


def node_arguments(
    operator: OperatorVersion,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    output_count: int,
) -> Arguments:
    """Read the arguments of a node in a model.

    Parameters
    ----------
    operator : OperatorVersion
        The version that the model's opset means.
    attributes : mapping of str to int or sequence of int
        The node's attributes by name.
    inputs : sequence
        The inputs after the data: an array, `Lengths.AT_RUN_TIME`, or None if omitted.
    output_count : int
        Number of the node's outputs, omitted ones included.

    Returns
    -------
    Arguments
        The arguments, checked as by `read_arguments`.

    Raises
    ------
    InvalidArgumentError
        If the operator version lacks an attribute or input of the node, or a value breaks a rule.

    See Also
    --------
    read_arguments : Reads the arguments of a call.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> split = onnx.operator_version("Split", 18)
    >>> onnx.node_arguments(split, {"axis": 1, "num_outputs": 3}, [None], 3).num_outputs
    3
    """
    instance("operator", operator, OperatorVersion)
    for name in instance("attributes", attributes, Mapping):  # type: ignore[type-abstract]
        if name not in operator.attributes:
            sizes_fix = "give the sizes as the second input, as opset 13 and later want them"
            fix = sizes_fix if name == "split" else "remove it"
            allowed = f"allowed attributes: {', '.join(operator.attributes)}"
            refuse(operator, f"attribute {name!r} is set", allowed, fix)
    limit = 2 if operator.split_types else 1
    values = sequence("inputs", inputs, "arrays")
    count = len(values) + 1
    if count > limit:
        sizes_fix = "give the sizes as the attribute 'split', as opsets before 13 want them"
        fix = "remove the others" if operator.split_types else sizes_fix
        refuse(operator, f"the node has {count} inputs", f"at most {limit} allowed", fix)
    length_input = values[0] if values else None
    if length_input is not None and "split" in attributes:
        refuse(operator, "sizes are given both as input and as attribute", "give only one")
    lengths = {} if length_input is None else {"split": length_input}
    return read_arguments(operator, output_count=output_count, **attributes, **lengths)


def read_arguments(
    operator: OperatorVersion,
    *,
    axis: Any = None,
    split: Any = None,
    num_outputs: Any = None,
    keepdims: Any = None,
    output_count: Any = None,
) -> Arguments:
    """Check the arguments of a split as far as possible without the input's shape.

    Parameters
    ----------
    operator : OperatorVersion
        The operator version.
    axis, num_outputs, keepdims : int, optional
        The attributes of those names; None if the node does not set them.
    split : sequence of int, int, array or Lengths, optional
        The size of each piece, or SplitToSequence's chunk size, which may be a 0-d array; or
        `Lengths.AT_RUN_TIME`.
    output_count : int, optional
        Number of outputs of a Split; None means the number of sizes, or `num_outputs`.
        Ignored for SplitToSequence, which has one output.

    Returns
    -------
    Arguments
        The arguments as given, with the number of outputs, and what was assumed.

    Raises
    ------
    InvalidArgumentError
        If a value breaks a rule of the operator, whose source is ONNX's documentation of its
        version (docs/Changelog.md).

    See Also
    --------
    node_arguments : Reads the arguments of a node in a model.
    lower : The descriptor that DirectML runs for these arguments.

    Examples
    --------
    >>> from dmlsplit.frontends import onnx
    >>> split = onnx.operator_version("Split", 18)
    >>> onnx.read_arguments(split, axis=1, split=[2, 4]).output_count
    2
    """
    assumed: list[str] = []
    instance("operator", operator, OperatorVersion)
    if axis is None and operator.since == 1:
        assumed.append("Split-1 has no default axis; 0 is assumed, as in later versions")
    split_type = ElementType.of_dtype(split.dtype) if hasattr(split, "dtype") else None
    check_types(operator, None, split_type)
    lengths = _split_argument(operator, split)
    keeps = True
    outputs = None
    if operator.makes_sequence:
        keeps = _checked_keepdims(operator, keepdims, lengths)
    else:
        outputs = _output_count(operator, lengths, num_outputs, output_count)
        if operator.since >= 18 and lengths is None and num_outputs is None:
            assumed.append(_assumed_count(operator, outputs))
    return Arguments(
        operator,
        axis=0 if axis is None else integer_argument("axis", axis, operator),
        split=lengths,
        num_outputs=None if num_outputs is None else outputs,
        keepdims=keeps,
        output_count=outputs,
        assumed=tuple(assumed),
        split_type=split_type,
    )


def _checked_keepdims(operator: OperatorVersion, keepdims: Any, lengths: SplitArgument) -> bool:
    """Whether keepdims of a SplitToSequence is not 0. It has no effect if there are lengths."""
    number = 1 if keepdims is None else integer_argument("keepdims", keepdims, operator)
    if number not in (0, 1) and lengths is None:
        refuse(operator, f"keepdims is {number}", "it must be 0 or 1")
    return number != 0


def _assumed_count(operator: OperatorVersion, count: int) -> ProviderRemark:
    """The warning about a Split that has neither sizes nor num_outputs."""
    return ProviderRemark(
        f"{operator} has neither sizes nor num_outputs, which ONNX forbids; assuming "
        f"{counted(count, 'equal piece')}, one per output",
        "ORT-NUM-OUTPUTS",
        "set num_outputs, or give the sizes as split",
    )


def _output_count(
    operator: OperatorVersion, lengths: SplitArgument, num_outputs: Any, output_count: Any
) -> int:
    """The number of outputs of a Split, as its sizes, num_outputs and outputs agree."""
    count = None
    if output_count is not None:
        count = integer_argument("output_count", output_count, operator)
    if num_outputs is not None:
        count = _checked_num_outputs(operator, lengths, num_outputs, count)
    if isinstance(lengths, tuple):
        if count not in (None, len(lengths)):
            problem = f"split has {counted(len(lengths), 'size')} for {counted(count, 'output')}"
            refuse(operator, problem, "the two must be equal", found="axis")
        count = len(lengths)
    if count is None:
        problem = "the number of pieces is not given"
        refuse(operator, problem, "give num_outputs, output_count or split")
    if count < 1:
        refuse(operator, f"there are {count} outputs", "there must be at least 1")
    return count


def _checked_num_outputs(
    operator: OperatorVersion, lengths: SplitArgument, num_outputs: Any, count: int | None
) -> int:
    """The attribute num_outputs of a node with `count` outputs, None if that is not given."""
    number = integer_argument("num_outputs", num_outputs, operator)
    problem = f"num_outputs is {number}"
    if operator.since < 18:
        refuse(operator, problem, "it exists since opset 18", "give output_count")
    if lengths is not None:
        refuse(operator, f"{problem} and sizes are given", "give only one of them")
    if number < 1:
        refuse(operator, problem, "it must be at least 1", found="axis")
    if count is not None and count != number:
        allowed = "the two must be equal"
        found: Found = "run"
        if count > number:
            allowed += "; loading such a model aborts the process of ONNX Runtime 1.32"
            found = "axis"
        refuse(operator, f"{problem} for {counted(count, 'output')}", allowed, found=found)
    return number


def _split_argument(operator: OperatorVersion, split: Any) -> SplitArgument:
    """The argument `split`, checked: sizes, a chunk size, or what it is instead of them."""
    if split is None or isinstance(split, Lengths):
        return split
    if operator.makes_sequence and is_count(split):
        chunk = integer_argument("split", split, operator)
        if chunk < 1:
            problem = f"the chunk size, a scalar split, is {chunk}"
            refuse(operator, problem, "it must be at least 1", found="axis")
        return chunk
    entries = split.tolist() if hasattr(split, "tolist") else split
    with prefix_errors(str(operator)):
        if ElementType.FLOAT in operator.split_types:
            entries = list(map(_whole_number, sequence("split", entries, "integers")))
        sizes = integers("split", entries)
    for index, size in enumerate(sizes):
        if size < 0:
            fix = "write out the size that -1 stands for"
            found: Found = "run" if operator.split_types else "load"
            refuse(operator, f"split[{index}] is {size}", "it must be at least 0", fix, found)
    return sizes


def _whole_number(entry: Any) -> Any:
    """An entry of `split` in Split-1, whose sizes have the data's floating type."""
    return int(entry) if isinstance(entry, float) and entry.is_integer() else entry
