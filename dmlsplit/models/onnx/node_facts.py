"""The valid and known facts about a split node of a scanned model."""

from typing import Any, NamedTuple

from dmlsplit.checks import axis_from_front
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import counted
from dmlsplit.models.limits import MAX_NODE_PIECES, MAX_VALUES
from dmlsplit.models.lowering import Lowering
from dmlsplit.models.onnx.arguments import Arguments, Lengths, check_types, node_arguments, refuse
from dmlsplit.models.onnx.lowering import lower_checked, output_count
from dmlsplit.models.onnx.operators import ElementType, OperatorVersion, operator_version
from dmlsplit.models.onnx.protobuf import Node, Shape, Tensor, shown_name
from dmlsplit.models.onnx.reader import LimitError, Reader, WireError
from dmlsplit.models.onnx.values import UNKNOWN, InferenceContext, Value, elements
from dmlsplit.models.site import Cause, UnknownSplitError


class NodeFacts(NamedTuple):
    """The facts about a split node, each of which needs those before it.

    A problem leaves out all that would follow.
    """

    operator: OperatorVersion | None
    # The element type; None also if the model does not say it.
    element_type: ElementType | None
    arguments: Arguments | None
    # The axis, counted from the front.
    axis: int | None
    # The split with 1 for each dynamic size, and FLOAT for an unknown type.
    lowering: Lowering | None
    problem: InvalidArgumentError | UnknownSplitError | None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of the pieces along the axis; None if they are not known."""
        if self.lowering is not None:
            return self.lowering.sizes
        split = self.arguments.split if self.arguments else None
        return split if isinstance(split, tuple) else None


def node_facts(context: InferenceContext, opset: int) -> NodeFacts:
    """The facts about a node; `opset` is 0 if the model imports no default domain."""
    data, lengths = (*context.inputs, UNKNOWN, UNKNOWN)[:2]
    operator = element_type = arguments = axis = lowering = problem = None
    try:
        operator = _operator(context.node, opset)
        check_types(operator, data.element_type, lengths.element_type)
        element_type = data.element_type
        arguments = _arguments(operator, context)
        axis = _axis(arguments, data)
        if lengths.gap is not None and lengths.gap[1] is Cause.ORDER:
            raise UnknownSplitError(*lengths.gap)
        lowering = _lowering(arguments, data, axis, context.reader)
        if element_type is None:
            # It does not name the input: reports group equal reasons, and name their nodes.
            raise UnknownSplitError("the data type of the input is not known", Cause.TYPE)
    except (InvalidArgumentError, UnknownSplitError) as error:
        problem = error
    return NodeFacts(operator, element_type, arguments, axis, lowering, problem)


def _operator(node: Node, opset: int) -> OperatorVersion:
    """The version of the node's operator."""
    if not opset:
        raise InvalidArgumentError(
            f"{node.op_type}: the model imports no opset of ai.onnx; it must import one, such as "
            "18. Fix: export the model again"
        )
    return operator_version(node.op_type, opset)


def _arguments(operator: OperatorVersion, context: InferenceContext) -> Arguments:
    """The node's attributes and its lengths, checked."""
    node = context.node
    if not any(node.input[:1]):
        refuse(operator, "the node has no input", "its first input must be the data")
    if operator.makes_sequence and len(node.output) > 1:
        refuse(operator, f"the node has {len(node.output)} outputs", "it must have one")
    values = {}
    for key, attribute in node.attributes.items():
        if attribute.ref_attr_name:
            text = f"attribute {key!r} is dynamic: the function's caller sets it"
            raise UnknownSplitError(text, Cause.CALLER)
        value = attribute.value
        if len(attribute.ints) > MAX_VALUES:
            text = (
                f"attribute {key!r} has more than {MAX_VALUES:,} integers, the most that are read"
            )
            raise UnknownSplitError(text, Cause.COUNT)
        if value is None and key in operator.attributes:
            allowed = "it must be an integer or a list of integers"
            refuse(operator, f"attribute {key!r} has a value of another kind", allowed)
        # In a model, ONNX and ONNX Runtime take every number but 0 for 1.
        is_kept = key == "keepdims" and isinstance(value, int) and value != 0
        values[key] = 1 if is_kept else value
    lengths = [
        _constant_lengths(operator, value, context.reader) if name else None
        for name, value in zip(node.input[1:], context.inputs[1:], strict=True)
    ]
    return node_arguments(operator, values, lengths, len(node.output))


