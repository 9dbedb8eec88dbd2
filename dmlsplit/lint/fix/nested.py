"""The graphs of an ONNX model as the package onnx reads it."""

from collections.abc import Iterator
from typing import Any

from onnx import FunctionProto, GraphProto

from dmlsplit.models.site import NodePath


def graphs(top: GraphProto | FunctionProto, path: NodePath = ()) -> Iterator[tuple[NodePath, Any]]:
    """A graph or function and all bodies in it, innermost first, with the paths of their nodes."""
    for index, node in enumerate(top.node):
        for attribute in node.attribute:
            bodies = [*([attribute.g] * attribute.HasField("g")), *attribute.graphs]
            for position, body in enumerate(bodies):
                yield from graphs(body, (*path, index, attribute.name, position))
    yield path, top
