"""Reads the layers and edges of an OpenVINO IR that matter to splits, and their constants.

The file is not trusted, so elements are counted during parsing, and only those that describe a
split are kept. Format: OpenVINO documentation, "Intermediate Representation format", versions 10
and 11.
"""

import os
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple, NoReturn
from xml.etree import ElementTree

from dmlsplit.errors import InvalidArgumentError, limit_error, unreadable_file_error
from dmlsplit.files.kinds import check_size
from dmlsplit.messages import counted
from dmlsplit.models.limits import (
    MAX_KEPT_ELEMENTS,
    MAX_RANK,
    MAX_XML_BYTES,
    MAX_XML_DEPTH,
    MAX_XML_EVENTS,
)
from dmlsplit.models.site import Cause, UnknownSplitError

NET_VERSIONS = ("10", "11")
# Chunks are large, because expat before 2.6 reads the beginning of a long tag again with each one.
_CHUNK_BYTES = 16 << 20
# The fix of a file that OpenVINO would not write.
_FIX = "Fix: convert the model again"
_INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"-?[0-9]{1,19}")
# The `struct` type for the attribute element_type of an integer Const.
_INTEGERS = dict(zip("i8 u8 i16 u16 i32 u32 i64 u64".split(), "bBhHiIqQ", strict=True))

