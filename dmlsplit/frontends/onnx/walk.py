"""Walks the nodes of an ONNX model, with what is known of their values, and finds its splits."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat

from dmlsplit.frontends.onnx.constants import elements
from dmlsplit.frontends.onnx.dimensions import FixedSizes
from dmlsplit.frontends.onnx.implied import implied_splits
from dmlsplit.frontends.onnx.meetings import ELEMENT_WISE, Pieces, met, passed_on
from dmlsplit.frontends.onnx.messages import (
    NODES,
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    ValueInfo,
    shown_name,
)
from dmlsplit.frontends.onnx.nodes import describe
from dmlsplit.frontends.onnx.operators import OPERATORS
from dmlsplit.frontends.onnx.reader import Reader, Span, WireError
from dmlsplit.frontends.onnx.shapes import outputs
from dmlsplit.frontends.onnx.values import UNKNOWN, Gap, Value, contradict, merged, traced
from dmlsplit.frontends.site import Cause, SplitSite

# Bodies in bodies and functions in functions; real models stay below 20.
MAXIMUM_DEPTH = 64
# Outputs that the descriptors of one file may have together.
SCAN_OUTPUT_BUDGET = 32_768
# From this IR version on, an initializer that is an input as well is only its default.
_DEFAULTS_SINCE_IR = 4

_FunctionKey = tuple[str, str, str]
_Call = tuple[_FunctionKey, tuple[Value, ...], frozenset[tuple[str, Attribute]]]


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a node is: its place, and what its names mean there."""

    place: str
    values: ChainMap[str, Value]
    declared: Mapping[str, Value]
    defaults: frozenset[str]
    opsets: Mapping[str, int]
    attributes: Mapping[str, Attribute] | None  # None: those of an unknown caller
    calls: tuple[_FunctionKey, ...]
    path: tuple[int | str, ...] = ()
    # Of the nodes with bodies and the calls so far: two of one name are told apart.
    labels: set[str] = field(default_factory=set)
    depth: int = 0
    conditional: bool = False


