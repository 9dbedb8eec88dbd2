"""The functions of a model, and the calls of them."""

from collections import ChainMap
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmlsplit.models.onnx.declarations import Declarations, declared_values
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.protobuf import Attribute, Function, Node, shown_name
from dmlsplit.models.onnx.scope import Scope, Visit
from dmlsplit.models.onnx.values import UNKNOWN, Value
from dmlsplit.models.site import FUNCTION_BODY


class FunctionCall(NamedTuple):
    """What decides the outputs of a function: equal calls have equal outputs."""

    key: tuple[str, str, str]
    inputs: tuple[Value, ...]
    attributes: frozenset[Attribute]


def resolved_node(node: Node, attributes: Mapping[str, Attribute] | None) -> Node:
    """A node of a function with the caller's attributes; unknown ones stay references."""
    if attributes is None or not node.has_references:
        return node
    resolved = []
    for attribute in node.attribute:
        reference = attribute.ref_attr_name
        if not reference:
            resolved.append(attribute)
        elif reference in attributes:
            resolved.append(replace(attributes[reference], name=attribute.name))
    return replace(node, attribute=tuple(resolved))


def call_of(visit: Visit, function: Function) -> tuple[FunctionCall, Scope]:
    """A call of a function, and the scope of the caller for it."""
    attributes = {attribute.name: attribute for attribute in function.attribute_proto}
    attributes |= {own.name: own for own in visit.node.attribute if not own.ref_attr_name}
    # Drop the pieces: with them, every call of a function would be a new one.
    inputs = tuple(
        replace(value, origins=frozenset()) if value.origins else value for value in visit.inputs
    )
    scope = replace(
        visit.scope,
        attributes=None if visit.node.has_references else attributes,
        path=(*visit.scope.path, visit.position, FUNCTION_BODY),
    )
    return FunctionCall(function.key, inputs, frozenset(attributes.values())), scope


def uncalled_functions(
    functions: Mapping[tuple[str, str, str], Function], called: Container[tuple[str, str, str]]
) -> Iterator[Function]:
    """The functions that are not called so far; meanwhile, more may be."""
    return (function for key, function in functions.items() if key not in called)


def lone_scope(function: Function, model: Scope) -> Scope:
    """The scope around a function that the model does not call."""
    name = f"function {shown_name('.'.join(filter(None, function.key)))}"
    path = (name, FUNCTION_BODY)
    return replace(
        model, graph=name, attributes=None, path=path, never_runs="no node calls its function"
    )


def function_scope(
    function: Function, inputs: Sequence[Value], outer: Scope, dimensions: FixedSizes
) -> Scope:
    """The scope of a function's body before its first node, for a call."""
    declared = declared_values(function.value_info, dimensions)
    values = {
        name: value.merged(declared.get(name, UNKNOWN))
        for name, value in zip(function.input, inputs, strict=False)
    }
    return replace(
        outer,
        values=ChainMap(values),
        declarations=Declarations(declared),
        labels=set(),
    )
