"""Finds every Split and SplitToSequence of an ONNX file, without running or loading it.

The file is mapped and walked by `onnx_reader`, so that memory stays near the size of the
graph. ONNX's own shape inference, checker and runtimes are never called: small malformed
models end their process.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx.messages import Attribute, Declared, Function, Model, Node, shown_name
from dmlsplit.frontends.onnx.nodes import describe
from dmlsplit.frontends.onnx.operators import OPERATORS
from dmlsplit.frontends.onnx.reader import Reader
from dmlsplit.frontends.onnx.shapes import (
    UNKNOWN,
    Value,
    declared_value,
    merged,
    outputs,
    tensor_value,
)
from dmlsplit.frontends.onnx.wire import Span, Wire, WireError

# Bodies in bodies and functions in functions; real models stay below 20.
MAXIMUM_DEPTH = 64
MAXIMUM_FIELDS = 1_000_000
MAXIMUM_PIECES = 32_768
# From this IR version on, an initializer that is an input as well is only its default.
_DEFAULTS_SINCE_IR = 4

_FunctionKey = tuple[str, str, str]
_Call = tuple[_FunctionKey, tuple[Value, ...], tuple[tuple[str, Attribute], ...]]


def scan(path: str | os.PathLike[str]) -> list[SplitSite]:
    """Find every split of an ONNX model: main graph, nested bodies and functions.

    Parameters
    ----------
    path
        The model. External data that it names is not opened.

    Returns
    -------
    list of SplitSite
        In the order of the file. A function is scanned for each call that differs in shapes
        or attributes, and once without them if nobody calls it.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be read, is no ONNX model, or nests without end.
    """
    name = os.fsdecode(path)
    with _mapped(name) as data:
        # A second walk, of calls and constants, may cost as much as a small model again.
        wire = Wire(data, min(MAXIMUM_FIELDS, 50_000 + 2 * len(data)))
        reader = Reader(wire)
        try:
            model = reader.model()
            return _Walk(name, reader, model).sites()
        except WireError as error:
            raise InvalidArgumentError(f"{name}: not an ONNX model to read: {error}") from None


@contextmanager
def _mapped(name: str) -> Iterator[mmap.mmap]:
    try:
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(f"{name!r}: cannot be read: {reason}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            what = "is empty" if stat.S_ISREG(status.st_mode) else "is no file"
            raise InvalidArgumentError(f"{name}: {what}; it must be an ONNX model")
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where a node stands: what its names mean, and the way there."""

    place: str
    values: ChainMap[str, Value]
    declared: Mapping[str, Declared]
    defaults: frozenset[str]
    opsets: Mapping[str, int]
    attributes: Mapping[str, Attribute] | None  # None: those of a caller that is not known
    calls: tuple[_FunctionKey, ...]
    depth: int = 0
    conditional: bool = False


