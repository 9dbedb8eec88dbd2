"""Replaces splits of an ONNX model by standard nodes that a target accepts.

A split that is refused for its rank, its 8-bit type, an empty piece or for making a
sequence becomes ``Reshape, Cast, Split, Cast, Reshape``, of which each part is left out
where it is not needed; empty pieces become constants and ``SequenceConstruct`` makes the
sequence. 64-bit types have no such way: BitCast-26 keeps the width of an element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from dmlsplit.drafts import draft
from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.feature_levels import capability_table
from dmlsplit.frontends import Finding
from dmlsplit.frontends.onnx_proto import shown_name
from dmlsplit.model_comparison import compare_models
from dmlsplit.ort_provider import MOST_DIMENSIONS
from dmlsplit.targets import Target
from dmlsplit.tensor import UINT_MAX, TensorDataType
from dmlsplit.verdicts import Assessment, Outcome, Verdict, assess

# Reshape takes its shape as an input since 5, Cast its type as a number since 6.
_LEAST_OPSET = 6
_CURABLE = {
    "DML-LEVEL-DATA-TYPE",
    "DML-LEVEL-DIMENSION-COUNT",
    "DML-TENSOR-DIMENSION-COUNT",
    "ORT-DIMENSION-COUNT",
    "ORT-EMPTY-PIECE",
    "ORT-OPERATOR",
}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What a rewriting did.

    Attributes
    ----------
    replaced : tuple of Finding
        The splits that were replaced.
    left : tuple of (Finding, str)
        Refused splits that stay as they are, and why.
    engine : str
        What ran both models; empty if nothing was replaced, and so nothing written.
    """

    replaced: tuple[Finding, ...]
    left: tuple[tuple[Finding, str], ...]
    engine: str


def write_fixed(source: Path, output: Path, assessment: Assessment) -> Rewriting:
    """Write a model with its refused splits replaced, if it computes the same.

    Parameters
    ----------
    source
        The model that was assessed.
    output
        The file to write; it appears only if both models agree, bit by bit, on random inputs.
    assessment
        The verdicts of `source`.

    Raises
    ------
    InvalidArgumentError
        If the model cannot be read, or the models differ.
    UnsupportedError
        If the models could not be run.
    OSError
        If a file cannot be read or written.
    """
    if output.exists() and output.samefile(source):
        raise InvalidArgumentError(f"{output} is the model itself; name another file")
    model = _load(source)
    if _has_external_data(model.graph) and output.parent.resolve() != source.parent.resolve():
        raise InvalidArgumentError(
            f"{source} keeps its weights in other files; write {output.name} to {source.parent}"
        )
    replaced, left = _replace_splits(model, assessment)
    if not replaced:
        return Rewriting((), left, "")
    with draft(output) as temporary:
        temporary.write_bytes(model.SerializeToString())
        _check_verdicts(temporary, assessment.target, len(left))
        engine = compare_models(source, temporary)
    return Rewriting(replaced, left, engine)


def _load(path: Path) -> ModelProto:
    try:
        return onnx.load_model_from_string(path.read_bytes())
    except Exception as error:
        # protobuf's DecodeError is not onnx's to name, and differs between its versions.
        raise InvalidArgumentError(f"{path}: onnx cannot load it: {error}") from None


def _check_verdicts(path: Path, target: Target, left: int) -> None:
    from dmlsplit.frontends.onnx import scan

    after = assess(scan(path), target)
    refused = [verdict for verdict in after.verdicts if after.fails(verdict)]
    if len(refused) > left:
        raise InvalidArgumentError(
            f"the rewritten split is refused as well: {refused[0].remarks[0].message}"
        )


