"""Walks the nodes of an ONNX model, infers their values, and finds its splits."""

import mmap
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import NamedTuple

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.onnx.dimensions import FixedSizes
from dmlsplit.frontends.onnx.implied import implied_splits
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
from dmlsplit.frontends.onnx.shapes import ELEMENT_WISE, outputs
from dmlsplit.frontends.onnx.values import (
    UNKNOWN,
    Call,
    Gap,
    Pieces,
    Value,
    contradict,
    merged,
    met,
    traced,
)
from dmlsplit.frontends.site import Cause, SplitSite

MAXIMUM_FIELDS = 1_600_000
# Levels of nested bodies and functions; real models stay below 20.
MAXIMUM_DEPTH = 64
# Outputs of all descriptors of one file.
SCAN_OUTPUT_BUDGET = 32_768
# Values that derive from more pieces are not followed any further.
_MOST_PIECES = 64
# Since this IR version, an initializer of an input is only the input's default.
_DEFAULTS_SINCE_IR = 4

_FunctionKey = tuple[str, str, str]
_Call = tuple[_FunctionKey, tuple[Value, ...], frozenset[tuple[str, Attribute]]]


@dataclass(frozen=True, slots=True)
class _Scope:
    """A graph, or a function's body, and the meaning of names in it."""

    place: str
    values: ChainMap[str, Value]
    declared: Mapping[str, Value]
    defaults: frozenset[str]
    opsets: Mapping[str, int]
    attributes: Mapping[str, Attribute] | None  # None: those of an unknown caller
    calls: tuple[_FunctionKey, ...]
    path: tuple[int | str, ...] = ()
    labels: set[str] = field(default_factory=set)  # of nodes with bodies and calls so far
    depth: int = 0
    conditional: bool = False


class _Visit(NamedTuple):
    node: Node
    position: int
    inputs: list[Value]
    scope: _Scope

    @property
    def named(self) -> str:
        """The node, for a message."""
        name = f" {shown_name(self.node.name)!r}" if self.node.name else f"[{self.position}]"
        return f"{shown_name(self.node.op_type)}{name} of {self.scope.place}"

    def own_label(self) -> str:
        """A label that no earlier node with bodies or call in this graph has."""
        label = shown_name(self.node.name) or f"{shown_name(self.node.op_type)}[{self.position}]"
        if label in self.scope.labels:
            label += f"[{self.position}]"
        self.scope.labels.add(label)
        return label

    def gap_after(self) -> Gap:
        """The reason for an unknown shape if this node lost it."""
        return f"its shape is unknown after {self.named}", Cause.UNTRACKED

    def attributes(self) -> dict[str, Attribute | None]:
        """The node's attributes, with references to the function's resolved."""
        given, found = self.scope.attributes, dict[str, Attribute | None]()
        for name, attribute in self.node.attributes.items():
            if not attribute.ref_attr_name:
                found[name] = attribute
            elif given is None:
                found[name] = None
            elif attribute.ref_attr_name in given:
                found[name] = replace(given[attribute.ref_attr_name], name=name)
        return found