class Walk:
    """One walk over a model, that finds its splits."""

    def __init__(self, file: str, reader: Reader, model: Model, dimensions: FixedSizes) -> None:
        self._file = file
        self._dimensions = dimensions
        self._reader = reader
        self._elements = partial(elements, reader)
        self._model = model
        self._functions = {function.key: function for function in model.functions}
        self._called: dict[_Call, tuple[Value, ...]] = {}
        self._found: list[SplitSite] = []
        self._meets: dict[int, list[str]] = {}
        self._outputs_left = SCAN_OUTPUT_BUDGET

    def sites(self) -> list[SplitSite]:
        """Walk the main graph, then the functions that it does not call."""
        opsets = {opset.domain: opset.version for opset in self._model.opset_import}
        scope = _Scope("", ChainMap(), {}, frozenset(), opsets, {}, ())
        self._graph(self._model.graph[0], scope, "")
        for key, function in self._functions.items():
            if key not in {called for called, _, _ in self._called}:
                unknown = [UNKNOWN] * len(function.input)
                place = f"function {_function_name(function)}"
                path = (place, "()")
                self._body(
                    function, unknown, replace(scope, place=place, attributes=None, path=path)
                )
        for split, places in self._meets.items():
            self._found[split] = replace(self._found[split], meets=tuple(places))
        return self._found

    def _graph(self, span: Span, scope: _Scope, place: str) -> None:
        _check_depth(scope)
        graph = self._reader.read(Graph, span)
        is_main = not scope.path
        if is_main:
            self._dimensions.meet(graph.input)
        declared = {
            entry.name: Value(entry.data_type, self._dimensions.applied(entry))
            for entry in (*graph.output, *graph.value_info)
        }
        inputs = {entry.name: self._input(entry, is_main) for entry in graph.input}
        constants = {t.name: Value(t.data_type, t.shape, t) for t in graph.initializer}
        defaults = inputs.keys() & constants.keys()
        if self._model.ir_version < _DEFAULTS_SINCE_IR:
            defaults = set()
        inner = replace(
            scope,
            place=place or shown_name(graph.name or "main graph"),
            values=scope.values.new_child(inputs | constants),
            declared=declared | inputs,
            defaults=frozenset(defaults),
            labels=set(),
        )
        self._nodes(graph, inner)

    def _input(self, entry: ValueInfo, is_main: bool) -> Value:
        shape = self._dimensions.applied(entry, is_main)
        text = f"the rank of the graph's input {shown_name(entry.name)!r} is dynamic"
        gap = Gap(Cause.DYNAMIC, text) if shape is None else None
        return Value(entry.data_type, shape, gap=gap, source=entry.name if is_main else "")

    def _nodes(self, body: Graph | Function, scope: _Scope) -> None:
        declared = scope.declared
        for index, span in enumerate(self._reader.entries(body.span, NODES[type(body)])):
            node = self._reader.read(Node, span)
            inputs = [_known(name, scope) for name in node.input]
            found = chain(self._node(node, index, inputs, scope), repeat(UNKNOWN))
            given = [value for name, value in zip(node.input, inputs, strict=True) if name]
            pieces = self._pieces(node, index, given, scope)
            for name, value in zip(node.output, found, strict=False):
                if name:
                    if contradict(value, declared.get(name)):
                        # Those after it are as wrong: of other sizes, or onnx inferred them so.
                        declared = {}
                    here = partial(_gap_after, node, index, scope)
                    value = traced(merged(value, declared.get(name)), given, here)
                    scope.values[name] = replace(value, pieces=pieces) if pieces else value

    def _pieces(self, node: Node, index: int, inputs: list[Value], scope: _Scope) -> Pieces:
        """The pieces that a node's outputs derive from; note where pieces of one meet."""
        pieces = [value.pieces for value in inputs if value.pieces]
        if not pieces or node.domain or node.op_type not in ELEMENT_WISE:
            return frozenset()
        splits = met(pieces)
        for split in splits:
            self._meets.setdefault(split, []).append(_named(node, index, scope))
        return frozenset() if splits else passed_on(pieces)

    def _node(self, node: Node, index: int, inputs: list[Value], scope: _Scope) -> Sequence[Value]:
        bodies = {each.name: each.bodies for each in node.attribute if each.bodies}
        label = _own_label(node, index, scope) if bodies else ""
        for name, spans in bodies.items():
            for position, span in enumerate(spans):
                which = f"[{position}]" if len(spans) > 1 else ""
                place = f"{scope.place}/{label}.{shown_name(name)}{which}"
                conditional = scope.conditional or node.op_type == "If"
                path = (*scope.path, index, name, position)
                inner = replace(scope, path=path, depth=scope.depth + 1, conditional=conditional)
                self._graph(span, inner, place)
        if not node.domain and node.op_type in OPERATORS:
            return self._split(node, index, inputs, scope)
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            return self._call(node, index, self._functions[key], inputs, scope)
        if node.domain:
            return ()
        for found in implied_splits(node, inputs, self._elements):
            self._found.append(replace(self._blank(node, index, scope), **found._asdict()))
        return outputs(node, inputs, self._elements)

    def _blank(self, node: Node, index: int, scope: _Scope) -> SplitSite:
        """The site of a node of which nothing else is known yet."""
        name, path = shown_name(node.name), (*scope.path, index)
        return SplitSite(self._file, scope.place, name, index, node.op_type, path=path)

    def _split(self, node: Node, index: int, inputs: list[Value], scope: _Scope) -> Sequence[Value]:
        site, values = describe(
            self._blank(node, index, scope),
            node,
            inputs,
            _attributes(node, scope),
            scope.opsets.get(""),
            self._elements,
            self._outputs_left,
        )
        self._outputs_left -= sum(desc.output_count for desc in site.descriptors)
        warnings = site.warnings
        if len(node.input) > 1 and node.input[1] in scope.defaults:
            warnings += ("split is the default of a graph input; a caller may override it",)
        if site.problem and scope.conditional:
            warnings += ("the node is in a branch of an If, which may never be taken",)
        self._found.append(site if warnings is site.warnings else replace(site, warnings=warnings))
        if node.op_type != "Split" or site.problem:
            return values
        split, known = len(self._found) - 1, chain(values, repeat(UNKNOWN))
        return [
            replace(value, pieces=frozenset({(split, output)}))
            for output, value in zip(range(len(node.output)), known, strict=False)
        ]

    def _call(
        self,
        node: Node,
        index: int,
        function: Function,
        inputs: list[Value],
        scope: _Scope,
    ) -> Sequence[Value]:
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        given = _attributes(node, scope)
        attributes.update({name: value for name, value in given.items() if value is not None})
        caller_knows = all(value is not None for value in given.values())
        # Pieces are not followed into functions and out of them: each call would be a new one.
        inputs = [replace(value, pieces=frozenset()) if value.pieces else value for value in inputs]
        call = function.key, tuple(inputs), frozenset(attributes.items())
        if call not in self._called:
            place = f"{scope.place}/{_own_label(node, index, scope)}"
            inner = replace(
                scope,
                place=place,
                attributes=attributes if caller_knows else None,
                path=(*scope.path, index, "()"),
            )
            self._called[call] = self._body(function, inputs, inner)
        return self._called[call]

    def _body(
        self, function: Function, inputs: Sequence[Value], scope: _Scope
    ) -> tuple[Value, ...]:
        if function.key in scope.calls:
            raise WireError(f"function {_function_name(function)} calls itself")
        _check_depth(scope)
        declared = {e.name: Value(e.data_type, e.shape) for e in function.value_info}
        values = {
            name: merged(value, declared.get(name))
            for name, value in zip(function.input, inputs, strict=False)
        }
        inner = replace(
            scope,
            values=ChainMap(values),
            declared=declared,
            defaults=frozenset(),
            opsets={opset.domain: opset.version for opset in function.opset_import},
            calls=(*scope.calls, function.key),
            labels=set(),
            depth=scope.depth + 1,
        )
        self._nodes(function, inner)
        found = (inner.values.get(name, UNKNOWN) for name in function.output)
        return tuple(replace(value, pieces=frozenset()) for value in found)


