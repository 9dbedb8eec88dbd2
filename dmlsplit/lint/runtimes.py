"""What each release of ONNX Runtime and Windows ML loads, and what its DirectML provider takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.files.fields import Field
from dmlsplit.resources import parsed_yaml

UNKNOWN_SOURCE = "unknown"
Version = tuple[int, ...]


class Cell(NamedTuple):
    """A fact about a release, with its source; the value is None if it was not found."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Provider:
    """What the DirectML provider of a release of ONNX Runtime does.

    Attributes
    ----------
    split_versions : Cell of tuple of int
        The versions of Split with a kernel.
    element_types : Cell of frozenset of str
        The types of these kernels, as ONNX names them.
    maximum_rank : Cell of int
        The most dimensions of an input.
    minimum_level : Cell of FeatureLevel
        The level that the provider asks of the DirectML.dll.
    sequence_types : Cell of frozenset of str
        The types of ONNX Runtime's SplitToSequence, on the CPU.
    cpu_empty_last : Cell of bool
        Whether num_outputs may leave an empty last piece on the CPU.
    cpu_unnamed_split : Cell of bool
        Whether num_outputs may stand next to an input split without a name on the CPU.
    external_sizes_load : Cell of bool
        Whether a model loads whose sizes of pieces are in external data.
    cpu_sequences : Cell of bool
        Whether models with sequences run beside it, their sequence operators on the CPU.
    cpu_shapes : Cell of bool
        Whether Splits of shapes are left to the CPU.
    graph_fusion : Cell of str
        When nodes are fused: ``always``, at ``enable_all`` only, or unless an ``option`` is set.
    neighbours_leave_at : Cell of int
        The operator set from which the neighbours of a Split run on the CPU.
    """

    split_versions: Cell
    element_types: Cell
    maximum_rank: Cell
    minimum_level: Cell
    sequence_types: Cell
    cpu_empty_last: Cell
    cpu_unnamed_split: Cell
    external_sizes_load: Cell
    cpu_sequences: Cell
    cpu_shapes: Cell
    graph_fusion: Cell
    neighbours_leave_at: Cell


@dataclass(frozen=True, slots=True)
class Release:
    """A minor release of ONNX Runtime, such as 1.24."""

    version: Version
    # A str: the version of the DirectML.dll in its package.
    directml: Cell
    # An int: the newest operator set of ai.onnx that it loads.
    opset: Cell
    # An int: the newest IR version that it loads.
    ir: Cell
    # An int: the newest operator set that the provider's page names.
    page: Cell
    # Whether the release has a package with the provider.
    has_package: bool
    provider: Provider

    def __str__(self) -> str:
        return version_text(self.version)


class WindowsMl(NamedTuple):
    """Windows ML as a part of a build of Windows, with the DirectML.dll of that build."""

    build: int
    opset: Cell
    ir: Cell
    # An int each: an operator set and an IR version that it loads for certain, even if the newest
    # ones are not known.
    sure_opset: Cell
    sure_ir: Cell


class WindowsMlPackage(NamedTuple):
    """A version of the new Windows ML, with the release of ONNX Runtime inside."""

    version: Version
    # A Version: the release of ONNX Runtime.
    onnxruntime: Cell
    directml: Cell


@dataclass(frozen=True, slots=True)
class RuntimeTable:
    """The rows of runtimes.yaml, oldest first."""

    sources: Mapping[str, str]
    onnxruntime: tuple[Release, ...]
    windows_ml: tuple[WindowsMl, ...]
    packages: tuple[WindowsMlPackage, ...]

    @property
    def newest(self) -> Release:
        """The newest release with a DirectML package."""
        return [release for release in self.onnxruntime if release.has_package][-1]

    def source(self, cell: Cell) -> str:
        """The source of a cell, in full."""
        return self.sources.get(cell.source, cell.source)


