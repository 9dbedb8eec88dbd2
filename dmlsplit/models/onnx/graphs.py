"""The scopes of graphs: the main graph of a model, and the bodies of nodes such as If and Loop."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from dmlsplit.models.onnx.declarations import Declarations, declared_values
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.folding import never_runs
from dmlsplit.models.onnx.protobuf import Graph, Tensor, ValueInfo, shown_name
from dmlsplit.models.onnx.reader import Span
from dmlsplit.models.onnx.scope import Scope, Visit
from dmlsplit.models.onnx.values import InferenceContext, Value
from dmlsplit.models.site import Cause

# Since this IR version, an initializer of an input is only the input's default.
_DEFAULTS_SINCE_IR = 4


class Body(NamedTuple):
    """A graph in a node, which is not read yet."""

    # The bytes of the graph in the file.
    span: Span
    # The name for reports, with the graphs around it.
    name: str
    # The scope around the node, with the path of this body.
    outer: Scope
    # False if a constant condition rules the body out.
    may_run: bool


def bodies(visit: Visit, context: InferenceContext) -> Iterator[Body]:
    """The graphs in a node."""
    spans = {
        attribute.name: attribute.bodies for attribute in visit.node.attribute if attribute.bodies
    }
    label = visit.claim_label() if spans else ""
    for attribute, graphs in spans.items():
        condition = never_runs(context, attribute)
        reason = visit.scope.never_runs
        if condition is not None and reason is None:
            reason = f"it is in the {attribute} of {visit.description}, whose {condition}"
        for position, span in enumerate(graphs):
            suffix = f"[{position}]" if len(graphs) > 1 else ""
            path = (*visit.scope.path, visit.position, attribute, position)
            outer = replace(visit.scope, path=path, never_runs=reason)
            name = f"{visit.scope.graph}/{label}.{shown_name(attribute)}{suffix}"
            yield Body(span, name, outer, may_run=condition is None)


def overridable_inputs(graph: Graph, ir_version: int) -> set[str]:
    """The inputs of a graph that have a default, instead of which a caller may give a value.

    Source: onnx/docs/IR.md, "Graphs"; ONNX Runtime takes values for them since the same IR version.
    """
    if ir_version < _DEFAULTS_SINCE_IR:
        return set()
    return {entry.name for entry in graph.input} & {tensor.name for tensor in graph.initializer}


def graph_scope(
    graph: Graph,
    outer: Scope,
    name: str,
    dimensions: FixedSizes,
    defaults: set[str],
    *,
    with_defaults: bool,
) -> Scope:
    """The scope of a graph before its first node.

    Without `with_defaults`, the inputs in `defaults` are like others.
    """
    is_main = not outer.path
    inputs = {entry.name: _input(entry, dimensions, is_main=is_main) for entry in graph.input}
    constants = {
        tensor.name: _initializer(tensor, is_default=tensor.name in defaults)
        for tensor in graph.initializer
        if with_defaults or tensor.name not in defaults
    }
    # ONNX Runtime takes the declaration of an output before one in value_info, if it has a type.
    typed_outputs = (entry for entry in graph.output if entry.data_type)
    declared = declared_values((*graph.value_info, *typed_outputs), dimensions)
    return replace(
        outer,
        graph=name or shown_name(graph.name or "main graph"),
        values=outer.values.new_child(inputs | constants),
        declarations=Declarations(declared | inputs),
        labels=set(),
    )


def _input(entry: ValueInfo, dimensions: FixedSizes, *, is_main: bool) -> Value:
    """What a graph declares about one of its inputs."""
    if entry.shape is None:
        text = f"the rank of the graph's input {shown_name(entry.name)!r} is dynamic"
        return Value(entry.data_type, gap=(text, Cause.DYNAMIC))
    shape = tuple(
        # Only dimensions of the model's own inputs get names from their axes, so that splits of
        # derived values ask for the same size.
        dimensions.size(dim, f"{entry.name}.{axis}" if is_main else None)
        for axis, dim in enumerate(entry.shape)
    )
    return Value(entry.data_type, shape)


def _initializer(tensor: Tensor, *, is_default: bool) -> Value:
    """The value of an initializer, which a caller may override if it is a default."""
    return Value(tensor.data_type, tensor.shape, tensor, is_folded=not is_default)