class _Walk:
    """One walk over a model."""

    def __init__(self, file: str, reader: Reader, model: Model) -> None:
        self._file = file
        self._reader = reader
        self._model = model
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._called: dict[_Call, tuple[Value, ...]] = {}
        self._found: list[SplitSite] = []
        self._pieces_left = MAXIMUM_PIECES

    def sites(self) -> list[SplitSite]:
        """Walk the main graph, then the functions that it does not call."""
        scope = _Scope("", ChainMap(), {}, frozenset(), self._model.opsets, {}, ())
        self._graph(self._model.graph, scope, "")
        for key, function in self._functions.items():
            if key not in {called for called, _, _ in self._called}:
                place = f"function {shown_name('.'.join(filter(None, key)))}"
                unknown = [UNKNOWN] * len(function.inputs)
                self._body(function, key, unknown, replace(scope, place=place, attributes=None))
        return self._found

    def _graph(self, span: Span, scope: _Scope, place: str) -> None:
        _check_depth(scope)
        graph = self._reader.graph(span)
        declared = {entry.name: entry for entry in (*graph.declared, *graph.inputs)}
        values = scope.values.new_child({e.name: declared_value(e) for e in graph.inputs})
        values.update({t.name: tensor_value(t) for t in graph.initializers})
        defaults = {e.name for e in graph.inputs} & {t.name for t in graph.initializers}
        if self._model.ir_version < _DEFAULTS_SINCE_IR:
            defaults = set()
        inner = replace(
            scope,
            place=place or shown_name(graph.name or "main graph"),
            values=values,
            declared=declared,
            defaults=frozenset(defaults),
        )
        self._nodes("GraphProto", span, inner)

    def _nodes(self, message: str, span: Span, scope: _Scope) -> None:
        for index, node in enumerate(self._reader.nodes(message, span)):
            found = self._node(node, index, scope)
            for at, name in enumerate(node.outputs):
                if not name:
                    continue
                value = found[at] if at < len(found) else UNKNOWN
                scope.values[name] = merged(value, scope.declared.get(name))

    def _node(self, node: Node, index: int, scope: _Scope) -> Sequence[Value]:
        inputs = [scope.values.get(name, UNKNOWN) for name in node.inputs]
        for name, attribute in node.attributes.items():
            for position, span in enumerate(attribute.graphs):
                which = f"[{position}]" if len(attribute.graphs) > 1 else ""
                place = f"{scope.place}/{_label(node, index)}.{shown_name(name)}{which}"
                conditional = scope.conditional or node.op_type == "If"
                inner = replace(scope, depth=scope.depth + 1, conditional=conditional)
                self._graph(span, inner, place)
        if not node.domain and node.op_type in OPERATORS:
            return self._split(node, index, scope)
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            return self._call(node, index, key, inputs, scope)
        return outputs(node, inputs, self._content) if not node.domain else ()

    def _split(self, node: Node, index: int, scope: _Scope) -> Sequence[Value]:
        inputs = [scope.values.get(name, UNKNOWN) if name else None for name in node.inputs]
        found = describe(
            node,
            inputs,
            _attributes(node, scope),
            scope.opsets.get(""),
            self._reader.values,
            self._pieces_left,
        )
        self._pieces_left -= sum(desc.output_count for desc in found.descriptors)
        warnings = found.warnings
        if len(node.inputs) > 1 and node.inputs[1] in scope.defaults:
            warnings += ("split is the default of a graph input; a caller may override it",)
        if found.problem and scope.conditional:
            warnings += ("the node is in a branch of an If, which may never be taken",)
        self._found.append(
            SplitSite(
                self._file,
                scope.place,
                shown_name(node.name),
                index,
                found.operator,
                found.descriptors,
                found.problem,
                found.unknown,
                warnings,
                found.element_type,
                found.shape,
                found.axis,
                found.pieces,
            )
        )
        return found.outputs

    def _call(
        self, node: Node, index: int, key: _FunctionKey, inputs: list[Value], scope: _Scope
    ) -> Sequence[Value]:
        function = self._functions[key]
        attributes = dict(function.defaults)
        given = _attributes(node, scope)
        attributes.update({name: value for name, value in given.items() if value is not None})
        caller_knows = all(value is not None for value in given.values())
        call = (key, tuple(inputs), tuple(sorted(attributes.items(), key=lambda item: item[0])))
        if call not in self._called:
            place = f"{scope.place}/{_label(node, index)}"
            inner = replace(scope, place=place, attributes=attributes if caller_knows else None)
            self._called[call] = self._body(function, key, inputs, inner)
        return self._called[call]

    def _body(
        self, function: Function, key: _FunctionKey, inputs: Sequence[Value], scope: _Scope
    ) -> tuple[Value, ...]:
        if key in scope.calls:
            name = shown_name(".".join(filter(None, key)))
            raise WireError(f"function {name} calls itself")
        _check_depth(scope)
        declared = {entry.name: entry for entry in function.declared}
        values = {
            name: merged(value, declared.get(name))
            for name, value in zip(function.inputs, inputs, strict=False)
        }
        inner = replace(
            scope,
            values=ChainMap(values),
            declared=declared,
            defaults=frozenset(),
            opsets=function.opsets,
            calls=(*scope.calls, key),
            depth=scope.depth + 1,
        )
        self._nodes("FunctionProto", function.span, inner)
        return tuple(inner.values.get(name, UNKNOWN) for name in function.outputs)

    def _content(self, value: Value) -> np.ndarray | None:
        source = value.source
        if isinstance(source, (int, tuple)):
            return np.array(source, np.int64)
        if source is None or source.location is not None:
            return None
        try:
            return self._reader.values(source)
        except WireError:
            return None


def _check_depth(scope: _Scope) -> None:
    if scope.depth > MAXIMUM_DEPTH:
        raise WireError(f"graphs and functions nest deeper than {MAXIMUM_DEPTH}")


def _attributes(node: Node, scope: _Scope) -> dict[str, Attribute | None]:
    """Return a node's attributes; one that refers to a function's is looked up there."""
    found: dict[str, Attribute | None] = {}
    for name, attribute in node.attributes.items():
        if not attribute.reference:
            found[name] = attribute
        elif scope.attributes is None:
            found[name] = None
        elif attribute.reference in scope.attributes:
            found[name] = replace(scope.attributes[attribute.reference], name=name)
    return found


def _label(node: Node, index: int) -> str:
    return shown_name(node.name) or f"{shown_name(node.op_type)}[{index}]"