def _replace_splits(
    model: ModelProto, assessment: Assessment
) -> tuple[tuple[Finding, ...], tuple[tuple[Finding, str], ...]]:
    """Edit a model in place."""
    refused = (Outcome.REFUSED, Outcome.LEGALIZED)
    wanted = {
        (verdict.finding.place, verdict.finding.index): verdict
        for verdict in assessment.verdicts
        if verdict.outcome in refused
    }
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    names = _Names(model.graph)
    replaced: list[Finding] = []
    left: list[tuple[Finding, str]] = []
    for place, graph in _graphs(model.graph, shown_name(model.graph.name or "main graph")):
        nodes: list[NodeProto] = []
        for index, node in enumerate(graph.node):
            verdict = wanted.pop((place, index), None)
            if verdict is None:
                nodes.append(node)
                continue
            try:
                plan = _plan(node, verdict, assessment.target, opset)
            except UnsupportedError as reason:
                nodes.append(node)
                left.append((verdict.finding, str(reason)))
            else:
                nodes += _nodes(node, plan, names, opset)
                replaced.append(verdict.finding)
        _set_nodes(graph, nodes)
    inside = "it is in the body of a function; inline the functions first (onnx.inliner)"
    left += [(verdict.finding, inside) for verdict in wanted.values()]
    return tuple(replaced), tuple(left)


def _set_nodes(graph: GraphProto, nodes: Iterable[NodeProto]) -> None:
    # Copied out first: clearing the field frees the nodes that stay.
    kept = GraphProto(node=nodes)
    graph.ClearField("node")
    graph.node.MergeFrom(kept.node)


def _graphs(graph: GraphProto, place: str) -> Iterator[tuple[str, GraphProto]]:
    """Yield all bodies with their places, in the words of the scan, innermost first."""
    for index, node in enumerate(graph.node):
        label = shown_name(node.name) or f"{shown_name(node.op_type)}[{index}]"
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for position, body in enumerate(bodies):
                which = f"[{position}]" if len(bodies) > 1 else ""
                yield from _graphs(body, f"{place}/{label}.{shown_name(attribute.name)}{which}")
    yield place, graph


def _has_external_data(graph: GraphProto) -> bool:
    return any(
        tensor.data_location == onnx.TensorProto.EXTERNAL
        for _, body in _graphs(graph, "")
        for tensor in body.initializer
    )


class _Names:
    """Makes names that no value of a model has."""

    def __init__(self, graph: GraphProto) -> None:
        used = {
            name
            for _, body in _graphs(graph, "")
            for node in body.node
            for name in (*node.input, *node.output)
        }
        self._prefix = "dmlsplit_"
        while any(name.startswith(self._prefix) for name in used):
            self._prefix += "_"
        self._count = 0

    def new(self, what: str) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}_{what}"


@dataclass(frozen=True, slots=True)
class _Plan:
    """The subgraph that takes the place of a split."""

    shape: tuple[int, ...]  # what Split sees
    axis: int
    reshaped: bool
    cast: int  # TensorProto.DataType that Split sees; 0 for the model's own
    element_type: int
    sizes: tuple[int, ...]  # of all pieces
    piece_shapes: tuple[tuple[int, ...], ...]  # what the model sees
    squeezed: bool
    sequence: bool
    name: str

    @property
    def restores_shape(self) -> bool:
        """Whether Split's pieces do not have the shapes that the model expects."""
        return self.reshaped or self.squeezed


def _plan(node: NodeProto, verdict: Verdict, target: Target, opset: int) -> _Plan:
    """Plan a replacement.

    Raises
    ------
    UnsupportedError
        If standard nodes cannot do it, with the reason.
    """
    finding = verdict.finding
    _check_curable(verdict, opset)
    sizes, axis = finding.shape, finding.axis
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    sequence = node.op_type == "SplitToSequence"
    has_split = len(node.input) > 1 and bool(node.input[1])
    squeezed = sequence and not has_split and not attributes.get("keepdims", 1)
    before, behind = sizes[:axis], sizes[axis + 1 :]
    support = capability_table()[target.level].input_tensor
    least, most = support.minimum_dimensions, support.maximum_dimensions
    if target.via == "ort":
        least, most = 1, MOST_DIMENSIONS
    reshaped = not least <= len(sizes) <= most
    return _Plan(
        (1, prod(before), sizes[axis], prod(behind)) if reshaped else sizes,
        2 if reshaped else axis,
        reshaped,
        _cast(finding.descriptors[0].input_tensor.data_type, support.data_types),
        onnx.TensorProto.DataType.Value(finding.element_type),
        finding.pieces,
        tuple((*before, *([] if squeezed else [n]), *behind) for n in finding.pieces),
        squeezed,
        sequence,
        node.name,
    )


