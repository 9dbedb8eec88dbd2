"""Walks the nodes of an ONNX model, infers their values, and finds its splits."""

import mmap
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, repeat
from typing import NamedTuple

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.models.onnx import protobuf as messages
from dmlsplit.models.onnx.declarations import (
    Declarations,
    input_faults,
    output_faults,
    shape_remark,
)
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.folding import is_folded, never_runs, with_origin
from dmlsplit.models.onnx.missing_sizes import unified, without_examples
from dmlsplit.models.onnx.nodes import complete_site
from dmlsplit.models.onnx.operators import OPERATORS
from dmlsplit.models.onnx.protobuf import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    Shape,
    Tensor,
    shown_name,
)
from dmlsplit.models.onnx.reader import (
    LimitError,
    Reader,
    Span,
    WireError,
)
from dmlsplit.models.onnx.recombination import followed
from dmlsplit.models.onnx.shapes import INFERRED_BY_ONNX, outputs
from dmlsplit.models.onnx.values import (
    UNKNOWN,
    Call,
    Gap,
    Pieces,
    Value,
    agreement,
    contradicts,
)
from dmlsplit.models.site import (
    Cause,
    Invalid,
    SplitSite,
)

MAX_FIELDS = 1_500_000
# Levels of nested bodies and functions; real models stay below 20.
MAX_DEPTH = 64
# Since this IR version, an initializer of an input is only the input's default.
_DEFAULTS_SINCE_IR = 4

_FunctionKey = tuple[str, str, str]
_FunctionCall = tuple[_FunctionKey, tuple[Value, ...], frozenset[Attribute]]


@dataclass(frozen=True, slots=True)
class _Scope:
    """A graph, or a function's body, and the meaning of names in it."""

    graph: str  # as in sites
    values: ChainMap[str, Value]
    declarations: Declarations
    opsets: Mapping[str, int]
    attributes: Mapping[str, Attribute] | None  # None: those of an unknown caller
    path: tuple[int | str, ...] = ()  # as in sites
    labels: set[str] = field(default_factory=set)  # of nodes with bodies and calls so far
    never_runs: str | None = None  # as in sites


class _Visit(NamedTuple):
    node: Node
    position: int
    inputs: list[Value]
    scope: _Scope

    @property
    def description(self) -> str:
        """The node, for a message."""
        name = f" {shown_name(self.node.name)!r}" if self.node.name else f" #{self.position}"
        return f"{shown_name(self.node.op_type)}{name} of {self.scope.graph}"

    def gap_after(self) -> Gap:
        """The reason for an unknown shape if this node lost it."""
        inferred = not self.node.domain and self.node.op_type in INFERRED_BY_ONNX
        cause = Cause.INFERABLE if inferred else Cause.UNTRACKED
        return f"the shape of its input is unknown after {self.description}", cause

    def claim_label(self) -> str:
        """A label that no earlier node with bodies or call in this graph has."""
        label = shown_name(self.node.name) or f"{shown_name(self.node.op_type)}[{self.position}]"
        if label in self.scope.labels:
            label += f"[{self.position}]"
        self.scope.labels.add(label)
        return label

    def site(self, file: str) -> SplitSite:
        """A site of the node, about which nothing else is known yet."""
        name, path = shown_name(self.node.name), (*self.scope.path, self.position)
        graph, operator = self.scope.graph, self.node.op_type
        maps, source = self.scope.values.maps, next(iter(self.node.input), "")
        outwards = next((i for i, values in enumerate(maps) if source in values), 0)
        return SplitSite(
            file,
            graph,
            name,
            self.position,
            operator,
            path=path,
            # Three steps lead from a graph into a body.
            input_path=self.scope.path[: len(self.scope.path) - 3 * outwards],
            format="onnx",
            never_runs=self.scope.never_runs,
        )


