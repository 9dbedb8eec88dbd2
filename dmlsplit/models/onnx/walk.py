"""Walks the nodes of an ONNX model, infers their values, and finds its splits."""

import mmap
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, repeat
from math import lcm
from typing import NamedTuple

from dmlsplit.directml.tensor import UINT_MAX
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.models.onnx import protobuf as messages
from dmlsplit.models.onnx.declarations import (
    Declarations,
    Declared,
    input_faults,
    output_faults,
    shape_remark,
)
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.folding import (
    is_folded,
    is_of_shapes,
    never_runs,
    with_origin,
)
from dmlsplit.models.onnx.frozen import at_size, frozen_axis
from dmlsplit.models.onnx.nodes import complete_site
from dmlsplit.models.onnx.operators import OPERATORS
from dmlsplit.models.onnx.protobuf import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
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
    Piece,
    Pieces,
    Value,
    agreement,
    contradicts,
)
from dmlsplit.models.site import (
    Cause,
    Invalid,
    Size,
    SplitSite,
    Unknown,
)

MAX_FIELDS = 1_500_000
# Levels of nested bodies and functions; real models stay below 20.
MAX_DEPTH = 64
# The neighbours of splits for whose versions since opset 23 ONNX Runtime's DirectML provider has no
# kernels.
_LEAVING = {"Cast", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze"}
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
        site = SplitSite(file, graph, name, self.position, operator, path=path, format="onnx")
        return replace(site, never_runs=self.scope.never_runs)


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
        self._neighbours: dict[int, dict[str, None]] = {}  # of each Split, those in _LEAVING
        self._input_dimensions: set[Size] = set()
        self._used: set[str] = set()  # by a node or as a graph's output; of the whole file
        self._faults: list[str] = []  # for which a runtime does not load the model

    def sites(self) -> list[SplitSite]:
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
                self._sites[split],
                unused_outputs=unused,
                recombined_by=nodes if len(names) == 2 else (),
                neighbours=tuple(self._neighbours[split]),
            )
        ir, opset = self._model.ir_version, opsets.get("", 0)
        self._sites = [replace(s, ir_version=ir, model_opset=opset) for s in self._sites]
        if fault is not None:
            self._sites = [replace(site, model_fault=fault) for site in self._sites]
        return _unify_sizes(self._sites)

    def _graph(self, span: Span, scope: _Scope, name: str) -> list[Value]:
        """The outputs of a graph, once all its nodes are visited."""
        graph = self._reader.read(Graph, span)
        if scope.path:
            self._dimensions.register_names(graph.input)
        else:
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
            declarations=Declarations(
                declared | {e.name: Declared(inputs[e.name], e.shape) for e in graph.input}
            ),
            labels=set(),
        )
        return self._nodes(graph, inner, [entry.name for entry in graph.output])

    def _input(self, entry: messages.ValueInfo, is_main: bool) -> Value:
        shape = self._dimensions.apply(entry.name, self._dimensions.declared_shape(entry))
        text = f"the rank of the graph's input {shown_name(entry.name)!r} is dynamic"
        gap = (text, Cause.DYNAMIC) if shape is None else None
        if is_main and shape:  # so that splits of derived values ask for the same size
            shape = tuple(f"{entry.name}.{i}" if n is None else n for i, n in enumerate(shape))
            self._input_dimensions.update(shape)
        return Value(entry.data_type, shape, gap=gap)

    def _declared(self, entries: Iterable[messages.ValueInfo]) -> dict[str, Declared]:
        return {
            e.name: Declared(Value(e.data_type, self._dimensions.declared_shape(e)), e.shape)
            for e in entries
        }

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
                value = self._with_fixed_sizes(name, value, visit.scope)
                value = value.with_gap(inputs, visit.gap_after)
                if node.op_type in _LEAVING and not node.domain:
                    value = replace(value, maker=node.op_type)
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
        if self._dimensions.sizes and not is_stale:
            self._check_sizes(name, value, declared, visit)
        if not contradicts(declared.value.shape, value.shape):
            return value if is_stale else value.merged(declared.value), None
        scope.declarations.are_stale = True
        self._dimensions.contradicted[scope.path, name] = value.shape or ()
        remark = shape_remark(name, declared.value.shape, value.shape, maker)
        return replace(value, remark=remark), remark

    def _with_fixed_sizes(self, name: str, value: Value, scope: _Scope) -> Value:
        """A value with the sizes that the user gives."""
        if not self._dimensions.sizes or "()" in scope.path:  # names in functions are not unique
            return value
        shape = self._dimensions.apply(name, value.shape)
        return value if shape == value.shape else replace(value, shape=shape, gap=None)

    def _check_sizes(self, name: str, value: Value, declared: Declared, visit: _Visit) -> None:
        """Refuse a given size if the model computes another for a dimension of that name."""
        # In a function, which may be called with several shapes, a name has several sizes.
        if value.shape and declared.shape and "()" not in visit.scope.path:
            shown = shown_name(name)
            self._dimensions.check_computed(shown, value.shape, declared.shape, visit.description)

    def _pieces(self, visit: _Visit) -> Pieces:
        """The pieces that a node's outputs derive from; notes if it combines two of one split."""
        if not any(value.pieces for value in visit.inputs):  # of most nodes
            return frozenset()
        if visit.node.op_type in _LEAVING:
            for split, output, _ in chain.from_iterable(value.pieces for value in visit.inputs):
                if self._outputs[split][output] in visit.node.input:
                    self._neighbours[split][visit.node.op_type] = None
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
        if frozen := frozen_axis(site, call, self._input_dimensions):
            site, _ = complete_site(visit.site(self._file), at_size(call, *frozen), opset)
            site = replace(site, frozen=frozen)
        is_invalid = isinstance(site.state, Invalid)
        warnings = site.warnings
        warnings += tuple(value.remark for value in visit.inputs[:1] if value.remark)
        in_branch = not {"then_branch", "else_branch"}.isdisjoint(site.path)
        if is_invalid and in_branch and site.never_runs is None:
            warnings += ("the node is in a branch of an If, which may never run",)
        folded = is_folded(call)
        shape = is_of_shapes(call)
        self._sites.append(replace(site, warnings=warnings, is_folded=folded, is_shape=shape))
        if visit.node.op_type != "Split" or is_invalid:
            return values
        split, results = len(self._sites) - 1, chain(values, repeat(UNKNOWN))
        self._outputs[split] = visit.node.output
        makers = (value.maker for value in visit.inputs[:1] if value.maker)
        self._neighbours[split] = dict.fromkeys(makers)
        return [
            replace(value, pieces=frozenset({Piece(split, output)}))
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
            name: value.merged(declared[name].value) if name in declared else value
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


def _unify_sizes(sites: list[SplitSite]) -> list[SplitSite]:
    """The sites, with missing sizes that suit all of them: multiples of every number of pieces."""
    sizes: dict[str, int] = {}
    gaps = {i: site.state for i, site in enumerate(sites) if isinstance(site.state, Unknown)}
    for name, size in chain.from_iterable(gap.missing for gap in gaps.values()):
        multiple = lcm(size, sizes.get(name, 1))
        sizes[name] = multiple if multiple <= UINT_MAX else size
    for index, gap in gaps.items():
        missing = tuple((name, sizes[name]) for name, _ in gap.missing)
        sites[index] = replace(sites[index], state=replace(gap, missing=missing))
    return sites


def _with_unknown_ranks(sites: list[SplitSite], others: list[SplitSite]) -> list[SplitSite]:
    """The sites, but those that are invalid at the ranks that the user gives are as in `others`.

    The user may have given the sizes of some axes only, so such a node need not be wrong.
    """
    by_path = {site.path: site for site in others}
    merged = []
    for site in sites:
        other = by_path.get(site.path, site)
        if isinstance(site.state, Invalid) and isinstance(other.state, Unknown):
            problem = site.state.problem.removeprefix(f"{site.operator}: ")
            reason = f"{other.state.reason}; with the given sizes, {problem}"
            other = replace(other, state=replace(other.state, reason=reason))
        merged.append(other if isinstance(site.state, Invalid) else site)
    return _unify_sizes(merged)


def _with_defaults(sites: list[SplitSite], others: list[SplitSite]) -> list[SplitSite]:
    """The sites; those that are not the same in `others`, without defaults, are overridable.

    ONNX Runtime folds, and leaves out, only what no caller can change.
    """
    by_path = {site.path: _without_missing(site) for site in others}
    text = "its sizes follow from the default of a graph input; a caller may override it"
    merged = []
    for site in sites:
        other = by_path.get(site.path)
        never_runs, is_folded = (other.never_runs, other.is_folded) if other else (None, False)
        site = replace(site, never_runs=never_runs, is_folded=is_folded)
        if other != _without_missing(site):
            site = replace(site, is_overridable=True, warnings=(*site.warnings, text))
        merged.append(site)
    return merged


def _without_missing(site: SplitSite) -> SplitSite:
    """A site without what other sites of the model decide."""
    state = site.state
    return replace(site, state=replace(state, missing=())) if isinstance(state, Unknown) else site


def scan_model(name: str, data: bytes | mmap.mmap, dimensions: FixedSizes) -> list[SplitSite]:
    """The sites of a model."""
    sites, has_defaults = _scan(name, data, dimensions)
    if has_defaults:
        sites = _with_defaults(sites, _scan(name, data, FixedSizes(dimensions.sizes), False)[0])
    if dimensions.has_given_rank and any(isinstance(site.state, Invalid) for site in sites):
        return _with_unknown_ranks(sites, _scan(name, data, dimensions.without_ranks())[0])
    return sites


def _scan(
    name: str, data: bytes | mmap.mmap, dimensions: FixedSizes, with_defaults: bool = True
) -> tuple[list[SplitSite], bool]:
    """The sites of a model, and whether it has inputs with defaults."""
    # Calls and constants are walked again, which may double the fields of a small model.
    reader = Reader(data, min(MAX_FIELDS, 50_000 + 2 * len(data)))
    try:
        model = reader.read(Model, Span(0, len(data)))
        if len(model.graph) != 1:
            raise WireError(f"it has {len(model.graph)} graphs; a model must have 1")
        walk = _Walk(name, reader, model, dimensions, with_defaults)
        return walk.sites(), walk.has_defaults
    except LimitError as error:
        raise InvalidArgumentError(f"exceeds a limit of dmlsplit: {error}") from None
    except WireError as error:
        raise InvalidArgumentError(
            f"cannot be read as an ONNX model: {error}. Fix: export or download the model again"
        ) from None
