"""Reads the layers and edges of an OpenVINO IR (model.xml) that matter to splits.

The file is not trusted, so the reader counts its events. It keeps only what describes a split.
Format: OpenVINO documentation, "Intermediate Representation format", versions 10 and 11.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from dmlsplit.errors import InvalidArgumentError

NET_VERSIONS = ("10", "11")
MAX_FILE_BYTES = 128 << 20
# Opening tags, closing tags, and texts.
MAX_EVENTS = 3_000_000
MAX_LAYERS = 100_000
MAX_EDGES = 250_000
MAX_DEPTH = 96
MAX_RANK = 64
_CHUNK_BYTES = 1 << 16
# The most consecutive chunks without an event, which limits a tag to 4 MiB.
_MAX_SILENT_CHUNKS = 64
_INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_ENCODING = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*encoding\s*=\s*[\"']([^\"'>]*)")

_SPLITS = {"Split", "VariadicSplit"}
_KEPT_TYPES = {"Const", "Parameter", *_SPLITS}
_KEPT_PARTS = {"data", "input", "output"}
_BODIES = {"body", "then_body", "else_body"}
_ROOT, _SKIPPED = "", "skipped"
_CHILDREN = {
    _ROOT: {"net"},
    "net": {"layers", "edges"},
    **{body: {"layers", "edges"} for body in _BODIES},
    "layers": {"layer"},
    "layer": _KEPT_PARTS | _BODIES,
    "input": {"port"},
    "output": {"port"},
    "port": {"dim"},
    "edges": {"edge"},
}


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a layer; a dimension of -1 is dynamic."""

    id: str
    precision: str
    dims: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation. Only splits, constants and parameters keep their data and ports."""

    index: int
    id: str
    name: str
    type: str
    version: str
    data: dict[str, str] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    bodies: list["Graph"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Graph:
    """The layers of a model or body, by id, and the edges to its splits.

    `edges` maps the (layer id, port id) of an input to that of the output that feeds it.
    """

    name: str
    layers: dict[str, Layer]
    edges: dict[tuple[str, str], tuple[str, str]]


def read_ir(path: Path) -> Graph:
    """Read a model.xml, which must be UTF-8 without a DOCTYPE and within the limits above."""
    reader = _Reader()
    # This encoding overrides the declared one, so that no other alphabet can hide a DOCTYPE.
    parser = ElementTree.XMLParser(target=reader, encoding="utf-8")  # noqa: S314 - no DOCTYPE
    silent, events = 0, 0
    try:
        for chunk in _chunks(path):
            parser.feed(chunk)
            silent = silent + 1 if reader.events == events else 0
            events = reader.events
            if silent > _MAX_SILENT_CHUNKS:
                raise InvalidArgumentError("a single tag is longer than 4 MiB")
        parser.close()
    except ElementTree.ParseError as error:
        raise InvalidArgumentError(f"is not well-formed XML: {error}") from None
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentError(f"cannot be read: {error}") from None
    assert reader.graph  # the end of <net>, the only root that `start` accepts, has set it
    return reader.graph


def checked_integer(what: str, text: str, low: int, high: int = _INT64_MAX) -> int:
    """The value of a decimal number; an InvalidArgumentError if it is out of bounds."""
    digits = text.strip(" \t\r\n")
    if _INTEGER.fullmatch(digits) and low <= int(digits) <= high:
        return int(digits)
    raise InvalidArgumentError(
        f"{what} is {text[:40]!r}; it must be an integer from {low} to {high}"
    )


def _chunks(path: Path) -> Iterator[bytes]:
    if not path.is_file():
        raise InvalidArgumentError("is not a file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidArgumentError(f"is larger than {MAX_FILE_BYTES >> 20} MiB")
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            declared = _ENCODING.match(chunk) if file.tell() == len(chunk) else None
            if declared and declared[1].upper() not in (b"UTF-8", b"UTF8", b"US-ASCII", b"ASCII"):
                name = declared[1][:20].decode("ascii", "replace")
                raise InvalidArgumentError(f"declares encoding {name!r}; it must be UTF-8")
            if b"\0" in chunk:
                raise InvalidArgumentError("contains a zero byte; it must be UTF-8 text")
            yield chunk


class _Reader:
    """The target of the XML parser, which counts events and makes layers of them."""

    def __init__(self) -> None:
        self.events = 0
        self._counts = {"layers": 0, "edges to splits": 0}
        self._tags = [_ROOT]  # the open elements; _SKIPPED for an ignored one and its contents
        self._graphs: list[Graph] = []
        self._layers: list[Layer] = []
        self._text = ""
        self.graph: Graph | None = None

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        # The parser calls this before it defines any entity.
        raise InvalidArgumentError("declares a DOCTYPE, which no IR needs")

    def data(self, text: str) -> None:
        self.events += 1
        if self._tags[-1] == "dim":
            self._text = (self._text + text)[:64]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.events += 1
        if self.events > MAX_EVENTS:
            raise InvalidArgumentError(f"contains more than {MAX_EVENTS} tags and texts")
        if len(self._tags) > MAX_DEPTH:
            raise InvalidArgumentError(f"nests elements deeper than {MAX_DEPTH}")
        parent = self._tags[-1]
        matters = tag in _CHILDREN.get(parent, ())
        if parent == _ROOT and not matters:
            raise InvalidArgumentError(f"has the root <{tag[:40]}>; it must be <net>")
        if matters and tag in _KEPT_PARTS:  # most of them are parts of other layers
            matters = self._layers[-1].type in _KEPT_TYPES
        self._tags.append(tag if matters else _SKIPPED)
        if matters:
            self._open(tag, attributes)

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "net":
            version = _required("net", attributes, "version")
            if version not in NET_VERSIONS:
                raise InvalidArgumentError(
                    f"net version is {version[:20]!r}; it must be {' or '.join(NET_VERSIONS)}. "
                    "Fix: convert the model with OpenVINO 2021 or later"
                )
            self._graphs.append(Graph(attributes.get("name", ""), {}, {}))
        elif tag in _BODIES:
            self._graphs.append(Graph(tag, {}, {}))
        elif tag == "layer":
            self._layers.append(self._layer(attributes))
        elif tag == "data":
            self._layers[-1].data.update(attributes)
        elif tag == "port":
            key = _required("port", attributes, "id")
            self._ports().append(Port(key, attributes.get("precision", "")))
        elif tag == "dim":
            self._text = ""
        elif tag == "edge":
            self._edge(attributes)

    def end(self, tag: str) -> None:
        self.events += 1
        if self._tags.pop() == _SKIPPED:
            return
        if tag == "net":
            self.graph = self._graphs.pop()
        elif tag in _BODIES:
            self._layers[-1].bodies.append(self._graphs.pop())
        elif tag == "layer":
            self._layers.pop()
        elif tag == "dim":
            dims = self._ports()[-1].dims
            dims.append(checked_integer("a port's <dim>", self._text, -1))
            if len(dims) > MAX_RANK:
                raise InvalidArgumentError(f"a port has more than {MAX_RANK} dimensions")

    def _ports(self) -> list[Port]:
        """The list for the open <port>."""
        layer = self._layers[-1]
        return layer.inputs if self._tags[-2] == "input" else layer.outputs

    def _count(self, what: str, limit: int) -> None:
        self._counts[what] += 1
        if self._counts[what] > limit:
            raise InvalidArgumentError(f"contains more than {limit} {what}")

    def _layer(self, attributes: dict[str, str]) -> Layer:
        self._count("layers", MAX_LAYERS)
        layers = self._graphs[-1].layers
        key, operator = (_required("layer", attributes, name) for name in ("id", "type"))
        if key in layers:
            raise InvalidArgumentError(f"two layers have the id {key[:40]!r}")
        name, version = attributes.get("name", ""), attributes.get("version", "opset1")
        layers[key] = Layer(len(layers), key, name, operator, version)
        return layers[key]

    def _edge(self, attributes: dict[str, str]) -> None:
        names = ("to-layer", "to-port", "from-layer", "from-port")
        to_layer, to_port, from_layer, from_port = (
            _required("edge", attributes, name) for name in names
        )
        graph = self._graphs[-1]
        fed = graph.layers.get(to_layer)
        if fed is not None and fed.type not in _SPLITS:
            return
        self._count("edges to splits", MAX_EDGES)
        if (to_layer, to_port) in graph.edges:
            raise InvalidArgumentError(
                f"two edges lead to port {to_port[:40]!r} of layer {to_layer[:40]!r}"
            )
        graph.edges[to_layer, to_port] = from_layer, from_port


def _required(tag: str, attributes: Mapping[str, str], name: str) -> str:
    if name not in attributes:
        raise InvalidArgumentError(f"a <{tag}> lacks the attribute {name!r}")
    return attributes[name]