class _Walk:
    """A walk over a model that finds its splits.

    Without `with_defaults`, values that a caller may override are inputs like others. Source:
    onnx/docs/IR.md, "Graphs"; ONNX Runtime takes values for them since the same IR version.
    """

    def __init__(
        self,
        file: str,
        reader: Reader,
        model: Model,
        dimensions: FixedSizes,
        with_defaults: bool = True,
    ) -> None:
        self._with_defaults = with_defaults
        self.has_defaults = False  # in the graphs so far
        self._file = file
        self._dimensions = dimensions
        self._reader = reader
        self._model = model
        self._functions = {function.key: function for function in model.functions}
        self._called: dict[_FunctionCall, tuple[Value, ...]] = {}
        self._sites: list[SplitSite] = []
        self._recombined: dict[int, list[str]] = {}
        self._outputs: dict[int, tuple[str, ...]] = {}  # of each Split
        self._used: set[str] = set()  # by a node or as a graph's output; of the whole file
        # The inferred shapes of values whose declared shapes contradict them, by path and name.
        self.contradicted: dict[tuple[tuple[int | str, ...], str], Shape] = {}
        self._faults: list[str] = []  # for which a runtime does not load the model
        self.sites = self._all_sites()

    def _all_sites(self) -> list[SplitSite]:
        """Walk the main graph, then the functions that it does not call."""
        opsets = {opset.domain: opset.version for opset in self._model.opset_import}
        scope = _Scope("", ChainMap(), Declarations({}), opsets, {})
        self._graph(self._model.graph[0], scope, "")
        fault = next(iter(self._faults), None)  # not those of functions that are never called
        for key, function in self._functions.items():
            if key not in {called for called, _, _ in self._called}:
                name = f"function {shown_name('.'.join(filter(None, key)))}"
                inner = replace(scope, graph=name, attributes=None, path=(name, "()"))
                self._body(function, [UNKNOWN] * len(function.input), inner)
        for split, names in self._outputs.items():
            unused = tuple(index for index, name in enumerate(names) if name not in self._used)
            nodes = tuple(self._recombined.get(split, ()))
            self._sites[split] = replace(
                self._sites[split], unused_outputs=unused, recombined_by=nodes
            )
        if fault is not None:
            self._sites = [replace(site, model_fault=fault) for site in self._sites]
        return unified(self._sites, self._dimensions.options)

    def _graph(self, span: Span, scope: _Scope, name: str) -> list[Value]:
        """The outputs of a graph, once all its nodes are visited."""
        graph = self._reader.read(Graph, span)
        if not scope.path:
            self._dimensions.register(graph.input)
        self._faults += input_faults(graph)
        # Of two declarations, ONNX Runtime takes the output's.
        declared = self._declared((*graph.value_info, *graph.output))
        inputs = {entry.name: self._input(entry, not scope.path) for entry in graph.input}
        has_defaults = self._model.ir_version >= _DEFAULTS_SINCE_IR
        defaults = inputs.keys() & {t.name for t in graph.initializer} if has_defaults else set()
        constants = {t.name: _initializer(t, t.name in defaults) for t in graph.initializer}
        if defaults:
            self.has_defaults = True
            if not self._with_defaults:
                constants = {name: v for name, v in constants.items() if name not in defaults}
        inner = replace(
            scope,
            graph=name or shown_name(graph.name or "main graph"),
            values=scope.values.new_child(inputs | constants),
            declarations=Declarations(declared | inputs),
            labels=set(),
        )
        return self._nodes(graph, inner, [entry.name for entry in graph.output])

    def _input(self, entry: messages.ValueInfo, is_main: bool) -> Value:
        shape = self._declared_shape(entry)
        text = f"the rank of the graph's input {shown_name(entry.name)!r} is dynamic"
        gap = (text, Cause.DYNAMIC) if shape is None else None
        if is_main and entry.shape:  # so that splits of derived values ask for the same size
            shape = tuple(
                self._dimensions.size(dim, f"{entry.name}.{axis}")
                for axis, dim in enumerate(entry.shape)
            )
        return Value(entry.data_type, shape, gap=gap)

    def _declared(self, entries: Iterable[messages.ValueInfo]) -> dict[str, Value]:
        return {e.name: Value(e.data_type, self._declared_shape(e)) for e in entries}

    def _declared_shape(self, entry: messages.ValueInfo) -> Shape | None:
        return entry.shape and tuple(map(self._dimensions.size, entry.shape))

    def _nodes(self, body: Graph | Function, scope: _Scope, outputs: Sequence[str]) -> list[Value]:
        """The outputs of these names, once all nodes are visited."""
        if sum(isinstance(step, str) for step in scope.path) > MAX_DEPTH:
            raise LimitError(f"graphs and functions nest deeper than {MAX_DEPTH}")
        self._used.update(outputs)
        for index, span in enumerate(body.node):
            node = _resolved(self._reader.read(Node, span), scope.attributes)
            self._used.update(node.input)
            self._define(_Visit(node, index, [_input_value(n, scope) for n in node.input], scope))
        return [scope.values.get(name, UNKNOWN) for name in outputs]

    def _define(self, visit: _Visit) -> None:
        """Infer the outputs of a node, and enter them into its scope."""
        node, values = visit.node, visit.scope.values
        results = chain(self._node(visit), repeat(UNKNOWN))
        pieces = self._pieces(visit)
        inputs = [value for name, value in zip(node.input, visit.inputs, strict=True) if name]
        remarks = []
        for name, value in zip(node.output, results, strict=False):
            if name:
                value, remark = self._as_declared(name, value, visit)
                remarks += [remark] if remark else []
                value = value.with_gap(inputs, visit.gap_after)
                values[name] = replace(value, pieces=pieces) if pieces else value
        if remarks and _is_split(node):
            site = self._sites[-1]
            self._sites[-1] = replace(site, warnings=(*site.warnings, remarks[0]))

    def _as_declared(self, name: str, value: Value, visit: _Visit) -> tuple[Value, str | None]:
        """An output, completed from its declaration; if that is wrong, what is to be said."""
        scope, maker = visit.scope, visit.description
        declared, is_stale = scope.declarations.by_name.get(name), scope.declarations.are_stale
        # ONNX Runtime does not read the declarations in functions.
        checked = None if "()" in scope.path else declared
        self._faults += output_faults(visit.node, name, value, checked, name in scope.values, maker)
        if declared is None:
            return value, None
        if not contradicts(declared.shape, value.shape):
            return value if is_stale else value.merged(declared), None
        scope.declarations.are_stale = True
        self.contradicted[scope.path, name] = value.shape or ()
        remark = shape_remark(name, declared.shape, value.shape, maker)
        return replace(value, remark=remark), remark

    def _pieces(self, visit: _Visit) -> Pieces:
        """The pieces that a node's outputs derive from; notes if it combines two of one split."""
        if not any(value.pieces for value in visit.inputs):  # of most nodes
            return frozenset()
        pieces, splits = followed(visit.node, [value.pieces for value in visit.inputs])
        for split in splits:
            self._recombined.setdefault(split, []).append(visit.description)
        return pieces

    def _node(self, visit: _Visit) -> Sequence[Value]:
        node, call = visit.node, Call(visit.node, visit.inputs, self._reader)
        results = self._bodies(visit, call)
        if _is_split(node):
            return self._split(visit, call)
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            return self._call(visit, self._functions[key])
        if node.domain or node.has_references:
            return ()
        if node.op_type == "If" and results:
            return [reduce(agreement, values) for values in zip(*results, strict=False)]
        return [with_origin(value, call) for value in outputs(call)]

    def _bodies(self, visit: _Visit, call: Call) -> list[list[Value]]:
        """The outputs of each body of a node that may run."""
        bodies = {a.name: a.bodies for a in visit.node.attribute if a.bodies}
        label = visit.claim_label() if bodies else ""
        results = []
        for name, spans in bodies.items():
            for position, span in enumerate(spans):
                suffix = f"[{position}]" if len(spans) > 1 else ""
                body = f"{visit.scope.graph}/{label}.{shown_name(name)}{suffix}"
                path = (*visit.scope.path, visit.position, name, position)
                why = never_runs(call, name)
                if why is not None:
                    why = f"it is in the {name} of {visit.description}, whose {why}"
                scope = replace(visit.scope, path=path, never_runs=visit.scope.never_runs or why)
                values = self._graph(span, scope, body)
                results += [values] if why is None else []
        return results

    def _split(self, visit: _Visit, call: Call) -> Sequence[Value]:
        opset = visit.scope.opsets.get("")
        site, values = complete_site(visit.site(self._file), call, opset)
        is_invalid = isinstance(site.state, Invalid)
        warnings = site.warnings
        warnings += tuple(value.remark for value in visit.inputs[:1] if value.remark)
        in_branch = not {"then_branch", "else_branch"}.isdisjoint(site.path)
        if is_invalid and in_branch and site.never_runs is None:
            warnings += ("the node is in a branch of an If, which may never run",)
        folded = is_folded(call)
        self._sites.append(replace(site, warnings=warnings, is_folded=folded))
        if visit.node.op_type != "Split" or is_invalid:
            return values
        split, results = len(self._sites) - 1, chain(values, repeat(UNKNOWN))
        self._outputs[split] = visit.node.output
        return [
            replace(value, pieces=frozenset({(split, output)}))
            for output, value in zip(range(len(visit.node.output)), results, strict=False)
        ]

    def _call(self, visit: _Visit, function: Function) -> Sequence[Value]:
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes |= {a.name: a for a in visit.node.attribute if not a.ref_attr_name}
        # Drop the pieces: with them, every call of a function would be a new one.
        inputs = [replace(v, pieces=frozenset()) if v.pieces else v for v in visit.inputs]
        call = function.key, tuple(inputs), frozenset(attributes.values())
        if call not in self._called:
            inner = replace(
                visit.scope,
                graph=f"{visit.scope.graph}/{visit.claim_label()}",
                attributes=None if visit.node.has_references else attributes,
                path=(*visit.scope.path, visit.position, "()"),
            )
            self._called[call] = self._body(function, inputs, inner)
        return self._called[call]

    def _body(
        self, function: Function, inputs: Sequence[Value], scope: _Scope
    ) -> tuple[Value, ...]:
        declared = self._declared(function.value_info)
        values = {
            name: value.merged(declared[name]) if name in declared else value
            for name, value in zip(function.input, inputs, strict=False)
        }
        inner = replace(
            scope,
            values=ChainMap(values),
            declarations=Declarations(declared),
            opsets={opset.domain: opset.version for opset in function.opset_import},
            labels=set(),
        )
        results = self._nodes(function, inner, function.output)
        return tuple(replace(v, pieces=frozenset(), sizes=frozenset()) for v in results)


