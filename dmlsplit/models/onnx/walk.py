"""Walks the nodes of an ONNX model, infers their values, and finds its splits."""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, repeat

from dmlsplit.models.limits import MAX_GRAPH_DEPTH
from dmlsplit.models.onnx.contradictions import Contradictions
from dmlsplit.models.onnx.declarations import (
    Declarations,
    attribute_faults,
    input_faults,
    value_faults,
)
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.folding import is_folded, is_of_shapes, with_origin
from dmlsplit.models.onnx.frozen import at_size, frozen_axis
from dmlsplit.models.onnx.functions import (
    FunctionCall,
    call_of,
    function_scope,
    lone_scope,
    resolved_node,
    uncalled_functions,
)
from dmlsplit.models.onnx.graphs import bodies, graph_scope, overridable_inputs
from dmlsplit.models.onnx.inference import infer_outputs
from dmlsplit.models.onnx.missing_sizes import unified_sites
from dmlsplit.models.onnx.nodes import complete_site
from dmlsplit.models.onnx.piece_uses import PieceUses, is_neighbour, piece_values
from dmlsplit.models.onnx.protobuf import Function, Graph, Model, Node
from dmlsplit.models.onnx.reader import LimitError, Reader
from dmlsplit.models.onnx.recombination import derived_pieces
from dmlsplit.models.onnx.scope import Scope, Visit
from dmlsplit.models.onnx.values import UNKNOWN, InferenceContext, Piece, Value, agreement
from dmlsplit.models.site import Invalid, OnnxModel, Size, SplitSite


