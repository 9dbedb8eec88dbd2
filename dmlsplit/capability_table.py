"""Reads and checks the text of feature_levels.yaml, with the line of whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from dmlsplit.feature_levels import (
    FeatureLevel,
    LevelSupport,
    TensorSupport,
    WindowsBuild,
    directml_version,
)
from dmlsplit.tensor import TensorDataType


class TableError(ValueError):
    """feature_levels.yaml does not have the form it must have."""


def parse_table(text: str, file_name: str) -> Mapping[FeatureLevel, LevelSupport]:
    """Read and check a capability table.

    Raises
    ------
    TableError
        With the file, the line and the path of the first thing that is wrong.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        raise TableError(f"{file_name}: {' '.join(str(error).split())}") from None
    if root is None:
        raise TableError(f"{file_name}:1: is empty; it must hold schema, operator and levels")
    return _Reader(file_name).table(root)


class _Reader:
    """Turns YAML nodes into rows; every error names the line and the path."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name

    def fail(self, node: Node, path: str, problem: str) -> TableError:
        line = node.start_mark.line + 1 if node.start_mark else 1
        return TableError(f"{self.file_name}:{line}: {path or 'the file'} {problem}")

    def mapping(
        self, node: Node, path: str, keys: set[str], optional: frozenset[str] = frozenset()
    ) -> dict[str, Node]:
        if not isinstance(node, MappingNode):
            raise self.fail(node, path, f"is a {_kind(node)}; it must be a mapping")
        found: dict[str, Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in found:
                raise self.fail(key, path, f"has the key {name!r} twice")
            if name not in keys | optional:
                allowed = ", ".join(sorted(keys | optional))
                raise self.fail(key, path, f"has the key {name!r}; allowed are {allowed}")
            found[name] = value
        if missing := sorted(keys - found.keys()):
            raise self.fail(node, path, f"lacks the key {missing[0]!r}")
        return found

    def sequence(self, node: Node, path: str) -> list[Node]:
        if not isinstance(node, SequenceNode) or not node.value:
            raise self.fail(node, path, f"is a {_kind(node)}; it must be a sequence with entries")
        return list(node.value)

    def scalar(self, node: Node, path: str, read: Callable[[str], Any], what: str) -> Any:
        if isinstance(node, ScalarNode):
            try:
                return read(node.value)
            except ValueError:
                raise self.fail(node, path, f"is {node.value!r}; it must be {what}") from None
        raise self.fail(node, path, f"is a {_kind(node)}; it must be {what}")

    def table(self, root: Node) -> dict[FeatureLevel, LevelSupport]:
        top = self.mapping(root, "", {"schema", "operator", "levels"})
        self.scalar(top["schema"], "schema", _one_of("1"), "1")
        self.scalar(
            top["operator"], "operator", _one_of("DML_OPERATOR_SPLIT"), "DML_OPERATOR_SPLIT"
        )
        nodes = self.sequence(top["levels"], "levels")
        rows: dict[FeatureLevel, LevelSupport] = {}
        before: tuple[TensorSupport, TensorSupport] | None = None
        for index, (node, level) in enumerate(zip(nodes, FeatureLevel, strict=False)):
            rows[level] = self.row(node, f"levels[{index}]", level, before)
            before = rows[level].input_tensor, rows[level].output_tensors
        if len(nodes) != len(FeatureLevel):
            problem = f"has {len(nodes)} entries; it must have one for each of {len(FeatureLevel)}"
            raise self.fail(top["levels"], "levels", f"{problem} levels")
        return rows

    def row(
        self,
        node: Node,
        path: str,
        level: FeatureLevel,
        before: tuple[TensorSupport, TensorSupport] | None,
    ) -> LevelSupport:
        required = {"name", "value", "directml", "windows", "source"}
        fields = self.mapping(node, path, required, frozenset({"split", "public"}))
        name = f"DML_FEATURE_LEVEL_{level}"
        self.scalar(fields["name"], f"{path}.name", _one_of(name), f"{name} at this place")
        self.scalar(
            fields["value"], f"{path}.value", _one_of(f"{int(level):#06x}"), f"{level:#06x}"
        )
        version = self.scalar(
            fields["directml"], f"{path}.directml", _checked_version, "like 1.8.0"
        )
        source = self.scalar(fields["source"], f"{path}.source", str, "text")
        public = "public" not in fields
        if not public:
            self.scalar(fields["public"], f"{path}.public", _one_of("false"), "false, or left out")
        windows = self.windows(fields["windows"], f"{path}.windows")
        if "split" in fields:
            split = self.mapping(
                fields["split"], f"{path}.split", {"input_tensor", "output_tensors"}
            )
            before = (
                self.support(split["input_tensor"], f"{path}.split.input_tensor"),
                self.support(split["output_tensors"], f"{path}.split.output_tensors"),
            )
        if before is None:
            raise self.fail(node, path, "lacks the key 'split', which the first level must have")
        return LevelSupport(level, version, public, windows, *before, source)

    def windows(self, node: Node, path: str) -> WindowsBuild | None:
        if isinstance(node, ScalarNode) and node.value in ("null", "~", ""):
            return None
        fields = self.mapping(node, path, {"build", "name"})
        build = self.scalar(fields["build"], f"{path}.build", int, "an integer")
        return WindowsBuild(build, self.scalar(fields["name"], f"{path}.name", str, "text"))

    def support(self, node: Node, path: str) -> TensorSupport:
        fields = self.mapping(node, path, {"dimension_counts", "data_types"})
        at = f"{path}.dimension_counts"
        counts = [
            self.scalar(entry, at, int, "an integer")
            for entry in self.sequence(fields["dimension_counts"], at)
        ]
        if len(counts) != 2 or not 1 <= counts[0] <= counts[1] <= 8:
            problem = f"is {counts}; it must be [least, most] between 1 and 8"
            raise self.fail(fields["dimension_counts"], at, problem)
        at = f"{path}.data_types"
        types = [
            self.scalar(entry, f"{at}[{i}]", TensorDataType.parse, "a data type such as FLOAT32")
            for i, entry in enumerate(self.sequence(fields["data_types"], at))
        ]
        if len(set(types)) != len(types):
            raise self.fail(fields["data_types"], at, "names a data type twice")
        return TensorSupport(counts[0], counts[1], frozenset(types))


def _kind(node: Node) -> str:
    return type(node).__name__.removesuffix("Node").lower()


def _one_of(allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text != allowed:
            raise ValueError(text)
        return text

    return read


def _checked_version(text: str) -> str:
    directml_version(text)
    return text