@cache
def runtime_table() -> RuntimeTable:
    """The table of runtimes.yaml."""
    text = files("dmlsplit.lint").joinpath("runtimes.yaml").read_text("utf-8")
    return parse_runtimes(text)


def parse_runtimes(text: str) -> RuntimeTable:
    """Read a table of runtimes; an InvalidArgumentError names the path of a bad value."""
    table = Field(parsed_yaml(text))
    sources = {name: entry.text() for name, entry in table.get("sources").members()}
    provider = table.get("provider")
    return RuntimeTable(
        sources,
        tuple(_release(row, provider, sources) for row in table.get("onnxruntime").items()),
        tuple(_windows_ml(row, sources) for row in table.get("windows_ml").items()),
        tuple(_package(row, sources) for row in table.get("windows_ml_packages").items()),
    )


def version_text(numbers: Version) -> str:
    """A version as text, such as ``1.24``."""
    return ".".join(map(str, numbers))


def version(text: str) -> Version:
    """``1.24`` or ``1.24.4`` as numbers; a ValueError if it is not a version."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9}){1,3}", text):
        raise ValueError(text)
    return tuple(map(int, text.split(".")))


def _cell(entry: Field, sources: Mapping[str, str], convert: Any) -> Cell:
    """A cell: [value, source]."""
    value, source = entry.read(tuple, "[value, source]")
    if source not in sources and not source.startswith("https://"):
        raise entry.error(f"[value, one of {', '.join(sources)} or a URL]")
    if value is None or source == UNKNOWN_SOURCE:
        return Cell(None, source)
    return Cell(entry.read(lambda pair: convert(pair[0]), "[value, source]"), source)


def _release(row: Field, provider: Field, sources: Mapping[str, str]) -> Release:
    """A row of ONNX Runtime, with what its provider does."""
    release_version = row.get("release").read(version, "a version such as 1.24")
    cells = {key: _cell(row.get(key), sources, convert) for key, convert in _COLUMNS.items()}
    facts = {
        key: _latest(provider.get(key), release_version, convert)
        for key, convert in _PROVIDER.items()
    }
    return Release(
        release_version,
        **cells,
        has_package=bool(row.optional("package", default=True).value),
        provider=Provider(**facts),
    )


def _latest(entries: Field, release: Version, convert: Any) -> Cell:
    """The last entry at or before a release; the first entry is that of the first release."""
    cells = [
        (entry.get("since").read(version, "a version such as 1.14"), entry)
        for entry in entries.items()
    ]
    entry = [entry for since, entry in cells if since <= release][-1]
    value = entry.get("value")
    source = entry.get("source").text()
    if source == UNKNOWN_SOURCE:
        return Cell(None, source)
    return Cell(value.read(convert, "a value as in the entries beside it"), source)


def _windows_ml(row: Field, sources: Mapping[str, str]) -> WindowsMl:
    """A row of Windows ML as a part of Windows."""
    keys = ("opset", "ir", "sure_opset", "sure_ir")
    cells = [_cell(row.get(key), sources, int) for key in keys]
    return WindowsMl(row.get("build").integer(), *cells)


def _package(row: Field, sources: Mapping[str, str]) -> WindowsMlPackage:
    """A row of Windows ML's packages."""
    runtime = _cell(row.get("onnxruntime"), sources, version)
    package_version = row.get("version").read(version, "a version such as 2.5")
    return WindowsMlPackage(package_version, runtime, _cell(row.get("directml"), sources, str))


_COLUMNS = {"directml": str, "opset": int, "ir": int, "page": int}
_PROVIDER = {
    "split_versions": tuple,
    "element_types": frozenset,
    "maximum_rank": int,
    "minimum_level": FeatureLevel.parse,
    "sequence_types": frozenset,
    "cpu_empty_last": bool,
    "cpu_unnamed_split": bool,
    "external_sizes_load": bool,
    "cpu_sequences": bool,
    "cpu_shapes": bool,
    "graph_fusion": str,
    "neighbours_leave_at": int,
}
