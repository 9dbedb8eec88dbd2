"""The files next to an ONNX model in which it keeps weights."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.onnx.messages import Function, Graph, Model, Node, Tensor
from dmlsplit.frontends.onnx.reader import Reader, Span, WireError
from dmlsplit.frontends.onnx.scanner import mapped
from dmlsplit.frontends.onnx.walk import MAXIMUM_FIELDS


def weight_files(model: Path) -> list[Path]:
    """The files that a model names for its weights, once each; they need not exist.

    Of a model that is not read to its end, these are the files that come before the fault.
    """
    names: dict[str, None] = {}
    with suppress(InvalidArgumentError, WireError, RecursionError), mapped(str(model)) as data:
        reader = Reader(data, MAXIMUM_FIELDS)
        top = reader.read(Model, Span(0, len(data)))
        bodies: list[Graph | Function] = [reader.read(Graph, span) for span in top.graph]
        for body in (*bodies, *top.functions):
            for tensor in _tensors(reader, body):
                if tensor.location is not None and "\0" not in tensor.location:
                    names[tensor.location] = None
    return [model.parent / name for name in names]


def _tensors(reader: Reader, body: Graph | Function) -> Iterator[Tensor]:
    """The initializers and constants of a graph or function, and of the bodies in it."""
    if isinstance(body, Graph):
        yield from body.initializer
    for span in body.node:
        for attribute in reader.read(Node, span).attribute:
            if attribute.t is not None:
                yield attribute.t
            for inner in attribute.bodies:
                yield from _tensors(reader, reader.read(Graph, inner))
