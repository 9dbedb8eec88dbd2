"""A split and the nodes that replace it, once a comparison has shown that they do.

The nodes have the names of the split's input and outputs, and no other name of the model. If both
give the same outputs for the same input, so do the model and the rewritten one. Where only single
pieces of a sequence are used, these are the outputs of both.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.lint.fix.comparison import Pair
from dmlsplit.lint.fix.sandbox import compare_apart
from dmlsplit.lint.fix.split_forms import compared_shapes, is_static
from dmlsplit.lint.report.findings import address
from dmlsplit.models.site import Known, SplitSite, Unknown


class Replacement(NamedTuple):
    """A split that was replaced by other nodes."""

    site: SplitSite
    node: NodeProto
    nodes: Sequence[NodeProto]
    # The names of the pieces that are taken out of a sequence, by their positions.
    taken: Mapping[int, str] = {}
    # On how many inputs the split and the nodes gave equal outputs, and in which runtime.
    input_count: int = 0
    runtime: str = ""
    # The smallest size of dynamic dimensions at which they did: 0 or 1; None if all are fixed.
    smallest_size: int | None = None

    @property
    def piece_sizes(self) -> tuple[int, ...]:
        """The sizes of the pieces along the axis; empty if they are dynamic."""
        state = self.site.state
        assert isinstance(state, Known | Unknown)  # otherwise, nothing replaces it
        return state.pieces or ()

    @property
    def outputs(self) -> dict[str, int | None]:
        """The names that the nodes make, each with the size of the piece.

        It is None for a sequence, and for a dynamic piece.
        """
        if self.node.op_type == "SplitToSequence" and not self.taken:
            return {self.node.output[0]: None}
        names = self.taken or dict(enumerate(self.node.output))
        sizes = dict(enumerate(self.piece_sizes))
        return {name: sizes.get(index) for index, name in names.items() if name}

    @property
    def originals(self) -> list[NodeProto]:
        """The split, and nodes that take the used pieces out of its sequence."""
        nodes = [self.node]
        names = {*self.node.input, *self.node.output, *self.taken.values()}
        beginnings = {name.partition("_")[0] for name in names}
        prefix = next(name for name in map("at{}".format, count()) if name not in beginnings)
        for position, name in self.taken.items():
            at = f"{prefix}_{position}"
            value = numpy_helper.from_array(np.array(position))
            nodes.append(helper.make_node("Constant", [], [at], value=value))
            nodes.append(helper.make_node("SequenceAt", [self.node.output[0], at], [name]))
        return nodes

    @property
    def operators(self) -> str:
        """The operators of the nodes in order, such as ``Unsqueeze, Split, 4 Squeeze``."""
        names = [node.op_type for node in self.nodes if node.op_type != "Constant"]
        runs = [(name, len(list(run))) for name, run in groupby(names)]
        return ", ".join(name if count == 1 else f"{count} {name}" for name, count in runs)


def compared_replacement(replacement: Replacement) -> Replacement:
    """A replacement with what its comparison with the split showed.

    Raises
    ------
    InvalidArgumentError
        If a bit differs.
    UnsupportedError
        If one of them does not run.
    """
    site = replacement.site
    result = compare_apart(_pair(replacement))
    for wrong_shape in _above_zero(result.different):
        raise InvalidArgumentError(
            f"{address(site)}: its replacement gives another result for an input of shape "
            f"{tuple(wrong_shape)}. This is a bug of dmlsplit; please report it"
        )
    if _above_zero(result.failed) or _above_zero(result.unsupported):
        raise UnsupportedError(f"the split and its replacement cannot be compared: {result.error}")
    smallest_size = None
    if not is_static(site.shape or ()):
        # What is left of these is about inputs without elements.
        fails_at_zero = result.different or result.failed or result.unsupported
        smallest_size = 1 if fails_at_zero else 0
    return replacement._replace(
        input_count=len(result.equal), runtime=result.runtime, smallest_size=smallest_size
    )


def _pair(split: Replacement) -> Pair:
    """The models of a split and of the nodes that replace it, and where they are compared."""
    site = split.site
    runtimes = ["onnxruntime", "reference"]
    if site.keeps_axis is None:
        # The reference evaluator keeps the axis, as ONNX specifies; the split is meant for ONNX
        # Runtime, which drops it.
        runtimes.remove("reference")
    elif "" in split.node.output:
        # An output without a name ends the process of ONNX Runtime 1.32.
        runtimes.remove("onnxruntime")
    original = _model(split, split.originals)
    replacement = _model(split, split.nodes)
    return Pair(original, replacement, _data_type(site), compared_shapes(site), runtimes)


def _data_type(site: SplitSite) -> int:
    """The type of a split's input in ONNX. A custom operator may hide it; then any type serves."""
    return int(TensorProto.DataType.Value(site.element_type or "FLOAT"))


def _above_zero(shapes: Iterable[Sequence[int]]) -> list[Sequence[int]]:
    """The shapes without a size of 0."""
    return [shape for shape in shapes if 0 not in shape]


def _model(replacement: Replacement, nodes: Iterable[NodeProto]) -> bytes:
    """A model of nodes that have the inputs and outputs of the split; all sizes are dynamic."""
    value, *lengths = filter(None, replacement.node.input)
    site = replacement.site
    sizes = np.array(replacement.piece_sizes, np.int64)
    split = sizes.max(initial=0) if site.sized_by == "chunk" else sizes
    shape = [None] * len(site.shape or ())
    graph = GraphProto(
        name="split",
        node=nodes,
        input=[helper.make_tensor_value_info(value, _data_type(site), shape)],
        initializer=[numpy_helper.from_array(np.asarray(split), name) for name in lengths],
        output=[helper.make_empty_tensor_value_info(name) for name in replacement.outputs],
    )
    opset = helper.make_opsetid("", site.opset)
    version = helper.find_min_ir_version_for([opset], ignore_unknown=True)
    model: ModelProto = helper.make_model(graph, opset_imports=[opset], ir_version=version)
    return bytes(model.SerializeToString())