class Walk:
    """A walk over a model that finds its splits."""

    def __init__(self, file: str, reader: Reader, model: Model, dimensions: FixedSizes) -> None:
        self._file = file
        self._dimensions = dimensions
        self._reader = reader
        self._model = model
        self._functions = {function.key: function for function in model.functions}
        self._called: dict[_Call, tuple[Value, ...]] = {}
        self._found: list[SplitSite] = []
        self._meets: dict[int, list[str]] = {}
        self._outputs: dict[int, tuple[str, ...]] = {}  # of each Split
        self._used: set[str] = set()  # by a node or as a graph's output; of the whole file
        self._outputs_left = SCAN_OUTPUT_BUDGET
        self.values: Mapping[str, Value] = {}  # of the main graph, once it has been walked

    def sites(self) -> list[SplitSite]:
        """Walk the main graph, then the functions that it does not call."""
        opsets = {opset.domain: opset.version for opset in self._model.opset_import}
        scope = _Scope("", ChainMap(), {}, frozenset(), opsets, {}, ())
        self._graph(self._model.graph[0], scope, "")
        for key, function in self._functions.items():
            if key not in {called for called, _, _ in self._called}:
                place = f"function {_function_name(function)}"
                inner = replace(scope, place=place, attributes=None, path=(place, "()"))
                self._body(function, [UNKNOWN] * len(function.input), inner)
        for split, names in self._outputs.items():
            unused = tuple(at for at, name in enumerate(names) if name not in self._used)
            meets = tuple(self._meets.get(split, ()))
            self._found[split] = replace(self._found[split], unused=unused, meets=meets)
        return self._found

    def _graph(self, span: Span, scope: _Scope, place: str) -> None:
        _check_depth(scope)
        graph = self._reader.read(Graph, span)
        is_main = not scope.path
        if is_main:
            self._dimensions.meet(graph.input)
        declared = self._declared((*graph.output, *graph.value_info))
        inputs = {entry.name: self._input(entry, is_main) for entry in graph.input}
        self._used.update(entry.name for entry in graph.output)
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
        if is_main:
            self.values = inner.values

    def _input(self, entry: ValueInfo, is_main: bool) -> Value:
        shape = self._dimensions.applied(entry.name, self._dimensions.declared(entry))
        text = f"the rank of the graph's input {shown_name(entry.name)!r} is dynamic"
        gap = (text, Cause.DYNAMIC) if shape is None else None
        return Value(entry.data_type, shape, gap=gap, source=entry.name if is_main else "")

    def _declared(self, entries: Iterable[ValueInfo]) -> dict[str, Value]:
        return {e.name: Value(e.data_type, self._dimensions.declared(e)) for e in entries}

    def _nodes(self, body: Graph | Function, scope: _Scope) -> None:
        declared = scope.declared
        for index, span in enumerate(self._reader.entries(body.span, NODES[type(body)])):
            node = self._reader.read(Node, span)
            at = _Visit(node, index, [_known(name, scope) for name in node.input], scope)
            self._used.update(node.input)
            found = chain(self._node(at), repeat(UNKNOWN))
            given = [value for name, value in zip(node.input, at.inputs, strict=True) if name]
            pieces = self._pieces(at, given)
            for name, value in zip(node.output, found, strict=False):
                if name:
                    if contradict(value, declared.get(name)):
                        # Later declarations are wrong too: for other sizes, or inferred by onnx.
                        declared = {}
                    value = self._sized(name, merged(value, declared.get(name)), scope)
                    value = traced(value, given, at.gap_after)
                    scope.values[name] = replace(value, pieces=pieces) if pieces else value

    def _sized(self, name: str, value: Value, scope: _Scope) -> Value:
        """A value with the sizes that the user gives."""
        if not self._dimensions.given or "()" in scope.path:  # names in functions are not unique
            return value
        shape = self._dimensions.applied(name, value.shape)
        return value if shape == value.shape else replace(value, shape=shape, gap=None)

    def _pieces(self, at: _Visit, inputs: list[Value]) -> Pieces:
        """The pieces that a node's outputs derive from; notes where pieces of one split meet."""
        pieces = [value.pieces for value in inputs if value.pieces]
        if not pieces or at.node.domain or at.node.op_type not in ELEMENT_WISE:
            return frozenset()
        splits = met(pieces)
        for split in splits:
            self._meets.setdefault(split, []).append(at.named)
        derived = frozenset().union(*pieces)
        return frozenset() if splits or len(derived) > _MOST_PIECES else derived

    def _node(self, at: _Visit) -> Sequence[Value]:
        node, scope = at.node, at.scope
        bodies = {each.name: each.bodies for each in node.attribute if each.bodies}
        label = at.own_label() if bodies else ""
        for name, spans in bodies.items():
            for position, span in enumerate(spans):
                which = f"[{position}]" if len(spans) > 1 else ""
                place = f"{scope.place}/{label}.{shown_name(name)}{which}"
                conditional = scope.conditional or node.op_type == "If"
                path = (*scope.path, at.position, name, position)
                inner = replace(scope, path=path, depth=scope.depth + 1, conditional=conditional)
                self._graph(span, inner, place)
        call = Call(node, at.inputs, self._reader)
        if not node.domain and node.op_type in OPERATORS:
            return self._split(at, call)
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            return self._call(at, self._functions[key])
        if node.domain:
            return ()
        for desc, pieces, why in implied_splits(call):
            site = _blank(self._file, at)
            self._found.append(replace(site, descriptors=(desc,), pieces=pieces, implied=why))
        return outputs(call)

    def _split(self, at: _Visit, call: Call) -> Sequence[Value]:
        opset, blank = at.scope.opsets.get(""), _blank(self._file, at)
        site, values = describe(blank, call, at.attributes(), opset, self._outputs_left)
        described = site.descriptors or filter(None, [site.smallest])
        self._outputs_left -= sum(desc.output_count for desc in described)
        warnings = site.warnings
        if len(at.node.input) > 1 and at.node.input[1] in at.scope.defaults:
            warnings += ("split is the default of a graph input; a caller may override it",)
        if site.problem and at.scope.conditional:
            warnings += ("the node is in a branch of an If, which may never run",)
        self._found.append(site if warnings is site.warnings else replace(site, warnings=warnings))
        if at.node.op_type != "Split" or site.problem:
            return values
        split, known = len(self._found) - 1, chain(values, repeat(UNKNOWN))
        self._outputs[split] = at.node.output
        return [
            replace(value, pieces=frozenset({(split, output)}))
            for output, value in zip(range(len(at.node.output)), known, strict=False)
        ]

    def _call(self, at: _Visit, function: Function) -> Sequence[Value]:
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        given, scope = at.attributes(), at.scope
        attributes.update({name: value for name, value in given.items() if value is not None})
        caller_knows = all(value is not None for value in given.values())
        # Drop the pieces: with them, every call of a function would be a new one.
        inputs = [replace(each, pieces=frozenset()) if each.pieces else each for each in at.inputs]
        call = function.key, tuple(inputs), frozenset(attributes.items())
        if call not in self._called:
            inner = replace(
                scope,
                place=f"{scope.place}/{at.own_label()}",
                attributes=attributes if caller_knows else None,
                path=(*scope.path, at.position, "()"),
            )
            self._called[call] = self._body(function, inputs, inner)
        return self._called[call]

    def _body(
        self, function: Function, inputs: Sequence[Value], scope: _Scope
    ) -> tuple[Value, ...]:
        if function.key in scope.calls:
            raise WireError(f"function {_function_name(function)} calls itself")
        _check_depth(scope)
        declared = self._declared(function.value_info)
        self._used.update(function.output)
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
    text = f"no earlier node produces value {shown_name(name)!r}"
    return Value(gap=(text, Cause.ORDER))


