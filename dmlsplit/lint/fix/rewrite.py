"""Writes ONNX models whose refused splits are replaced, if their outputs stay the same."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper

from dmlsplit.errors import InvalidArgumentError, UnsupportedError, one_line, path_in_errors
from dmlsplit.files.atomic import atomic_write, name_in_errors
from dmlsplit.lint.check import assess
from dmlsplit.lint.fix.nested import graphs
from dmlsplit.lint.fix.replacement import Replacement, compared_replacement
from dmlsplit.lint.fix.sequences import (
    defined_names,
    piece_names,
    taker_replacements,
    taking_nodes,
)
from dmlsplit.lint.fix.split_forms import IN_A_FUNCTION, TOO_LARGE
from dmlsplit.lint.fix.subgraph import name_maker, replacement_nodes
from dmlsplit.lint.verdict import CHANGEABLE, Assessment
from dmlsplit.models.onnx.dimensions import FixedSizes
from dmlsplit.models.onnx.protobuf import Shape
from dmlsplit.models.onnx.scanner import MAX_PROTOBUF_BYTES, check_output, scan, scan_declarations
from dmlsplit.models.site import NodePath, Size, SplitSite


class Rewriting(NamedTuple):
    """The result of rewriting a model."""

    replaced: tuple[Replacement, ...]
    # The refused splits that stay, and why.
    not_replaced: tuple[tuple[SplitSite, str], ...]
    # The assessment of the written model; None if nothing was written.
    written: Assessment | None = None


def write_fixed(
    source: Path,
    output: Path,
    assessment: Assessment,
    sizes: Mapping[str, int] | None = None,
    *,
    overwrite: bool = False,
) -> Rewriting:
    """Write the assessed model `source` with its refused splits replaced.

    The output appears only if each split and its replacement agree bit for bit. Splits that cannot
    be compared are not replaced. `sizes` become dimensions of the model. The output replaces
    another file only if `overwrite` is set.

    Raises
    ------
    InvalidArgumentError
        If a split and its replacement give different outputs, or the output is an input or exists.
    """
    model = _load_model(source)
    check_output(source, output, overwrite=overwrite)
    if sizes:
        dimensions = FixedSizes(sizes)
        contradicted = scan_declarations(source, dimensions).contradicted
        _fix_dimensions(model, dimensions)
        _correct_shapes(model, contradicted)
    replaced, not_replaced = _replace_splits(model, assessment)
    if not replaced:
        return Rewriting((), not_replaced)
    with atomic_write(output) as draft:
        with name_in_errors(output):
            draft.write_bytes(model.SerializeToString())
        written = _assess_rewritten(draft, output, assessment, len(not_replaced))
    return Rewriting(replaced, not_replaced, written)


def _load_model(path: Path) -> ModelProto:
    """The model of a file, as the package onnx reads it."""
    with path_in_errors(path):
        if path.stat().st_size > MAX_PROTOBUF_BYTES:
            raise InvalidArgumentError(str(TOO_LARGE))
        try:
            return onnx.load_model_from_string(path.read_bytes())
        except Exception as error:
            # onnx does not export protobuf's DecodeError, whose module differs between versions.
            raise InvalidArgumentError(
                f"the package onnx cannot load the model: {one_line(error)}. Fix: export or "
                "download the model again"
            ) from None


def _assess_rewritten(path: Path, name: Path, before: Assessment, not_replaced: int) -> Assessment:
    """Assess a rewritten model; InvalidArgumentError if over `not_replaced` splits are refused."""
    sites = [replace(site, file=str(name)) for site in scan(path)]
    after = assess(
        sites,
        before.target,
        failing=before.failing,
        defects_fail=before.defects_fail,
        baseline=before.baseline,
    )
    refused = [
        verdict for verdict in after.verdicts if verdict.outcome in CHANGEABLE and verdict.errors
    ]
    if len(refused) > not_replaced:
        reason = refused[0].diagnostics[0]
        raise InvalidArgumentError(
            f"the rewritten split is refused as well: {reason.message}. This is a bug of dmlsplit; "
            "please report it"
        )
    return after


def _replace_splits(
    model: ModelProto, assessment: Assessment
) -> tuple[tuple[Replacement, ...], tuple[tuple[SplitSite, str], ...]]:
    """Edit a model in place: the splits that were replaced, and those that were not, and why."""
    refused = {
        verdict.site.path: verdict
        for verdict in assessment.verdicts
        if verdict.outcome in CHANGEABLE and verdict.errors
    }
    new_name = name_maker(model.SerializeToString())
    takers = taking_nodes(model, (verdict.site for verdict in refused.values()))
    defined = defined_names(model) if takers else {}
    # The nodes that replace each node.
    plan: dict[NodePath, Sequence[NodeProto]] = {}
    replaced: list[Replacement] = []
    not_replaced: list[tuple[SplitSite, str]] = []
    for path, graph in graphs(model.graph):
        for index, node in enumerate(graph.node):
            verdict = refused.pop((*path, index), None)
            if verdict is None:
                continue
            # A copy: clearing the field, later, frees its nodes.
            copy = NodeProto.FromString(node.SerializeToString())
            try:
                names = piece_names(verdict.site, takers, new_name, defined)
                nodes = replacement_nodes(copy, verdict, new_name, names)
                split = compared_replacement(Replacement(verdict.site, copy, nodes, names))
            except UnsupportedError as error:
                not_replaced.append((verdict.site, error.message))
            else:
                plan |= {(*path, index): nodes, **taker_replacements(split, takers)}
                replaced.append(split)
                _declare_pieces(graph, split)
    not_replaced += [(verdict.site, str(IN_A_FUNCTION)) for verdict in refused.values()]
    _remove_unused(model, _apply_plan(model, plan))
    return tuple(replaced), tuple(not_replaced)


def _apply_plan(model: ModelProto, plan: Mapping[NodePath, Sequence[NodeProto]]) -> set[str]:
    """Replace nodes in place; returns the names of all their inputs."""
    inputs: set[str] = set()
    changed = {path[:-1] for path in plan}
    for path, graph in graphs(model.graph):
        if path not in changed:
            continue
        new_graph = GraphProto()  # of copies: clearing the field frees its nodes
        for index, node in enumerate(graph.node):
            replacing_nodes = plan.get((*path, index))
            new_graph.node.extend([node] if replacing_nodes is None else replacing_nodes)
            inputs.update(() if replacing_nodes is None else node.input)
        graph.ClearField("node")
        graph.node.MergeFrom(new_graph.node)
    return inputs


def _declare_pieces(graph: GraphProto, split: Replacement) -> None:
    """Declare the shapes of pieces that shape inference no longer knows, in place.

    ONNX Runtime runs a Scan only if it knows the ranks of its body's outputs.
    """
    site = split.site
    is_computed = any(node.op_type == "Shape" for node in split.nodes)
    if not is_computed or site.element_type is None:
        return
    data_type = onnx.TensorProto.DataType.Value(site.element_type)
    declared = {value.name: value for value in (*graph.value_info, *graph.output)}
    for name, piece in split.outputs.items():
        if piece is None:  # a sequence, or a dynamic piece
            continue
        sizes = [size if isinstance(size, int) else None for size in site.shape or ()]
        axis = site.axis or 0
        sizes[axis : axis + 1] = [piece] if site.keeps_axis else []
        value = declared[name] if name in declared else graph.value_info.add(name=name)
        if not value.type.tensor_type.HasField("shape"):
            value.type.CopyFrom(helper.make_tensor_type_proto(data_type, sizes))


def _remove_unused(model: ModelProto, names: set[str]) -> None:
    """Remove the initializers of these names that nothing uses, in place."""
    for _, graph in graphs(model.graph):
        names -= {name for node in graph.node for name in node.input}
        # An input keeps its default, without which a caller would have to give a value.
        names -= {value.name for value in (*graph.input, *graph.output)}
        for annotation in graph.quantization_annotation:
            names -= {entry.value for entry in annotation.quant_parameter_tensor_names}
    for training in model.training_info:
        names -= {entry.key for entry in training.update_binding}
        names -= {name for node in training.algorithm.node for name in node.input}
    for _, graph in graphs(model.graph):
        for entries in (graph.initializer, graph.value_info):
            for index in reversed(range(len(entries))):
                if entries[index].name in names:
                    del entries[index]


def _fix_dimensions(model: ModelProto, dimensions: FixedSizes) -> None:
    """Set the dynamic dimensions of a scanned model to the sizes that are given, in place."""
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            _set_size(dim, dimensions.size(dim.dim_param or None, f"{value.name}.{axis}"))
    for _, graph in graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                _set_size(dim, dimensions.size(dim.dim_param or None))


def _set_size(dim: Any, size: Size) -> None:
    """Set a dimension of a declared shape to a size, unless the size is dynamic."""
    if isinstance(size, int):
        dim.dim_value = size


def _correct_shapes(model: ModelProto, contradicted: Mapping[tuple[NodePath, str], Shape]) -> None:
    """Replace the declared shapes that are wrong for the fixed sizes."""
    for path, graph in graphs(model.graph):
        for value in (*graph.output, *graph.value_info):
            shape = contradicted.get((path, value.name))
            if shape is not None:
                sizes = [size if isinstance(size, int) else None for size in shape]
                tensor = value.type.tensor_type
                right = helper.make_tensor_type_proto(tensor.elem_type, sizes).tensor_type
                tensor.shape.CopyFrom(right.shape)