def _is_split(node: Node) -> bool:
    return not node.domain and node.op_type in OPERATORS


def _initializer(tensor: Tensor, is_default: bool) -> Value:
    return Value(tensor.data_type, tensor.shape, tensor, is_folded=not is_default)


def _resolved(node: Node, attributes: Mapping[str, Attribute] | None) -> Node:
    """A node of a function with the caller's attributes; unknown ones stay references."""
    if attributes is None or not node.has_references:
        return node
    own = (
        replace(attributes[a.ref_attr_name], name=a.name) if a.ref_attr_name else a
        for a in node.attribute
        if not a.ref_attr_name or a.ref_attr_name in attributes
    )
    return replace(node, attribute=tuple(own))


def _input_value(name: str, scope: _Scope) -> Value:
    if not name or name in scope.values:
        return scope.values.get(name, UNKNOWN)
    text = f"no earlier node produces value {shown_name(name)!r}"
    return Value(gap=(text, Cause.ORDER))


def _with_defaults(sites: list[SplitSite], others: list[SplitSite]) -> list[SplitSite]:
    """The sites; those that are not the same in `others`, without defaults, are overridable.

    ONNX Runtime folds, and leaves out, only what no caller can change.
    """
    by_path = {site.path: without_examples(site) for site in others}
    text = "its sizes follow from the default of a graph input; a caller may override it"
    merged = []
    for site in sites:
        other = by_path.get(site.path)
        never_runs, is_folded = (other.never_runs, other.is_folded) if other else (None, False)
        site = replace(site, never_runs=never_runs, is_folded=is_folded)
        if other != without_examples(site):
            site = replace(site, is_overridable=True, warnings=(*site.warnings, text))
        merged.append(site)
    return merged


