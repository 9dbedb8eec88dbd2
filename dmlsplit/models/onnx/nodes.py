"""Finds the descriptor of a split node of a scanned model, or why it is unknown."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dmlsplit.checks import axis_from_front
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import piece_shapes
from dmlsplit.messages import Note, counted
from dmlsplit.models.lowering import Lowering, lowered_site
from dmlsplit.models.onnx.arguments import (
    Arguments,
    Lengths,
    check_types,
    node_arguments,
    refuse,
)
from dmlsplit.models.onnx.lowering import descriptor_of, lower, output_count
from dmlsplit.models.onnx.missing_sizes import missing_sizes
from dmlsplit.models.onnx.operators import (
    CARRIERS,
    ElementType,
    OperatorVersion,
    operator_version,
)
from dmlsplit.models.onnx.protobuf import (
    Node,
    Shape,
    Tensor,
    shown_name,
)
from dmlsplit.models.onnx.reader import (
    MAX_VALUES,
    LimitError,
    Reader,
    WireError,
)
from dmlsplit.models.onnx.values import (
    UNKNOWN,
    Call,
    Value,
    elements,
)
from dmlsplit.models.site import (
    Cause,
    Invalid,
    ProviderRemark,
    Size,
    SplitSite,
    Unknown,
    UnknownSplitError,
)

# The most pieces of a node that a scan describes.
MAX_PIECES = 32_768
_DISPUTED_AXIS = (
    "keepdims is 0 with a scalar split: ONNX keeps the axis nevertheless, ONNX Runtime drops it"
)


def complete_site(
    site: SplitSite, call: Call, opset: int | None
) -> tuple[SplitSite, tuple[Value, ...]]:
    """The completed site of a node, and what is known about its outputs.

    `opset` is None if the model imports no default domain.
    """
    node, (data, lengths) = call.node, (*call.inputs, UNKNOWN, UNKNOWN)[:2]
    arguments: Arguments | None = None
    lowering: Lowering | None = None
    try:  # an error leaves what the steps before it have found
        operator, site = _identified(site, node, data, opset)
        site = _typed(site, operator, data, lengths)
        arguments, site = _with_arguments(site, call, operator)
        axis, site = _with_axis(site, arguments, data)
        lowering = _lower_node(arguments, data, axis, call.reader)
        site = _lowered(site, lowering, data)
    except InvalidArgumentError as error:
        # ONNX's shape inference, which the loader calls, checks all but the sizes that num_outputs
        # gives.
        is_loaded = site.sized_by == "num_outputs" and site.axis is not None
        return replace(site, state=Invalid(error.message, is_loaded)), ()
    except UnknownSplitError as reason:
        split = None if arguments is None else arguments.split
        pieces = split if isinstance(split, tuple) else None
        pieces = pieces if lowering is None else lowering.sizes
        smallest = _smallest_descriptor(data, site.axis, sum(pieces or ()) or len(node.output))
        site = replace(site, state=Unknown(str(reason), reason.cause, smallest, pieces))
    if isinstance(site.state, Unknown):
        axis_size = sum(site.state.pieces or ()) or len(node.output)
        missing = tuple(missing_sizes(site.state, site, call, axis_size))
        site = replace(site, state=replace(site.state, missing=missing))
    site = replace(site, input_name=node.input[0])
    if arguments is None or site.axis is None:
        return site, ()
    sizes = lowering.sizes if lowering else (None,) * len(node.output)
    return site, _output_values(arguments, data, site.axis, sizes)


def _identified(
    site: SplitSite, node: Node, data: Value, opset: int | None
) -> tuple[OperatorVersion, SplitSite]:
    """The version of the operator, and the site with it and with the shape of the input."""
    if opset is None:
        raise InvalidArgumentError(f"{node.op_type}: the model imports no opset of ai.onnx")
    operator = operator_version(node.op_type, opset)
    return operator, replace(site, operator=str(operator), opset=opset, shape=data.shape)


def _typed(site: SplitSite, operator: OperatorVersion, data: Value, lengths: Value) -> SplitSite:
    """The site with the type of the elements, if it is known."""
    check_types(operator, data.element_type, lengths.element_type)
    return replace(site, element_type=data.element_type.name) if data.element_type else site


def _with_arguments(
    site: SplitSite, call: Call, operator: OperatorVersion
) -> tuple[Arguments, SplitSite]:
    """The arguments of the node, and the site with what they say."""
    arguments = _arguments(operator, call)
    return arguments, replace(
        site,
        warnings=(*arguments.assumed, *_portability_warnings(call.node, arguments)),
        sized_by=arguments.sized_by,
        keeps_axis=arguments.keeps_axis,
    )


def _with_axis(site: SplitSite, arguments: Arguments, data: Value) -> tuple[int, SplitSite]:
    """The axis, counted from the front, and the site with it."""
    if data.shape is None:
        raise data.gap_error("the input's shape is dynamic")
    axis = axis_from_front(arguments.axis, len(data.shape), arguments.operator)
    warnings = *site.warnings, *_num_outputs_warnings(arguments, data.shape[axis])
    return axis, replace(site, axis=axis, warnings=warnings)


def _lowered(site: SplitSite, lowering: Lowering, data: Value) -> SplitSite:
    """The site with its descriptor, and with the shape of the input as the model has it."""
    if data.element_type is None:
        raise UnknownSplitError("the input's data type is not known", Cause.TYPE)
    warnings = *site.warnings, *lowering.warnings
    if data.element_type is ElementType.STRING:
        warnings += ("DirectML has no strings; the host splits them",)
    shape = data.shape or ()
    gap = None if data.is_static else data.gap_error(_dynamic_dimensions(shape))
    return replace(lowered_site(site, lowering, warnings, gap), shape=data.shape)


def _smallest_descriptor(data: Value, axis: int | None, axis_size: int) -> SplitOperatorDesc | None:
    """`Unknown.smallest_descriptor`. A dynamic axis gets `axis_size`."""
    element_type = data.element_type or ElementType.FLOAT
    # Lanes add a dimension.
    shape = data.shape or (1,) * (5 - CARRIERS.get(element_type, (None, 1))[1])
    sizes = [
        size if isinstance(size, int) else axis_size if index == axis else 1
        for index, size in enumerate(shape)
    ]
    axis = axis or 0
    return descriptor_of(element_type, tuple(sizes), axis, (sizes[axis],))


def _lower_node(arguments: Arguments, data: Value, axis: int, reader: Reader) -> Lowering:
    """The split with 1 for each dynamic size and FLOAT for an unknown type."""
    shape = data.shape or ()
    dimension = shape[axis]
    if isinstance(arguments.split, Lengths):
        raise UnknownSplitError(f"split is dynamic: it is {arguments.split.value}", Cause.LENGTHS)
    if not isinstance(dimension, int):
        raise data.gap_error(_dynamic_dimensions(shape, axis))
    count = output_count(arguments, dimension)
    if count > MAX_PIECES:
        what = f"it makes {counted(count, 'piece')}; a scan describes at most {MAX_PIECES:,}"
        raise UnknownSplitError(f"{what} of a node", Cause.COUNT)
    if arguments.operator.makes_sequence:
        # A small file can ask for any number of pieces of a sequence, but not for any number of
        # outputs, which it must name.
        try:
            reader.charge_elements(count)
        except ValueError as error:
            raise UnknownSplitError(
                f"with its pieces, the model has {error}", Cause.COUNT
            ) from None
    smallest = [size if isinstance(size, int) else 1 for size in shape]
    return lower(arguments, data.element_type or ElementType.FLOAT, smallest)


def _arguments(operator: OperatorVersion, call: Call) -> Arguments:
    node = call.node
    if not any(node.input[:1]):
        refuse(operator, "the node has no input", "it must have one")
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
        values[key] = value
    lengths = [
        _lengths(operator, value, call.reader) if name else None
        for name, value in zip(node.input[1:], call.inputs[1:], strict=True)
    ]
    return node_arguments(operator, values, lengths, len(node.output))


def _lengths(operator: OperatorVersion, value: Value, reader: Reader) -> Any:
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
        numbers, shape = list(elements(reader, constant)), value.shape or ()
    except LimitError as error:
        raise UnknownSplitError(f"split: {error}", Cause.COUNT) from None
    except WireError as error:
        raise InvalidArgumentError(f"{operator}: split: {error}") from None
    if len(shape) > 1:
        allowed = "it must be a scalar or 1-D" if operator.makes_sequence else "it must be 1-D"
        refuse(operator, f"split has shape {list(shape)}", allowed)
    return numbers if shape else numbers[0]


def _dynamic_dimensions(shape: Shape, *only: int) -> str:
    """The dynamic dimensions, with their names."""
    return ", ".join(
        f"dimension {index}{', the axis,' * bool(only)} is dynamic"
        + ("" if size is None else f" ({shown_name(size)})")
        for index, size in enumerate(shape)
        if not isinstance(size, int) and (index in only or not only)
    )


def _output_values(
    arguments: Arguments, data: Value, axis: int, sizes: tuple[Size, ...]
) -> tuple[Value, ...]:
    shape = data.shape or ()
    if arguments.output_count is None:  # a sequence: what holds for all of its tensors
        size = sizes[0] if len(set(sizes)) == 1 else None
        if arguments.keeps_axis is None:
            return (Value(data.data_type, gap=(_DISPUTED_AXIS, Cause.UNTRACKED)),)
        kept = (size,) if arguments.keeps_axis else ()
        return (Value(data.data_type, (*shape[:axis], *kept, *shape[axis + 1 :])),)
    return tuple(Value(data.data_type, piece) for piece in piece_shapes(shape, axis, sizes))


def _portability_warnings(node: Node, arguments: Arguments) -> Iterator[str]:
    if arguments.operator.makes_sequence:
        text = "ONNX Runtime's DirectML provider has no SplitToSequence"
        yield ProviderRemark(text, "ORT-SEQUENCE")
        if isinstance(arguments.split, int) and arguments.keeps_axis is None:
            text = (
                f"{_DISPUTED_AXIS}; it fails when it runs the node if a piece has another size "
                "than 1"
            )
            yield ProviderRemark(text, "ORT-KEEPDIMS", "set keepdims to 1")
        return
    sized = arguments.split is not None or arguments.num_outputs is not None
    if "" in node.output and sized and arguments.operator.since >= 13:
        yield Note(
            f"output {node.output.index('')} has no name; ONNX Runtime 1.32 crashes on such a node",
            "name every output",
        )
    if "" in node.input[1:2] and arguments.num_outputs is not None:
        yield Note(
            "split is an input without a name next to num_outputs, which ONNX Runtime before 1.32 "
            "refuses",
            "remove the input",
        )


def _num_outputs_warnings(arguments: Arguments, dimension: Size) -> Iterator[str]:
    count = arguments.num_outputs
    if not isinstance(dimension, int) and count is not None and count > 2:
        yield (
            f"num_outputs={count} on a dynamic axis works only for sizes d with "
            f"ceil(d / {count}) * {count - 1} <= d; if the two are equal, the last piece is empty, "
            "which ONNX Runtime before 1.32 refuses"
        )
