"""Constants that onnx's reference evaluator computes of a graph, for its shape inference.

Exporters compute sizes from sizes; onnx's own data propagation follows few of these operators.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from onnx import GraphProto, NodeProto, OperatorSetIdProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlsplit.frontends.onnx.messages import MAXIMUM_VALUES

# On sizes, every runtime computes the same bits for these.
_EXACT = frozenset(
    "Abs Add And Cast Ceil Concat Constant ConstantOfShape CumSum Div Equal Expand Floor Gather "
    "GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg "
    "NonZero Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements "
    "ScatterND Shape Sign Size Slice Sqrt Squeeze Sub Tile Transpose Unsqueeze Where Xor".split()
)
_MOST_NODES = 5_000
_Arrays = dict[str, np.ndarray]


def constants(
    graph: GraphProto, shapes: Mapping[str, Sequence[int]], opsets: Sequence[OperatorSetIdProto]
) -> _Arrays:
    """The small constants of a graph by name, where values have these shapes."""
    given = {entry.name for entry in graph.input}  # an initializer is then a default only
    small = (t for t in graph.initializer if t.name not in given and _is_small(t.dims))
    values = {t.name: numpy_helper.to_array(t) for t in small if t.data_location == 0}
    nodes = [node for node in graph.node if not node.domain and node.op_type in _EXACT]
    for node in nodes[:_MOST_NODES]:
        values |= dict(_computed(node, values, shapes, opsets))
    return values


def _is_small(shape: Sequence[int]) -> bool:
    return prod(shape) <= MAXIMUM_VALUES


def _computed(
    node: NodeProto,
    values: _Arrays,
    shapes: Mapping[str, Sequence[int]],
    opsets: Sequence[OperatorSetIdProto],
) -> Iterator[tuple[str, np.ndarray]]:
    inputs = {name: values.get(name) for name in node.input if name}
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        # A broadcast zero takes no memory, whatever its shape.
        inputs = {node.input[0]: np.broadcast_to(np.zeros((), np.bool_), shapes[node.input[0]])}
    known = {name: array for name, array in inputs.items() if array is not None}
    if len(known) < len(inputs) or len(node.output) != 1 or not _may_be_small(node, known):
        return
    function = helper.make_function("", "one", list(known), node.output, [node], opsets)
    try:
        (found,) = map(np.asarray, ReferenceEvaluator(function).run(None, known, {}))
    except Exception:  # an invalid node; the evaluator raises errors of any type
        return
    if found.dtype.kind in "biuf" and _is_small(found.shape):
        yield node.output[0], found


def _may_be_small(node: NodeProto, known: _Arrays) -> bool:
    """Whether the output cannot be too large, even if it may exceed the inputs."""
    arrays = [known[name] for name in node.input if name]
    match node.op_type:
        case "ConstantOfShape" | "Expand" | "Tile":
            return _is_small([a.size for a in arrays[:-1]] + [abs(int(n)) for n in arrays[-1].flat])
        case "Range":
            start, limit, delta = (float(a.reshape(())) for a in arrays)
            return bool(delta) and abs(limit - start) <= MAXIMUM_VALUES * abs(delta)
    return sum(a.size for a in arrays) <= MAXIMUM_VALUES or node.op_type in ("Shape", "Size")