def _constant_lengths(operator: OperatorVersion, value: Value, reader: Reader) -> Any:
    """The input `split`: its elements, one integer if it is a scalar, or `Lengths.AT_RUN_TIME`."""
    constant = value.constant
    if value.limit is not None:
        raise UnknownSplitError(f"split is computed from {value.limit}", Cause.LIMIT)
    if constant is None or (
        isinstance(constant, tuple) and any(isinstance(size, str | None) for size in constant)
    ):
        return Lengths.AT_RUN_TIME
    if isinstance(constant, Tensor) and constant.location is not None:
        raise UnknownSplitError("split is in external data, which is not opened", Cause.WEIGHTS)
    try:
        numbers = list(elements(reader, constant))
        shape = value.shape or ()
    except LimitError as error:
        raise UnknownSplitError(f"split: {error}", Cause.COUNT) from None
    except WireError as error:
        raise InvalidArgumentError(f"{operator}: split: {error}") from None
    if len(shape) != 1 and not (operator.makes_sequence and not shape):
        allowed = "it must be a scalar or 1-D" if operator.makes_sequence else "it must be 1-D"
        refuse(
            operator, f"split has shape {list(shape)}", allowed, found="run" if shape else "axis"
        )
    return numbers if shape else numbers[0]


def _axis(arguments: Arguments, data: Value) -> int:
    """The axis, counted from the front."""
    if data.shape is None:
        raise data.gap_error("the rank of the input is dynamic")
    return axis_from_front(arguments.axis, len(data.shape), arguments.operator)


def _lowering(arguments: Arguments, data: Value, axis: int, reader: Reader) -> Lowering:
    """The split with 1 for each dynamic size and FLOAT for an unknown type."""
    shape = data.shape or ()
    dimension = shape[axis]
    if isinstance(arguments.split, Lengths):
        raise UnknownSplitError(f"split is dynamic: it is {arguments.split.value}", Cause.LENGTHS)
    if not isinstance(dimension, int):
        raise data.gap_error(f"dimension {axis}, the axis, is dynamic{_in_brackets(dimension)}")
    count = output_count(arguments, dimension)
    if count > MAX_NODE_PIECES:
        text = (
            f"it makes {counted(count, 'piece')}; a scan describes at most {MAX_NODE_PIECES:,} of "
            "a node"
        )
        raise UnknownSplitError(text, Cause.COUNT)
    if arguments.operator.makes_sequence:
        # A small file can ask for any number of pieces of a sequence, but not for any number of
        # outputs, which it must name.
        try:
            reader.charge_elements(count)
        except ValueError as error:
            raise UnknownSplitError(
                f"with its pieces, the model has {error}", Cause.COUNT
            ) from None
    smallest = tuple(size if isinstance(size, int) else 1 for size in shape)
    return lower_checked(arguments, data.element_type or ElementType.FLOAT, smallest, axis)


def dynamic_dimensions(shape: Shape) -> str:
    """The dynamic dimensions with their names, for a message."""
    return ", ".join(
        f"dimension {index} is dynamic{_in_brackets(size)}"
        for index, size in enumerate(shape)
        if not isinstance(size, int)
    )


def _in_brackets(name: str | None) -> str:
    """The name of a dynamic size after its dimension; nothing without one."""
    return "" if name is None else f" ({shown_name(name)})"
