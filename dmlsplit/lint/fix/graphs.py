"""The graphs of a loaded model, and its dimensions."""

from collections.abc import Iterator, Mapping
from typing import Any

from onnx import FunctionProto, GraphProto, ModelProto

# Index, attribute and position of each body around a node.
BodyPath = tuple[int | str, ...]


def graphs(top: GraphProto | FunctionProto, path: BodyPath = ()) -> Iterator[tuple[BodyPath, Any]]:
    """A graph or function and all bodies in it, innermost first, with their paths as in sites."""
    for index, node in enumerate(top.node):
        for attribute in node.attribute:
            bodies = [*([attribute.g] * attribute.HasField("g")), *attribute.graphs]
            for position, body in enumerate(bodies):
                yield from graphs(body, (*path, index, attribute.name, position))
    yield path, top


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