def _blank(file: str, at: _Visit) -> SplitSite:
    name, path = shown_name(at.node.name), (*at.scope.path, at.position)
    place, operator = at.scope.place, at.node.op_type
    return SplitSite(file, place, name, at.position, operator, path=path, format="onnx")


def _check_depth(scope: _Scope) -> None:
    if scope.depth > MAXIMUM_DEPTH:
        raise WireError(f"graphs and functions nest deeper than {MAXIMUM_DEPTH}")


def _function_name(function: Function) -> str:
    return shown_name(".".join(filter(None, function.key)))


def walked(
    name: str, data: bytes | mmap.mmap, dimensions: FixedSizes, is_last: bool = True
) -> tuple[list[SplitSite], Mapping[str, Value]]:
    """The sites of a model, and what is known about the values of its main graph."""
    # Calls and constants are walked again, which may double the fields of a small model.
    reader = Reader(data, min(MAXIMUM_FIELDS, 50_000 + 2 * len(data)))
    try:
        model = reader.read(Model, Span(0, len(data)))
        if len(model.graph) != 1:
            raise WireError(f"it has {len(model.graph)} graphs; a model must have 1")
        dimensions.give_ranks = is_last
        walk = Walk(name, reader, model, dimensions)
        return walk.sites(), walk.values
    except WireError as error:
        raise InvalidArgumentError(f"cannot be read as an ONNX model: {error}") from None