class Walk:
    """A walk over a model that finds its splits.

    A graph visits its nodes in their order; a node visits its bodies, or the function that it
    calls. Without `with_defaults`, values that a caller may override are inputs like others.

    Attributes
    ----------
    contradictions : Contradictions
        What is wrong in the declarations of the graphs so far.
    has_defaults : bool
        Whether an input of a graph so far has a default.
    model : OnnxModel
        What decides whether a runtime loads it; its fault is known once `find_sites` has returned.
    """

    def __init__(
        self,
        file: str,
        reader: Reader,
        model: Model,
        dimensions: FixedSizes,
        *,
        with_defaults: bool = True,
    ) -> None:
        self.contradictions = Contradictions()
        self.has_defaults = False
        opsets = {opset.domain: opset.version for opset in model.opset_import}
        self.model = OnnxModel(file, opsets.get("", 0), model.ir_version)
        self._file = file
        self._reader = reader
        self._model = model
        self._dimensions = dimensions
        self._with_defaults = with_defaults
        self._functions = {function.key: function for function in model.functions}
        self._results: dict[FunctionCall, list[Value]] = {}
        self._called: set[tuple[str, str, str]] = set()
        self._pieces = PieceUses()
        # The sizes and names of the dimensions of the main graph's inputs.
        self._input_dimensions: set[Size] = set()
        self._sites: list[SplitSite] = []

    def find_sites(self) -> list[SplitSite]:
        """Walk the main graph, then the functions that it does not call."""
        scope = Scope("", ChainMap(), Declarations({}), {})
        main = self._reader.read(Graph, self._model.graph[0])
        plain_names = self._dimensions.register(main.input)
        self._visit_graph(main, scope, "")
        # Only faults in what the main graph reaches count, so functions that are not called come
        # later.
        fault = next(iter(self.contradictions.faults), None)
        for function in uncalled_functions(self._functions, self._called):
            inputs = [UNKNOWN] * len(function.input)
            self._visit_function(function, inputs, lone_scope(function, scope))
        sites = self._pieces.with_uses(self._sites)
        self.model = replace(self.model, fault=fault)
        ir = self.model.ir_version
        opset = self.model.opset
        sites = [replace(s, ir_version=ir, opset=opset, model_fault=fault) for s in sites]
        return unified_sites(sites, plain_names)

    def _visit_graph(self, graph: Graph, outer: Scope, name: str) -> list[Value]:
        """The outputs of a graph, once all its nodes are visited."""
        self.contradictions.add_faults(input_faults(graph))
        defaults = overridable_inputs(graph, self._model.ir_version)
        self.has_defaults |= bool(defaults)
        scope = graph_scope(
            graph, outer, name, self._dimensions, defaults, with_defaults=self._with_defaults
        )
        if not outer.path:
            shapes = (scope.value(entry.name).shape or () for entry in graph.input)
            self._input_dimensions.update(chain.from_iterable(shapes))
        results = self._visit_nodes(graph, scope, [entry.name for entry in graph.output])
        self.contradictions.add_faults(value_faults(graph, scope.values.maps[0]))
        return results

    def _visit_function(
        self, function: Function, inputs: Sequence[Value], outer: Scope
    ) -> list[Value]:
        """The outputs of a function, once all its nodes are visited."""
        scope = function_scope(function, inputs, outer, self._dimensions)
        results = self._visit_nodes(function, scope, function.output)
        return [replace(value, origins=frozenset(), sizes=frozenset()) for value in results]

    def _visit_nodes(
        self, body: Graph | Function, scope: Scope, names: Sequence[str]
    ) -> list[Value]:
        """The outputs of these names, once all nodes are visited."""
        if scope.depth > MAX_GRAPH_DEPTH:
            raise LimitError(f"graphs and functions nest deeper than {MAX_GRAPH_DEPTH}")
        self._pieces.note_uses(names)
        for position, span in enumerate(body.node):
            node = resolved_node(self._reader.read(Node, span), scope.attributes)
            self._pieces.note_uses(node.input)
            inputs = [scope.value(name) for name in node.input]
            self._visit_node(Visit(node, position, inputs, scope))
        results = [scope.values.get(name, UNKNOWN) for name in names]
        self._pieces.note_graph_outputs(results)
        return results

    def _visit_node(self, visit: Visit) -> None:
        """Enter the outputs of a node into its scope, and add its site if it is a split."""
        faults = attribute_faults(visit.node, in_function=visit.scope.is_in_function)
        self.contradictions.add_faults(f"{visit.description} {fault}" for fault in faults)
        context = InferenceContext(visit.node, visit.inputs, self._reader)
        results = self._results_of_bodies(visit, context)
        self._pieces.note_takers(visit, context)
        if not visit.is_split:
            self._enter_outputs(visit, self._infer_outputs(visit, context, results))
            return
        site, values = self._complete_site(visit, context)
        if not isinstance(site.state, Invalid):
            number = len(self._sites)
            if visit.node.op_type == "Split":
                self._pieces.note_split(number, visit)
            values = piece_values(number, visit.node, values)
        outputs = self._enter_outputs(visit, values)
        remarks = [value.remark for value in outputs if value.remark]
        self._sites.append(replace(site, warnings=(*site.warnings, *remarks[:1])))

    def _enter_outputs(self, visit: Visit, results: Iterable[Value]) -> list[Value]:
        """Enter the named outputs of a node into its scope; there may be too few results."""
        node = visit.node
        values = visit.scope.values
        origins = frozenset[Piece]()
        # Few inputs derive from pieces, so that this saves most nodes the calls.
        if any(value.origins for value in visit.inputs):
            origins, recombined = derived_pieces(node, [value.origins for value in visit.inputs])
            self._pieces.note_neighbour(visit)
            self._pieces.note_recombination(visit, recombined)
        maker = node.op_type if is_neighbour(node) else ""
        inputs = [value for name, value in zip(node.input, visit.inputs, strict=True) if name]
        names = [name for name in node.output if name]
        for name, value in zip(node.output, chain(results, repeat(UNKNOWN)), strict=False):
            if name:
                value = self.contradictions.checked_value(name, value, visit)
                value = value.with_gap(inputs, visit.gap_after)
                value = replace(value, maker=maker) if maker else value
                values[name] = replace(value, origins=origins) if origins else value
        return [values[name] for name in names]

    def _infer_outputs(
        self, visit: Visit, context: InferenceContext, results: list[list[Value]]
    ) -> Sequence[Value]:
        """What is known about a node's outputs, given the `results` of its bodies."""
        node = visit.node
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._visit_call(visit, function)
        if node.domain or node.has_references:
            return ()
        if node.op_type == "If" and results:
            return [reduce(agreement, values) for values in zip(*results, strict=False)]
        return [with_origin(value, context) for value in infer_outputs(context)]

    def _results_of_bodies(self, visit: Visit, context: InferenceContext) -> list[list[Value]]:
        """The outputs of each body of a node that may run."""
        results = []
        for body in bodies(visit, context):
            values = self._visit_graph(self._reader.read(Graph, body.span), body.outer, body.name)
            if body.may_run:
                results.append(values)
        return results

    def _visit_call(self, visit: Visit, function: Function) -> list[Value]:
        """The outputs of a call of a function; equal calls are visited once."""
        call, scope = call_of(visit, function)
        if call not in self._results:
            scope = replace(scope, graph=f"{scope.graph}/{visit.claim_label()}")
            self._results[call] = self._visit_function(function, call.inputs, scope)
            self._called.add(call.key)
        return self._results[call]

    def _complete_site(
        self, visit: Visit, context: InferenceContext
    ) -> tuple[SplitSite, Sequence[Value]]:
        """The site of a split, and what is known about its outputs.

        A split with frozen sizes is completed again at the one size that they fit.
        """
        blank = visit.site(self._file)
        # ONNX Runtime inlines functions, whatever opset they import.
        opset = self.model.opset
        site, values = complete_site(blank, context, opset)
        frozen = frozen_axis(site, context, self._input_dimensions)
        if frozen:
            site, _ = complete_site(blank, at_size(context, *frozen), opset)
        return replace(
            site,
            frozen=frozen,
            warnings=(*site.warnings, *_split_warnings(visit, site)),
            is_folded=is_folded(context),
            is_shape=is_of_shapes(context),
        ), values


def _split_warnings(visit: Visit, site: SplitSite) -> Iterator[str]:
    """The warnings about what is around a split."""
    yield from (value.remark for value in visit.inputs[:1] if value.remark)
    in_branch = not {"then_branch", "else_branch"}.isdisjoint(site.path)
    if isinstance(site.state, Invalid) and in_branch and site.never_runs is None:
        yield "the node is in a branch of an If, which may never run"
