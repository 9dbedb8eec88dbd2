"""Writes ONNX models whose refused splits are replaced, if the outputs stay the same."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from dmlsplit.atomic import atomic_write, naming, refuse_inputs
from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about
from dmlsplit.frontends import SplitSite, Unknown
from dmlsplit.frontends.onnx import scan
from dmlsplit.frontends.onnx.weights import weight_files
from dmlsplit.lint.check import assess
from dmlsplit.lint.fix.comparison import Agreement, compare_models
from dmlsplit.lint.fix.graphs import fix_dimensions, graphs
from dmlsplit.lint.fix.isolation import Replacement, custom_operators, models_of_splits
from dmlsplit.lint.fix.subgraph import name_maker, replacement
from dmlsplit.lint.rewritable import IN_A_FUNCTION
from dmlsplit.lint.verdict import FAILING, Assessment
from dmlsplit.messages import listed

# The name of a replaced split while the models are compared, without its number.
_PROBE = "dmlsplit_replaced_split_"


class Rewriting(NamedTuple):
    """The result of rewriting a model."""

    replaced: tuple[Replacement, ...]
    left: tuple[tuple[SplitSite, str], ...]  # refused but not replaced, and why
    agreement: Agreement | None = None  # None if nothing was replaced, so nothing written
    custom: tuple[str, ...] = ()  # the operators that kept the whole models from being compared
    written: Assessment | None = None  # of the written model; None if nothing was written


def write_fixed(
    source: Path,
    output: Path,
    assessment: Assessment,
    sizes: Mapping[str, int] | None = None,
    feed: Path | None = None,
    overwrite: bool = False,
) -> Rewriting:
    """Write the assessed model `source` with its refused splits replaced.

    The output appears only if both models agree bit for bit on several inputs: random, or by name
    those of `feed`, an .npz file. If the model has custom operators, only its splits and their
    replacements are compared. `sizes` become its dynamic dimensions. It replaces another file
    only if `overwrite` is set. InvalidArgumentError: they differ, or `feed` cannot be used;
    UnsupportedError: they could not be run.
    """
    model = _load(source)
    _check_output(source, output, feed, overwrite)
    fix_dimensions(model, sizes or {})
    custom = custom_operators(model)
    if custom and feed:
        raise InvalidArgumentError(
            f"{feed} cannot be used: the model has custom operators ({listed(custom, 3)}), so only "
            "its splits are run, on random inputs. Fix: omit --input"
        )
    probes, replaced, left = _replace_splits(model, assessment)
    if not replaced:
        return Rewriting((), left)
    is_dynamic = any(isinstance(split.site.state, Unknown) for split in replaced)
    with atomic_write(output) as (temporary,), TemporaryDirectory() as folder:
        _write(temporary, model, output)
        # A whole model may run at few sizes only; the splits alone run at every size.
        if custom or is_dynamic:
            pair = Path(folder, "splits"), Path(folder, "replacements")
            for path, alone in zip(pair, models_of_splits(replaced, model), strict=True):
                path.write_bytes(alone.SerializeToString())
            agreement = compare_models(*pair, tuple(probes))
        if not custom:
            agreement = compare_models(source, temporary, tuple(probes), sizes, feed)
        for _, graph in graphs(model.graph):
            for node in graph.node:
                node.name = probes.get(node.name, node.name)
        _write(temporary, model, output)
        written = _assessed(temporary, output, assessment, len(left))
    return Rewriting(replaced, left, agreement, tuple(custom), written)


def _check_output(source: Path, output: Path, feed: Path | None, overwrite: bool) -> None:
    weights = weight_files(source)
    refuse_inputs(output, [source, *weights, *([feed] if feed else [])])
    if output.exists() and not overwrite:
        raise InvalidArgumentError(f"{output} exists; it is not replaced. Fix: add --overwrite")
    if weights and output.parent.resolve() != source.parent.resolve():
        raise InvalidArgumentError(
            f"{source} keeps its weights in other files; write {output.name} to {source.parent}"
        )


def _load(path: Path) -> ModelProto:
    with about(path):
        try:
            return onnx.load_model_from_string(path.read_bytes())
        except Exception as error:
            # onnx does not export protobuf's DecodeError, whose module differs between versions.
            raise InvalidArgumentError(f"onnx cannot load it: {error}") from None


def _write(draft: Path, model: ModelProto, output: Path) -> None:
    with naming(output):
        draft.write_bytes(model.SerializeToString())


def _assessed(path: Path, name: Path, before: Assessment, left: int) -> Assessment:
    """Assess a rewritten model; InvalidArgumentError if over `left` splits are refused."""
    sites = [replace(site, file=str(name)) for site in scan(path)]
    after = assess(sites, before.target, (), before.failing, before.defects_fail)
    refused = [verdict for verdict in after.verdicts if verdict.outcome in FAILING]
    if len(refused) > left:
        raise InvalidArgumentError(
            f"the rewritten split is refused as well: {refused[0].diagnostics[0].message}"
        )
    return after


def _replace_splits(
    model: ModelProto, assessment: Assessment
) -> tuple[dict[str, str], tuple[Replacement, ...], tuple[tuple[SplitSite, str], ...]]:
    """Edit a model in place; the first result maps the new splits' unique names to the old ones."""
    refused = {v.site.path: v for v in assessment.verdicts if v.outcome in FAILING}
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    every_node = (node for _, body in graphs(model.graph) for node in body.node)
    new_name = name_maker({name for node in every_node for name in (*node.input, *node.output)})
    probes: dict[str, str] = {}
    replaced: list[Replacement] = []
    left: list[tuple[SplitSite, str]] = []
    for path, graph in graphs(model.graph):
        nodes: list[NodeProto] = []
        for index, node in enumerate(graph.node):
            verdict = refused.pop((*path, index), None)
            if verdict is None:
                nodes.append(node)
                continue
            name = f"{_PROBE}{len(probes)}"
            try:
                own = replacement(node, name, verdict, assessment.target, opset, new_name)
                nodes += own
                # A copy: clearing the field frees its nodes.
                copy = NodeProto.FromString(node.SerializeToString())
                replaced.append(Replacement(verdict.site, copy, own))
                probes[name] = node.name
            except UnsupportedError as error:
                nodes.append(node)
                left.append((verdict.site, error.message))
        kept = GraphProto(node=nodes)  # copies too
        graph.ClearField("node")
        graph.node.MergeFrom(kept.node)
    left += [(verdict.site, IN_A_FUNCTION) for verdict in refused.values()]
    return probes, tuple(replaced), tuple(left)