class ModelScan(NamedTuple):
    """The splits of a model, and what is wrong in its declarations."""

    sites: list[SplitSite]
    # The inferred shapes of values whose declared shapes contradict them. A key has the path of the
    # value's graph, as in sites, and its name.
    contradicted: Mapping[tuple[tuple[int | str, ...], str], Shape]


def scan_model(name: str, data: bytes | mmap.mmap, dimensions: FixedSizes) -> ModelScan:
    """Scan a model."""
    walk = _walked(name, data, dimensions)
    sites = walk.sites
    if walk.has_defaults:
        sites = _with_defaults(sites, _walked(name, data, dimensions, False).sites)
    return ModelScan(sites, walk.contradicted)


def _walked(
    name: str, data: bytes | mmap.mmap, dimensions: FixedSizes, with_defaults: bool = True
) -> _Walk:
    # Calls and constants are walked again, which may double the fields of a small model.
    reader = Reader(data, min(MAX_FIELDS, 50_000 + 2 * len(data)))
    try:
        model = reader.read(Model, Span(0, len(data)))
        if len(model.graph) != 1:
            raise WireError(f"it has {len(model.graph)} graphs; a model must have 1")
        return _Walk(name, reader, model, dimensions, with_defaults)
    except LimitError as error:
        raise InvalidArgumentError(f"exceeds a limit of dmlsplit: {error}") from None
    except WireError as error:
        raise InvalidArgumentError(
            f"cannot be read as an ONNX model: {error}. Fix: export or download the model again"
        ) from None