def _known(name: str, scope: _Scope) -> Value:
    if not name or name in scope.values:
        return scope.values.get(name, UNKNOWN)
    text = f"value {shown_name(name)!r} is not made by an earlier node"
    return Value(gap=Gap(Cause.ORDER, text))


def _gap_after(node: Node, index: int, scope: _Scope) -> Gap:
    text = f"its shape is not known after {_named(node, index, scope)}"
    return Gap(Cause.UNTRACKED, text)


def _check_depth(scope: _Scope) -> None:
    if scope.depth > MAXIMUM_DEPTH:
        raise WireError(f"graphs and functions nest deeper than {MAXIMUM_DEPTH}")


def _attributes(node: Node, scope: _Scope) -> dict[str, Attribute | None]:
    """A node's attributes; one that refers to a function's is looked up there."""
    found: dict[str, Attribute | None] = {}
    for name, attribute in node.attributes.items():
        if not attribute.ref_attr_name:
            found[name] = attribute
        elif scope.attributes is None:
            found[name] = None
        elif attribute.ref_attr_name in scope.attributes:
            found[name] = replace(scope.attributes[attribute.ref_attr_name], name=name)
    return found


def _own_label(node: Node, index: int, scope: _Scope) -> str:
    """A label that no node with bodies, and no call, has had in this graph before."""
    label = _label(node, index)
    if label in scope.labels:
        label += f"[{index}]"
    scope.labels.add(label)
    return label


def _label(node: Node, index: int) -> str:
    return shown_name(node.name) or f"{shown_name(node.op_type)}[{index}]"


def _named(node: Node, index: int, scope: _Scope) -> str:
    name = shown_name(node.op_type) + (f" {shown_name(node.name)!r}" if node.name else f"[{index}]")
    return f"{name} of {scope.place}"


def _function_name(function: Function) -> str:
    return shown_name(".".join(filter(None, function.key)))
