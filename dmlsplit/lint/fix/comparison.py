"""Runs a split and the nodes that replace it on the same inputs, in ONNX's reference evaluator.

The nodes have the names of the split's input and outputs, and no other name of the model. If both
give the same outputs for the same input, so do the model and the rewritten one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlsplit.errors import InvalidArgumentError, UnsupportedError, one_line
from dmlsplit.frontends import Known, SplitSite, Unknown
from dmlsplit.lint.report.findings import address
from dmlsplit.lint.rewritable import compared_shapes


class Replacement(NamedTuple):
    """A split that was replaced by other nodes."""

    site: SplitSite
    node: NodeProto
    nodes: Sequence[NodeProto]
    input_count: int = 0  # how many inputs it was compared with the split on

    @property
    def operators(self) -> str:
        """The operators of the nodes in order, such as ``Unsqueeze, Split, 4 Squeeze``."""
        names = [node.op_type for node in self.nodes if node.op_type != "Constant"]
        runs = [(name, len(list(run))) for name, run in groupby(names)]
        return ", ".join(name if count == 1 else f"{count} {name}" for name, count in runs)


def compare(split: Replacement) -> Replacement:
    """Compare the outputs of a split and its replacement on several inputs, and count these.

    Raises
    ------
    InvalidArgumentError
        If a bit differs.
    UnsupportedError
        If one of them does not run.
    """
    count = 0
    for x in _inputs(split.site):
        if _bits(_outputs(split, [split.node], x)) != _bits(_outputs(split, split.nodes, x)):
            raise InvalidArgumentError(
                f"{address(split.site)}: its replacement gives another result for an input of "
                f"{x.shape}. This is a bug of dmlsplit; please report it"
            )
        count += 1
    return split._replace(input_count=count)


def _inputs(site: SplitSite) -> Iterator[np.ndarray]:
    """Random bytes, so that integers span their range; no operator rounds a float."""
    random = np.random.default_rng(20)
    # A custom operator may hide the type.
    element_type = TensorProto.DataType.Value(site.element_type or "FLOAT")
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    for shape in compared_shapes(site):
        count = prod(shape) * kind.itemsize
        data = random.integers(0, 2 if kind == np.bool_ else 256, count, np.uint8)
        yield data.view(kind).reshape(shape)


def _outputs(split: Replacement, nodes: Iterable[NodeProto], x: np.ndarray) -> list[Any]:
    """The outputs of nodes that have the inputs and outputs of the split."""
    value, *lengths = filter(None, split.node.input)
    state = split.site.state
    assert isinstance(state, Known | Unknown)  # otherwise, nothing replaces it
    sizes = np.array(state.pieces, np.int64)
    graph = GraphProto(
        node=nodes,
        initializer=[numpy_helper.from_array(sizes, name) for name in lengths],
        output=[ValueInfoProto(name=name) for name in split.node.output if name],
    )
    try:
        evaluator = ReferenceEvaluator(graph, opsets={"": split.site.opset})
        return list(evaluator.run(None, {value: x}))
    except Exception as error:  # the evaluator raises errors of many types
        what = "it cannot be compared with its replacement"
        raise UnsupportedError(f"{what}: {one_line(error)[:300]}") from None


def _bits(value: Any) -> Any:
    """Type, shape and bytes of an array, or of each array of a sequence."""
    if isinstance(value, (list, tuple)):
        return list(map(_bits, value))
    array = np.asarray(value)
    return array.dtype, array.shape, array.tobytes()
