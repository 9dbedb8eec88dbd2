"""ONNX's shape inference of a model, without the nodes that it may get wrong.

It may crash its process or never end, so a scan asks for it through `child`.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from dmlsplit.frontends.onnx.dimensions import FixedSizes
from dmlsplit.frontends.onnx.messages import MAXIMUM_VALUES
from dmlsplit.frontends.onnx.operators import OPERATORS
from dmlsplit.frontends.onnx.walk import walked

# Index, attribute and position of each body around a node.
BodyPath = tuple[int | str, ...]
_Shapes = dict[str, tuple[int, ...]]

# A scan does not read larger tensors (`MAXIMUM_VALUES`), so the child drops them.
_LARGEST_BYTES = 8 * MAXIMUM_VALUES
_MOST_BYTES = 256 << 20  # of a model without its weights
# A prefix that makes an operator unknown, so that inference skips the node and its dependents.
_DOUBTED = "doubted "
_MOST_ROUNDS = 8


def inferred(path: str, sizes: Mapping[str, int]) -> bytes:
    """A model without its weights, and with the shapes of its values.

    `sizes` are its dynamic dimensions, as in `FixedSizes`. While a split is unknown, onnx infers
    again, given the shapes that the walk knows and the constants that its evaluator computes.
    """
    model = onnx.load_model(path, load_external_data=False)
    fix_dimensions(model, sizes)
    _drop_weights(model.graph)
    for node in _doubtful(model):
        node.op_type = _DOUBTED + node.op_type
    folded: dict[int, NodeProto] = {}
    for _ in range(_MOST_ROUNDS):
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
        for node in _nodes(found):
            node.op_type = node.op_type.removeprefix(_DOUBTED)
        shapes = _static_shapes(found)
        if not _has_gaps(found, shapes):
            break
        is_taught = _teach_shapes(model, found, shapes, sizes)
        is_folded = _fold(model, found, shapes, folded)
        if not (is_taught or is_folded):
            break
    _unfold(found, folded)
    content: bytes = found.SerializeToString()
    if len(content) > _MOST_BYTES:
        raise MemoryError(f"the shapes take {len(content)} bytes; at most {_MOST_BYTES} are read")
    return content


def _static_shapes(model: ModelProto) -> _Shapes:
    """The shapes without dynamic sizes, by the name of the value."""
    shapes: _Shapes = {}
    for _, graph in graphs(model.graph):
        shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        for value in (*graph.input, *graph.output, *graph.value_info):
            tensor = value.type.tensor_type
            if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
                shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
    return shapes


def _has_gaps(model: ModelProto, shapes: _Shapes) -> bool:
    """Whether the shape or the lengths of a split are not known."""
    constants = {tensor.name for _, graph in graphs(model.graph) for tensor in graph.initializer}
    constants |= {name for n in _nodes(model) if n.op_type == "Constant" for name in n.output}
    splits = (node for node in _nodes(model) if node.op_type in OPERATORS)
    return any(n.input[0] not in shapes or not constants.issuperset(n.input[1:2]) for n in splits)


def _teach_shapes(
    model: ModelProto, found: ModelProto, shapes: _Shapes, sizes: Mapping[str, int]
) -> bool:
    """Declare shapes that only the walk over `found` knows; True if there are any."""
    _, values = walked("", found.SerializeToString(), FixedSizes(sizes), False)
    new = [
        helper.make_tensor_value_info(name, value.data_type, value.shape)
        for name, value in values.items()
        if value.is_static and value.data_type and name not in shapes
    ]
    declared = {value.name: value for value in model.graph.value_info}
    for value in new:
        declared.get(value.name, model.graph.value_info.add()).CopyFrom(value)
    return bool(new)


def _fold(
    model: ModelProto, found: ModelProto, shapes: _Shapes, folded: dict[int, NodeProto]
) -> bool:
    """Turn nodes into constants, and keep them in `folded` by position; True if there are any."""
    from dmlsplit.frontends.onnx.folding import constants  # most models need no evaluator

    before = len(folded)
    values = constants(model.graph, shapes, model.opset_import)
    for at, node in enumerate(model.graph.node):
        if node.op_type != "Constant" and node.output and node.output[0] in values:
            tensor = numpy_helper.from_array(values[node.output[0]])
            folded[at] = found.graph.node[at]
            node.CopyFrom(helper.make_node("Constant", [], node.output, value=tensor))
    return len(folded) > before


def _unfold(model: ModelProto, folded: Mapping[int, NodeProto]) -> None:
    """Put the nodes back. Computed lengths of splits become initializers, which a scan reads."""
    tensors = {}
    for at, node in folded.items():
        tensors[node.output[0]] = model.graph.node[at].attribute[0].t
        model.graph.node[at].CopyFrom(node)
    lengths = [n for n in _nodes(model) if n.op_type in OPERATORS and n.input[1:2]]
    for node in lengths:
        tensor = tensors.get(node.input[1])
        if tensor is not None:
            node.input[1] += " folded"
            model.graph.initializer.add().CopyFrom(tensor)
            model.graph.initializer[-1].name = node.input[1]


def fix_dimensions(model: ModelProto, sizes: Mapping[str, int]) -> None:
    """Set the dynamic dimensions of a model to sizes as in `FixedSizes`, in place."""
    by_name = dict(sizes)
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = sizes.get(f"{value.name}.{axis}", by_name.get(dim.dim_param))
            if size is not None:
                if dim.dim_param:
                    by_name[dim.dim_param] = size
                dim.dim_value = size
    for _, graph in graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in by_name:
                    dim.dim_value = by_name[dim.dim_param]


def _drop_weights(graph: GraphProto) -> None:
    for _, body in graphs(graph):
        constants = [a.t for node in body.node for a in node.attribute if a.HasField("t")]
        for tensor in (*body.initializer, *constants):
            if len(tensor.raw_data) > _LARGEST_BYTES:
                tensor.ClearField("raw_data")
            for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                if len(getattr(tensor, name)) > MAXIMUM_VALUES:
                    tensor.ClearField(name)


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    for top in (model.graph, *model.functions):
        for _, body in graphs(top):
            yield from body.node


def _doubtful(model: ModelProto) -> list[NodeProto]:
    """The nodes for which onnx 1.23 may infer other shapes than ONNX Runtime computes."""
    scales = {
        t.name: (t.raw_data, t.float_data)
        for _, body in graphs(model.graph)
        for t in body.initializer
        if len(t.dims) == 1
    }
    for node in _nodes(model):
        if node.op_type == "Constant":
            for name, a in zip(node.output, node.attribute, strict=False):
                scales[name] = a.t.raw_data, a.floats or a.t.float_data
    return [node for node in _nodes(model) if _is_doubtful(node, scales)]


def _is_doubtful(node: NodeProto, scales: Mapping[str, tuple[bytes, Sequence[float]]]) -> bool:
    given = {a.name: a.ref_attr_name or a.ints or a.i or a.floats or a.s for a in node.attribute}
    same = "SAME" in str(given.get("auto_pad"))
    match node.op_type:
        case "MaxPool" | "AveragePool" | "LpPool":
            return bool(given.get("ceil_mode") or (same and set(given.get("dilations", ())) - {1}))
        case "Einsum":
            # onnx never finishes reading a term with two ellipses.
            terms = str(given.get("equation")).replace("->", ",").split(",")
            return any(term.count("...") > 1 for term in terms)
        case "ConvTranspose":
            return "output_shape" in given or (same and "output_padding" in given)
        case "Resize" | "Upsample":
            # A region of interest may come before the scales.
            raw, floats = scales.get("".join(node.input[1:3][-1:]), (b"", given.get("scales", ())))
            # Multiples of 1/64 round down the same in any precision; 5 * 2.6 is 12 or 13.
            return any(scale * 64 % 1 for scale in (*floats, *array("f", raw)))
    return node.op_type == "STFT"


def graphs(top: GraphProto | FunctionProto, path: BodyPath = ()) -> Iterator[tuple[BodyPath, Any]]:
    """A graph or function and all bodies in it, innermost first, with their paths as in sites."""
    for index, node in enumerate(top.node):
        for attribute in node.attribute:
            bodies = [*([attribute.g] * attribute.HasField("g")), *attribute.graphs]
            for position, body in enumerate(bodies):
                yield from graphs(body, (*path, index, attribute.name, position))
    yield path, top
