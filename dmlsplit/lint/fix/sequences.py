"""Names for the pieces of a sequence, where nodes only take single pieces out of it.

Then no sequence has to be made: the first node beside the split that takes a piece gives it its
name, and goes. Others, and those in bodies, become Identity, which runtimes remove.
"""

from collections.abc import Container, Iterable, Mapping
from itertools import chain

from onnx import ModelProto, NodeProto, helper

from dmlsplit.lint.fix.nested import graphs
from dmlsplit.lint.fix.replacement import Replacement
from dmlsplit.lint.fix.subgraph import NewName
from dmlsplit.models.site import NodePath, SplitSite

Takers = Mapping[NodePath, NodeProto]


def taking_nodes(model: ModelProto, sites: Iterable[SplitSite]) -> dict[NodePath, NodeProto]:
    """Copies of the nodes that take the pieces of these sites."""
    paths = {taken.path for site in sites for taken in site.taken}
    copies: dict[NodePath, NodeProto] = {}
    if not paths:
        return copies
    for graph_path, graph in graphs(model.graph):
        for index, node in enumerate(graph.node):
            path = (*graph_path, index)
            if path in paths:
                copies[path] = NodeProto.FromString(node.SerializeToString())
    return copies


def defined_names(model: ModelProto) -> dict[NodePath, set[str]]:
    """The names that each graph defines, by its path."""
    return {
        path: {
            *chain.from_iterable(node.output for node in graph.node),
            *(value.name for value in (*graph.input, *graph.initializer)),
        }
        for path, graph in graphs(model.graph)
    }


def piece_names(
    site: SplitSite, takers: Takers, new_name: NewName, defined: Mapping[NodePath, Container[str]]
) -> dict[int, str]:
    """The names of the pieces that are taken, by position; empty if a sequence has to be made.

    The split defines the name of a piece, so bodies between the split and the node that takes the
    piece see it. If one of them defines that name itself, the piece gets a new one.
    """
    place = site.path[:-1]
    in_bodies = [defined[path] for path in defined if path != place and path[: len(place)] == place]
    count = len(getattr(site.state, "pieces", None) or ())
    if not all(-count <= taken.position < count for taken in site.taken):
        return {}  # the unchanged model fails when it runs
    names: dict[int, str] = {}
    for path, position in site.taken:
        name = _output(takers[path])
        if path[:-1] == place and name and not any(name in scope for scope in in_bodies):
            names.setdefault(position % count, name)
    for _, position in site.taken:
        if position % count not in names:
            names[position % count] = new_name("piece")
    return names


def taker_replacements(split: Replacement, takers: Takers) -> dict[NodePath, list[NodeProto]]:
    """What replaces each node that takes a piece: nothing, or Identity for another name of it."""
    if not split.taken:
        return {}
    nodes: dict[NodePath, list[NodeProto]] = {}
    for path, position in split.site.taken:
        name = split.taken[position % len(split.piece_sizes)]
        output = _output(takers[path])
        identity = helper.make_node("Identity", [name], [output], takers[path].name)
        nodes[path] = [] if output in ("", name) else [identity]
    return nodes


def _output(node: NodeProto) -> str:
    """The first output of a node; empty if it has none."""
    return next(iter(node.output), "")
