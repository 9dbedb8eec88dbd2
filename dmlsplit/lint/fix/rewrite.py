"""Writes ONNX models with their refused splits replaced, if they compute the same outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from dmlsplit.atomic import atomic_write
from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx.messages import shown_name
from dmlsplit.lint.fix.comparison import compare_models
from dmlsplit.lint.fix.subgraph import find_replacement, name_maker, replacement_nodes
from dmlsplit.lint.judge import assess
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Assessment, Outcome


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The result of rewriting a model."""

    replaced: tuple[SplitSite, ...]
    left: tuple[tuple[SplitSite, str], ...]  # refused, but left as they are, and why
    engine: str  # that ran both models; empty if nothing was replaced, so nothing written


def write_fixed(source: Path, output: Path, assessment: Assessment) -> Rewriting:
    """Write the model `source`, which was assessed, with its refused splits replaced.

    The output appears only if both models agree bit for bit on random inputs.

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
    with atomic_write(output) as (temporary,):
        temporary.write_bytes(model.SerializeToString())
        _check_verdicts(temporary, assessment.target, len(left))
        engine = compare_models(source, temporary)
    return Rewriting(replaced, left, engine)


def _load(path: Path) -> ModelProto:
    with about(path):
        try:
            return onnx.load_model_from_string(path.read_bytes())
        except Exception as error:
            # onnx does not export protobuf's DecodeError, whose home differs between versions.
            raise InvalidArgumentError(f"onnx cannot load it: {error}") from None


def _check_verdicts(path: Path, target: Target, left: int) -> None:
    from dmlsplit.frontends.onnx import scan

    after = assess(scan(path), target)
    refused = [verdict for verdict in after.verdicts if after.fails(verdict)]
    if len(refused) > left:
        raise InvalidArgumentError(
            f"the rewritten split is refused as well: {refused[0].diagnostics[0].message}"
        )


def _replace_splits(
    model: ModelProto, assessment: Assessment
) -> tuple[tuple[SplitSite, ...], tuple[tuple[SplitSite, str], ...]]:
    """Edit a model in place."""
    refused = (Outcome.REFUSED, Outcome.LEGALIZED)
    wanted = {
        (verdict.site.place, verdict.site.index): verdict
        for verdict in assessment.verdicts
        if verdict.outcome in refused
    }
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    new_name = name_maker(_value_names(model.graph))
    replaced: list[SplitSite] = []
    left: list[tuple[SplitSite, str]] = []
    for place, graph in _graphs(model.graph, shown_name(model.graph.name or "main graph")):
        nodes: list[NodeProto] = []
        for index, node in enumerate(graph.node):
            verdict = wanted.pop((place, index), None)
            if verdict is None:
                nodes.append(node)
                continue
            try:
                new = find_replacement(node, verdict, assessment.target, opset)
            except UnsupportedError as error:
                nodes.append(node)
                left.append((verdict.site, error.message))
            else:
                nodes += replacement_nodes(node, new, new_name, opset)
                replaced.append(verdict.site)
        kept = GraphProto(node=nodes)  # a copy: clearing the field frees its nodes
        graph.ClearField("node")
        graph.node.MergeFrom(kept.node)
    inside = "it is in the body of a function; inline the functions first (onnx.inliner)"
    left += [(verdict.site, inside) for verdict in wanted.values()]
    return tuple(replaced), tuple(left)


def _graphs(graph: GraphProto, place: str) -> Iterator[tuple[str, GraphProto]]:
    """Yield all bodies with their places, named as the scan names them, innermost first."""
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


def _value_names(graph: GraphProto) -> set[str]:
    return {
        name
        for _, body in _graphs(graph, "")
        for node in body.node
        for name in (*node.input, *node.output)
    }
