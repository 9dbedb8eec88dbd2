"""Writes ONNX models whose refused splits are replaced, if the outputs stay the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from dmlsplit.atomic import atomic_write
from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx import scan
from dmlsplit.frontends.onnx.inference import fix_dimensions, graphs
from dmlsplit.lint.fix.comparison import Agreement, compare_models
from dmlsplit.lint.fix.subgraph import name_maker, replacement
from dmlsplit.lint.judge import IN_A_FUNCTION, assess
from dmlsplit.lint.verdict import FAILING, Assessment

# The name of a replaced split while the models are compared, without its number.
_PROBE = "dmlsplit_replaced_split_"


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The result of rewriting a model."""

    replaced: tuple[SplitSite, ...]
    left: tuple[tuple[SplitSite, str], ...]  # refused but not replaced, and why
    agreement: Agreement | None = None  # None if nothing was replaced, so nothing written
    written: Assessment | None = None  # of the written model, likewise


def write_fixed(
    source: Path,
    output: Path,
    assessment: Assessment,
    sizes: Mapping[str, int] | None = None,
    feed: Path | None = None,
) -> Rewriting:
    """Write the assessed model `source` with its refused splits replaced.

    The output appears only if both models agree bit for bit on several inputs: random, or by name
    those of `feed`, an .npz file. `sizes` become its dynamic dimensions. InvalidArgumentError: they
    differ; UnsupportedError: they could not be run.
    """
    model = _load(source)
    weights = _external_files(model.graph)
    if weights and output.parent.resolve() != source.parent.resolve():
        raise InvalidArgumentError(
            f"{source} keeps its weights in other files; write {output.name} to {source.parent}"
        )
    fix_dimensions(model, sizes or {})
    probes, replaced, left = _replace_splits(model, assessment)
    if not replaced:
        return Rewriting((), left)
    inputs = [source, *(source.parent / name for name in weights), *([feed] if feed else [])]
    with atomic_write(output, inputs=inputs) as (temporary,):
        temporary.write_bytes(model.SerializeToString())
        agreement = compare_models(source, temporary, tuple(probes), sizes, feed)
        for _, graph in graphs(model.graph):
            for node in graph.node:
                node.name = probes.get(node.name, node.name)
        temporary.write_bytes(model.SerializeToString())
        written = _assessed(temporary, output, assessment, len(left))
    return Rewriting(replaced, left, agreement, written)


def _load(path: Path) -> ModelProto:
    with about(path):
        try:
            return onnx.load_model_from_string(path.read_bytes())
        except Exception as error:
            # onnx does not export protobuf's DecodeError, whose module differs between versions.
            raise InvalidArgumentError(f"onnx cannot load it: {error}") from None


def _assessed(path: Path, name: Path, before: Assessment, left: int) -> Assessment:
    """Assess a rewritten model; InvalidArgumentError if over `left` splits are refused."""
    sites = [replace(site, file=str(name)) for site in scan(path, infer_shapes=True)]
    after = assess(sites, before.target, (), before.failing, before.defects_fail)
    refused = [verdict for verdict in after.verdicts if verdict.outcome in FAILING]
    if len(refused) > left:
        raise InvalidArgumentError(
            f"the rewritten split is refused as well: {refused[0].diagnostics[0].message}"
        )
    return after


def _replace_splits(
    model: ModelProto, assessment: Assessment
) -> tuple[dict[str, str], tuple[SplitSite, ...], tuple[tuple[SplitSite, str], ...]]:
    """Edit a model in place; the first result maps the new splits' unique names to the old ones."""
    wanted = {v.site.path: v for v in assessment.verdicts if v.outcome in FAILING}
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    every_node = (node for _, body in graphs(model.graph) for node in body.node)
    new_name = name_maker({name for node in every_node for name in (*node.input, *node.output)})
    probes: dict[str, str] = {}
    replaced: list[SplitSite] = []
    left: list[tuple[SplitSite, str]] = []
    for path, graph in graphs(model.graph):
        nodes: list[NodeProto] = []
        for index, node in enumerate(graph.node):
            verdict = wanted.pop((*path, index), None)
            if verdict is None:
                nodes.append(node)
                continue
            name = f"{_PROBE}{len(probes)}"
            try:
                nodes += replacement(node, name, verdict, assessment.target, opset, new_name)
                replaced.append(verdict.site)
                probes[name] = node.name
            except UnsupportedError as error:
                nodes.append(node)
                left.append((verdict.site, error.message))
        kept = GraphProto(node=nodes)  # a copy: clearing the field frees its nodes
        graph.ClearField("node")
        graph.node.MergeFrom(kept.node)
    left += [(verdict.site, IN_A_FUNCTION) for verdict in wanted.values()]
    return probes, tuple(replaced), tuple(left)


def _external_files(graph: GraphProto) -> set[str]:
    return {
        entry.value
        for _, body in graphs(graph)
        for tensor in body.initializer
        for entry in tensor.external_data
        if tensor.data_location == onnx.TensorProto.EXTERNAL and entry.key == "location"
        if "\0" not in entry.value  # never in a file name
    }
