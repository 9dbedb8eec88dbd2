"""The replaced splits alone, for comparing models that no runtime here can run as a whole."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dmlsplit.frontends import Known, SplitSite, Unknown
from dmlsplit.lint.fix.graphs import graphs

# The domains of the operators that ONNX Runtime has.
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})


class Replacement(NamedTuple):
    """A split that was replaced by other nodes."""

    site: SplitSite
    node: NodeProto
    nodes: Sequence[NodeProto]

    @property
    def operators(self) -> str:
        """The operators of the nodes in order, such as ``Unsqueeze, Split, 4 Squeeze``."""
        names = [node.op_type for node in self.nodes if node.op_type != "Constant"]
        runs = [(name, len(list(run))) for name, run in groupby(names)]
        return ", ".join(name if count == 1 else f"{count} {name}" for name, count in runs)


def custom_operators(model: ModelProto) -> list[str]:
    """The operators of a model that are neither ONNX Runtime's own nor functions of the model."""
    known = {(function.domain, function.name) for function in model.functions}
    return sorted(
        {
            f"{node.domain}.{node.op_type}"
            for top in (model.graph, *model.functions)
            for _, body in graphs(top)
            for node in body.node
            if node.domain not in _DOMAINS and (node.domain, node.op_type) not in known
        }
    )


def models_of_splits(
    replacements: Sequence[Replacement], model: ModelProto
) -> tuple[ModelProto, ModelProto]:
    """A model of the splits of a model, and one of their replacements: an input for each."""
    before, after = GraphProto(name="splits"), GraphProto(name="replacements")
    for number, (site, node, nodes) in enumerate(replacements):
        start = f"{number} "  # names are unique in a graph only
        value, *lengths = (start + name for name in node.input if name)
        kind = TensorProto.DataType.Value(site.element_type or "FLOAT")
        make: Any = helper.make_tensor_value_info
        if node.op_type == "SplitToSequence":
            make = helper.make_tensor_sequence_value_info
        for graph, own in (before, [node]), (after, nodes):
            graph.node.extend(_with_prefix(inner, start) for inner in own)
            shape = site.shape and [None if size == "?" else size for size in site.shape]
            graph.input.append(helper.make_tensor_value_info(value, kind, shape))
            if isinstance(site.state, Known | Unknown):
                sizes = np.array(site.state.pieces, np.int64)
                graph.initializer.extend(numpy_helper.from_array(sizes, name) for name in lengths)
            graph.output.extend(make(start + name, kind, None) for name in node.output if name)
    opsets = [opset for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    options = {"opset_imports": opsets, "ir_version": model.ir_version}
    return helper.make_model(before, **options), helper.make_model(after, **options)


def _with_prefix(node: NodeProto, start: str) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    for names in (copy.input, copy.output):
        names[:] = [name and start + name for name in names]
    return copy
