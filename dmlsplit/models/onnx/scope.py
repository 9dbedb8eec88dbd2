"""A graph or a function's body, and one of its nodes, as a walk visits it."""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dmlsplit.models.onnx.declarations import Declarations
from dmlsplit.models.onnx.operators import OPERATORS
from dmlsplit.models.onnx.protobuf import Attribute, Node, shown_name
from dmlsplit.models.onnx.shapes import INFERRED_BY_ONNX
from dmlsplit.models.onnx.values import UNKNOWN, Gap, Value
from dmlsplit.models.site import FUNCTION_BODY, Cause, NodePath, SplitSite

# The parts of a path for one body: the position of a node, an attribute of it, and a body in that.
_PARTS_PER_BODY = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph, or a function's body, and the meaning of names in it."""

    # The name, which becomes `SplitSite.graph`.
    graph: str
    values: ChainMap[str, Value]
    declarations: Declarations
    # The attributes that the caller of a function gives; None if nothing in the model calls it.
    attributes: Mapping[str, Attribute] | None
    # The path to the graph, with which that of each site in it begins.
    path: NodePath = ()
    # The labels of the nodes so far that have bodies or call functions; see `Visit.claim_label`.
    labels: set[str] = field(default_factory=set)
    # Why the nodes of the graph never run; None if they may.
    never_runs: str | None = None

    @property
    def is_in_function(self) -> bool:
        """Whether it is a function's body, or a graph in one."""
        return FUNCTION_BODY in self.path

    @property
    def depth(self) -> int:
        """The number of graphs and functions around it."""
        return sum(isinstance(step, str) for step in self.path)

    def value(self, name: str) -> Value:
        """What is known about an input of a node; an empty name is an input that is left out."""
        if not name or name in self.values:
            return self.values.get(name, UNKNOWN)
        text = f"no earlier node produces value {shown_name(name)!r}"
        return Value(gap=(text, Cause.ORDER))

    def path_of(self, name: str) -> NodePath:
        """The path of the graph, this one or one around it, that has a value."""
        around = next((i for i, values in enumerate(self.values.maps) if name in values), 0)
        return self.path[: len(self.path) - _PARTS_PER_BODY * around]


class Visit(NamedTuple):
    """A node, and what is known about its inputs."""

    node: Node
    position: int
    inputs: list[Value]
    scope: Scope

    @property
    def is_split(self) -> bool:
        """Whether the node is a split of ONNX."""
        return not self.node.domain and self.node.op_type in OPERATORS

    @property
    def description(self) -> str:
        """The node, for a message."""
        name = f" {shown_name(self.node.name)!r}" if self.node.name else f" #{self.position}"
        return f"{shown_name(self.node.op_type)}{name} of {self.scope.graph}"

    def gap_after(self) -> Gap:
        """The reason for an unknown shape if this node lost it."""
        inferred = not self.node.domain and self.node.op_type in INFERRED_BY_ONNX
        cause = Cause.INFERABLE if inferred else Cause.UNTRACKED
        return f"the shape of its input is unknown after {self.description}", cause

    def claim_label(self) -> str:
        """A label that no earlier node with bodies or call in this graph has."""
        label = shown_name(self.node.name) or f"{shown_name(self.node.op_type)}[{self.position}]"
        if label in self.scope.labels:
            label += f"[{self.position}]"
        self.scope.labels.add(label)
        return label

    def site(self, file: str) -> SplitSite:
        """A site of the node, about which nothing else is known yet."""
        return SplitSite(
            file,
            self.scope.graph,
            shown_name(self.node.name),
            self.position,
            self.node.op_type,
            path=(*self.scope.path, self.position),
            input_path=self.scope.path_of(next(iter(self.node.input), "")),
            format="onnx",
            never_runs=self.scope.never_runs,
        )