def _check_curable(verdict: Verdict, opset: int) -> None:
    finding = verdict.finding
    for remark in verdict.remarks:
        if remark.severity == "error" and remark.rule.id not in _CURABLE:
            raise UnsupportedError(f"{remark.rule.id}: {remark.message}")
    if len(finding.descriptors) != 1 or not finding.pieces or not finding.element_type:
        raise UnsupportedError("its sizes are known only when the model runs")
    if opset < _LEAST_OPSET:
        raise UnsupportedError(f"the model has opset {opset}; rewriting needs {_LEAST_OPSET}")
    if finding.descriptors[0].input_tensor.element_count > UINT_MAX:
        raise UnsupportedError("it has more than 2^32-1 elements")
    if finding.element_type.startswith("COMPLEX"):
        raise UnsupportedError("standard ONNX cannot show complex elements as other ones")


def _cast(kind: TensorDataType, supported: frozenset[TensorDataType]) -> int:
    """Return the type that carries every value of `kind`, or 0 if `kind` itself is supported."""
    if kind in supported:
        return 0
    if kind.bits < 32 and TensorDataType.INT32 in supported:
        return int(onnx.TensorProto.INT32)
    raise UnsupportedError(
        f"standard ONNX cannot show {kind.name} elements as narrower ones: Cast loses bits, and "
        "BitCast keeps the width"
    )


def _nodes(node: NodeProto, plan: _Plan, names: _Names, opset: int) -> Iterator[NodeProto]:
    """Yield the subgraph, in the order in which it runs."""
    source = node.input[0]
    if plan.reshaped:
        source, given = names.new("rows"), source
        yield from _reshape(given, source, plan.shape, names)
    if plan.cast:
        source, given = names.new("wide"), source
        yield helper.make_node("Cast", [given], [source], to=plan.cast)
    count = len(plan.sizes)
    targets = [names.new("piece") for _ in range(count)] if plan.sequence else list(node.output)
    direct = not plan.cast and not plan.restores_shape
    solid = {
        at: (direct and targets[at]) or names.new("part")
        for at, shape in enumerate(plan.piece_shapes)
        if 0 not in shape
    }
    yield from _split(source, solid, plan, names, opset)
    for at, target in enumerate(targets):
        if target and at in solid:
            yield from _restored(solid[at], target, plan.piece_shapes[at], plan, names)
        elif target:
            kind = helper.tensor_dtype_to_np_dtype(plan.element_type)
            yield _constant(np.empty(plan.piece_shapes[at], kind), target)
    if plan.sequence:
        yield helper.make_node("SequenceConstruct", targets, list(node.output))


def _split(
    source: str, parts: Mapping[int, str], plan: _Plan, names: _Names, opset: int
) -> Iterator[NodeProto]:
    sizes = [plan.sizes[at] for at in parts]
    outputs = list(parts.values())
    if opset < 13:
        yield helper.make_node("Split", [source], outputs, plan.name, axis=plan.axis, split=sizes)
        return
    given = names.new("sizes")
    yield _constant(np.array(sizes, np.int64), given)
    yield helper.make_node("Split", [source, given], outputs, plan.name, axis=plan.axis)


def _restored(
    part: str, target: str, shape: tuple[int, ...], plan: _Plan, names: _Names
) -> Iterator[NodeProto]:
    """Yield what turns a part into the piece that the model expects."""
    if plan.cast:
        narrow = names.new("narrow") if plan.restores_shape else target
        yield helper.make_node("Cast", [part], [narrow], to=plan.element_type)
        part = narrow
    if plan.restores_shape:
        yield from _reshape(part, target, shape, names)


def _reshape(
    source: str, target: str, shape: tuple[int, ...], names: _Names
) -> Iterator[NodeProto]:
    wanted = names.new("shape")
    yield _constant(np.array(shape, np.int64), wanted)
    yield helper.make_node("Reshape", [source, wanted], [target])


def _constant(value: np.ndarray, name: str) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
