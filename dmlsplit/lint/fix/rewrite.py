"""Writes ONNX models with their refused splits replaced, if they compute the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from dmlsplit.atomic import atomic_write
from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx.messages import shown_name
from dmlsplit.lint.fix.comparison import compare_models
from dmlsplit.lint.fix.subgraph import Names, plan_subgraph, subgraph
from dmlsplit.lint.judge import Assessment, Outcome, assess
from dmlsplit.lint.target import Target


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What a rewriting did.

    Attributes
    ----------
    replaced : tuple of SplitSite
        The splits that were replaced.
    left : tuple of (SplitSite, str)
        Refused splits that stay as they are, and why.
    engine : str
        What ran both models; empty if nothing was replaced, and so nothing written.
    """

    replaced: tuple[SplitSite, ...]
    left: tuple[tuple[SplitSite, str], ...]
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
    with atomic_write(output) as (temporary,):
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
    names = Names(_value_names(model.graph))
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
                plan = plan_subgraph(node, verdict, assessment.target, opset)
            except UnsupportedError as reason:
                nodes.append(node)
                left.append((verdict.site, str(reason)))
            else:
                nodes += subgraph(node, plan, names, opset)
                replaced.append(verdict.site)
        _set_nodes(graph, nodes)
    inside = "it is in the body of a function; inline the functions first (onnx.inliner)"
    left += [(verdict.site, inside) for verdict in wanted.values()]
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


def _value_names(graph: GraphProto) -> set[str]:
    return {
        name
        for _, body in _graphs(graph, "")
        for node in body.node
        for name in (*node.input, *node.output)
    }
