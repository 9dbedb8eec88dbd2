"""Finds the descriptor of a split node of a scanned model, or why it is unknown."""

from collections.abc import Iterator
from dataclasses import replace

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import piece_shapes
from dmlsplit.models.lowering import lowered_state
from dmlsplit.models.onnx.arguments import Arguments, SplitArgumentError
from dmlsplit.models.onnx.lowering import descriptor_of
from dmlsplit.models.onnx.missing_sizes import missing_sizes
from dmlsplit.models.onnx.node_facts import NodeFacts, dynamic_dimensions, node_facts
from dmlsplit.models.onnx.operators import CARRIERS, ElementType
from dmlsplit.models.onnx.portability import DISPUTED_AXIS, axis_warnings, node_warnings
from dmlsplit.models.onnx.values import UNKNOWN, InferenceContext, Value
from dmlsplit.models.site import Cause, Invalid, Size, SplitSite, State, Unknown

# The number of dimensions of the descriptor for an input of unknown rank: every level accepts it.
_ASSUMED_RANK = 4


def complete_site(
    blank: SplitSite, context: InferenceContext, opset: int
) -> tuple[SplitSite, tuple[Value, ...]]:
    """The completed site of a node, and what is known about its outputs; for `node_facts`."""
    data = next(iter(context.inputs), UNKNOWN)
    facts = node_facts(context, opset)
    operator, element_type, arguments, axis, lowering, _ = facts
    state = _state(facts, data, context, blank)
    if operator is None:
        return replace(blank, state=state), ()
    is_valid = not isinstance(state, Invalid)
    site = replace(
        blank,
        operator=str(operator),
        state=state,
        warnings=tuple(_warnings(facts, data, context)),
        element_type=element_type.name if element_type else None,
        shape=data.shape,
        axis=axis,
        input_name=context.node.input[0] if is_valid else "",
        sized_by=arguments.sized_by if arguments else "",
        keeps_axis=arguments.keeps_axis if arguments else True,
    )
    if not is_valid or arguments is None or axis is None:
        return site, ()
    sizes = lowering.sizes if lowering else (None,) * len(context.node.output)
    return site, _output_values(arguments, data, axis, sizes)


def _state(facts: NodeFacts, data: Value, context: InferenceContext, blank: SplitSite) -> State:
    """What the file says about the split."""
    problem = facts.problem
    lowering = facts.lowering
    if isinstance(problem, InvalidArgumentError):
        is_loaded = blank.is_uncalled or _is_loaded(problem, data, context)
        return Invalid(problem.message, is_loaded)
    if problem is None and data.is_static:
        assert lowering
        return lowered_state(lowering)
    reason = problem or data.gap_error(dynamic_dimensions(data.shape or ()))
    axis_size = sum(facts.sizes or ()) or len(context.node.output)
    missing = missing_sizes(
        reason.cause, context, facts.axis, axis_size, in_function=blank.is_in_function
    )
    if problem is None:
        assert lowering
        return lowered_state(lowering, reason, tuple(missing))
    smallest = _smallest_descriptor(data, facts.axis, axis_size)
    return Unknown(str(reason), reason.cause, smallest, facts.sizes, tuple(missing))


def _is_loaded(problem: InvalidArgumentError, data: Value, context: InferenceContext) -> bool:
    """Whether ONNX Runtime loads a model with an invalid node, and fails when it runs the node."""
    found = problem.found if isinstance(problem, SplitArgumentError) else "load"
    axis = context.int_attribute("axis", 0)
    sizes = (None,) if data.shape is None else data.shape[axis : axis + 1 or None]
    is_dynamic = any(not isinstance(size, int) for size in sizes)
    return found == "run" or (found == "axis" and is_dynamic)


def _warnings(facts: NodeFacts, data: Value, context: InferenceContext) -> Iterator[str]:
    """The warnings about the node, as far as its facts go."""
    arguments = facts.arguments
    axis = facts.axis
    lowering = facts.lowering
    if arguments is not None:
        yield from arguments.assumed
        yield from node_warnings(context.node, arguments)
        if axis is not None:
            yield from axis_warnings(arguments, (data.shape or ())[axis])
    if lowering is not None and facts.problem is None:
        yield from lowering.warnings
        if data.element_type is ElementType.STRING:
            yield "DirectML has no strings; the host splits them"


def _smallest_descriptor(data: Value, axis: int | None, axis_size: int) -> SplitOperatorDesc | None:
    """`Unknown.smallest_descriptor`. A dynamic axis gets `axis_size`."""
    element_type = data.element_type or ElementType.FLOAT
    carrier = CARRIERS.get(element_type)
    if carrier is None:
        return None
    shape = data.shape or (1,) * (_ASSUMED_RANK - len(carrier.lane_dimensions))
    sizes = [size if isinstance(size, int) else 1 for size in shape]
    if axis is not None and not isinstance(shape[axis], int):
        sizes[axis] = axis_size
    axis = axis or 0
    return descriptor_of(element_type, tuple(sizes), axis, (sizes[axis],))


def _output_values(
    arguments: Arguments, data: Value, axis: int, sizes: tuple[Size, ...]
) -> tuple[Value, ...]:
    """The pieces, or the sequence of them."""
    shape = data.shape or ()
    # The one output of SplitToSequence is a sequence; known is what holds for all of its tensors.
    if arguments.output_count is None:
        size = sizes[0] if len(set(sizes)) == 1 else None
        if arguments.keeps_axis is None:
            return (Value(data.data_type, gap=(DISPUTED_AXIS, Cause.UNTRACKED)),)
        kept = (size,) if arguments.keeps_axis else ()
        return (Value(data.data_type, (*shape[:axis], *kept, *shape[axis + 1 :])),)
    return tuple(Value(data.data_type, piece) for piece in piece_shapes(shape, axis, sizes))