# `_CHILDREN` has the elements that are kept, by the element around them. The parts of a layer are
# kept only if its type is in `_KEPT_TYPES`.
_SPLITS = {"Split", "VariadicSplit"}
_KEPT_TYPES = {"Const", "Convert", "Parameter", *_SPLITS}
_KEPT_PARTS = {"data", "input", "output"}
_BODIES = {"body", "then_body", "else_body"}
_CHILDREN = {
    **{graph: {"layers", "edges"} for graph in ("net", *_BODIES)},
    "layers": {"layer"},
    "layer": _KEPT_PARTS | _BODIES,
    "input": {"port"},
    "output": {"port"},
    "port": {"dim"},
    "edges": {"edge"},
}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a layer; a dimension of None is dynamic."""

    id: str
    precision: str
    dims: list[int | None]
    # Whether the dimensions are read; if there are too many, they are left out.
    is_read: bool = True

    def known_dims(self, name: str) -> list[int | None]:
        """The dimensions; an UnknownSplitError about `name` if there are too many."""
        return self.dims if self.is_read else _refuse_rank(name)


class Layer(NamedTuple):
    """An operation. Only splits, constants and parameters keep their data and ports."""

    # The position in the graph.
    position: int
    id: str
    name: str
    type: str
    version: str
    data: dict[str, str]
    inputs: list[Port]
    outputs: list[Port]
    bodies: list["Graph"]


@dataclass(frozen=True, slots=True)
class Graph:
    """The layers of a model or body, by id, and its edges.

    `edges` maps the (layer id, port id) of an input to that of the output that feeds it.
    """

    name: str
    layers: dict[str, Layer]
    edges: dict[tuple[str, str], tuple[str, str]]


def read_ir(path: Path) -> Graph:
    """Read a model.xml, which must be UTF-8, have no DOCTYPE, and keep the limits."""
    # This encoding overrides the declared one: Python would look for a codec of that name.
    parser = ElementTree.XMLParser(target=_TreeBuilder(), encoding="utf-8")  # noqa: S314 - no DOCTYPE
    try:
        check_size(path, MAX_XML_BYTES)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                parser.feed(chunk)
        net = parser.close()
    except ElementTree.ParseError as error:
        raise InvalidArgumentError(f"is not well-formed XML in UTF-8: {error}") from None
    except (OSError, UnicodeError) as error:
        raise unreadable_file_error(error) from None
    version = _required(net, "version")
    if version not in NET_VERSIONS:
        raise InvalidArgumentError(
            f"net version is {version[:20]!r}; it must be {' or '.join(NET_VERSIONS)}. "
            "Fix: convert the model with OpenVINO 2021 or later"
        )
    return _graph(net, net.get("name", ""))


def checked_integer(name: str, text: str, low: int, high: int = _INT64_MAX) -> int:
    """The value of a decimal number; an InvalidArgumentError refuses any that is out of bounds."""
    digits = text.strip(" \t\r\n")
    if _INTEGER.fullmatch(digits) and low <= int(digits) <= high:
        return int(digits)
    raise InvalidArgumentError(
        f"{name} is {text[:40]!r}; it must be an integer from {low} to {high}"
    )


class _TreeBuilder:
    """The target of the XML parser, which builds a tree of the elements that matter to splits."""

    def __init__(self) -> None:
        self._tree = ElementTree.TreeBuilder()
        self._events = 0
        self._kept = 0
        # The elements around the current place in the file; None for one that is not kept.
        self._open: list[ElementTree.Element | None] = []

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Refuse a DOCTYPE; the parser calls this before it defines any entity."""
        raise InvalidArgumentError("declares a DOCTYPE, which no IR needs. Fix: remove it")

    def data(self, text: str) -> None:
        """Keep the text of a <dim>."""
        self._events += 1
        element = self._open[-1]
        if element is not None and element.tag == "dim":
            self._tree.data(text)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Count an opening tag, and keep its element if it matters to splits."""
        self._events += 1
        if self._events > MAX_XML_EVENTS:
            raise limit_error(f"it contains more than {MAX_XML_EVENTS} tags and texts")
        if len(self._open) >= MAX_XML_DEPTH:
            raise limit_error(f"it nests elements deeper than {MAX_XML_DEPTH}")
        if not self._open and tag != "net":
            raise InvalidArgumentError(f"has the root <{tag[:40]}>; it must be <net>")
        if self._open and not _is_kept(tag, self._open[-1]):
            self._open.append(None)
            return
        self._kept += 1
        if self._kept > MAX_KEPT_ELEMENTS:
            raise limit_error(f"it contains more than {MAX_KEPT_ELEMENTS} layers, ports and edges")
        self._open.append(self._tree.start(tag, attributes))

    def end(self, tag: str) -> None:
        """Close an element."""
        self._events += 1
        if self._open.pop() is not None:
            self._tree.end(tag)

    def close(self) -> ElementTree.Element:
        """The root of the tree, once the file is read."""
        return self._tree.close()


def _is_kept(tag: str, parent: ElementTree.Element | None) -> bool:
    """Whether an element matters to splits, given the one around it."""
    if parent is None or tag not in _CHILDREN.get(parent.tag, ()):
        return False
    return tag not in _KEPT_PARTS or parent.get("type") in _KEPT_TYPES


def _graph(element: ElementTree.Element, name: str) -> Graph:
    """The layers and edges of a <net> or a body."""
    layers: dict[str, Layer] = {}
    for index, entry in enumerate(element.iterfind("layers/layer")):
        layer = _layer(entry, index)
        if layer.id in layers:
            raise InvalidArgumentError(
                f"two layers have the id {layer.id[:40]!r}; each must have its own. {_FIX}"
            )
        layers[layer.id] = layer
    edges: dict[tuple[str, str], tuple[str, str]] = {}
    for entry in element.iterfind("edges/edge"):
        end = layer_id, port_id = _required(entry, "to-layer"), _required(entry, "to-port")
        if end in edges:
            raise InvalidArgumentError(
                f"two edges lead to port {port_id[:40]!r} of layer {layer_id[:40]!r}; at most one "
                f"may. {_FIX}"
            )
        edges[end] = _required(entry, "from-layer"), _required(entry, "from-port")
    return Graph(name, layers, edges)


def _layer(element: ElementTree.Element, index: int) -> Layer:
    """A <layer>, which is the `index`th of its graph."""
    parts = {part.tag: part for part in element}
    return Layer(
        position=index,
        id=_required(element, "id"),
        name=element.get("name", ""),
        type=_required(element, "type"),
        version=element.get("version", "opset1"),
        data=parts["data"].attrib if "data" in parts else {},
        inputs=[_port(port) for port in parts.get("input", ())],
        outputs=[_port(port) for port in parts.get("output", ())],
        bodies=[_graph(body, tag) for tag, body in parts.items() if tag in _BODIES],
    )


def _port(element: ElementTree.Element) -> Port:
    """A <port>; a dimension of -1 is dynamic."""
    if len(element) > MAX_RANK:
        return Port(_required(element, "id"), element.get("precision", ""), [], is_read=False)
    dims = [checked_integer("a port's <dim>", dim.text or "", -1) for dim in element]
    sizes = [None if dim == -1 else dim for dim in dims]
    return Port(_required(element, "id"), element.get("precision", ""), sizes)


def _required(element: ElementTree.Element, name: str) -> str:
    """An attribute that the format requires."""
    value = element.get(name)
    if value is None:
        raise InvalidArgumentError(f"a <{element.tag}> lacks the attribute {name!r}. {_FIX}")
    return value


def _refuse_rank(name: str) -> NoReturn:
    """Raise an UnknownSplitError about a value of too many dimensions."""
    text = f"{name} has more than {MAX_RANK} dimensions, the most that are read"
    raise UnknownSplitError(text, Cause.LIMIT)


def constant_shape(layer: Layer) -> tuple[int, ...]:
    """The shape of a Const, from its attribute or else from its output."""
    text = layer.data.get("shape")
    name = f"Const {layer.name[:80]!r}"
    if text is None:
        dims = layer.outputs[0].known_dims(name) if layer.outputs else []
        if None in dims:
            raise InvalidArgumentError(f"{name}: its shape is dynamic; it must have every size")
        return tuple(dim for dim in dims if dim is not None)
    if text.count(",") >= MAX_RANK:
        _refuse_rank(name)
    parts = text.split(",") if text.strip() else []
    return tuple(checked_integer(f"{name}: shape", part, 0) for part in parts)


def integers(layer: Layer, xml: Path) -> list[int]:
    """The values of an integer Const, as a flat list. Check its shape first: it may be huge.

    Raises
    ------
    InvalidArgumentError
        If the Const does not describe integers that the .bin file has.
    UnknownSplitError
        If the .bin file links out of its folder.
    OSError
        If the .bin file is not a file, or cannot be read.
    """
    name = f"Const {layer.name[:80]!r}"
    precision = layer.outputs[0].precision if layer.outputs else ""
    element_type = layer.data.get("element_type", precision).lower()
    if element_type not in _INTEGERS:
        raise InvalidArgumentError(
            f"{name} has type {element_type[:20]!r}; it must be one of {', '.join(_INTEGERS)}"
        )
    code = _INTEGERS[element_type]
    count = prod(constant_shape(layer))
    width = struct.calcsize(f"<{code}")
    offset = checked_integer(f"{name}: offset", layer.data.get("offset", ""), 0)
    size = checked_integer(f"{name}: size", layer.data.get("size", ""), 0)
    if size != count * width:
        elements = f"{counted(count, 'element')} of type {element_type}"
        raise InvalidArgumentError(
            f"{name}: size is {size}; it must be {count * width}, for {elements}"
        )
    return list(struct.unpack(f"<{count}{code}", _stored_bytes(name, xml, offset, size)))


def _stored_bytes(name: str, xml: Path, offset: int, size: int) -> bytes:
    """The bytes of a Const in the .bin file of a model; errors call the Const `name`."""
    path = _weights_file(xml)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise OSError(f"the weights file {path.name} cannot be read: {error.strerror}") from None
    with opened as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(min(offset, length))
        stored = file.read(size)
    if len(stored) != size:
        raise InvalidArgumentError(
            f"{name}: {counted(size, 'byte')} from byte {offset} are outside {path.name}, "
            f"which has {length} bytes. Fix: copy {path.name} again"
        )
    return stored


def _weights_file(xml: Path) -> Path:
    """The .bin file of a model, which must be in the same folder."""
    path = xml.with_suffix(".bin")
    if not path.is_file():
        exists = os.path.lexists(path)
        problem = "is not a regular file" if exists else "is missing; it belongs next to the .xml"
        raise OSError(f"the weights file {path.name} {problem}")
    if path.resolve().parent != path.parent.resolve():
        why = f"{path.name} links out of its folder and is not followed"
        raise UnknownSplitError(why, Cause.WEIGHTS)
    return path
