"""What becomes of the pieces of splits: which are used, and which nodes take or combine them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat

from dmlsplit.models.onnx.protobuf import Node
from dmlsplit.models.onnx.scope import Visit
from dmlsplit.models.onnx.values import UNKNOWN, InferenceContext, Piece, Value
from dmlsplit.models.site import SplitSite, Taken

# The operators that `SplitSite.neighbours` names: those that lint/runtimes.yaml knows to leave the
# GPU, by `neighbours_leave_at`.
NEIGHBOURS = {"Cast", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze"}


class PieceUses:
    """The uses of the pieces of a model's splits so far; a number stands for a split."""

    def __init__(self) -> None:
        # The names of the outputs of each Split.
        self._outputs: dict[int, tuple[str, ...]] = {}
        # The names of all values of the file that a node takes, or that a graph outputs.
        self._used: set[str] = set()
        # The nodes that combine two pieces of a Split.
        self._recombined: dict[int, list[str]] = {}
        # The neighbours of each Split, as the keys of a dictionary, which keeps their order.
        self._neighbours: dict[int, dict[str, None]] = {}
        # The nodes that take single pieces out of the sequence of a SplitToSequence.
        self._taken: dict[int, list[Taken]] = {}
        # The SplitToSequences whose sequences have another use.
        self._used_whole: set[int] = set()

    def note_uses(self, names: Iterable[str]) -> None:
        """Note the names of values that a node takes or a graph outputs."""
        self._used.update(names)

    def note_graph_outputs(self, values: Iterable[Value]) -> None:
        """Note the values that a graph outputs."""
        self._used_whole.update(value.sequence for value in values if value.sequence is not None)

    def note_takers(self, visit: Visit, context: InferenceContext) -> None:
        """Note whether a node takes pieces of a sequence, or uses it in another way."""
        for index, value in enumerate(visit.inputs):
            if value.sequence is None:
                continue
            position = _position(context) if index == 0 else None
            if position is None:
                self._used_whole.add(value.sequence)
            else:
                node = Taken((*visit.scope.path, visit.position), position)
                self._taken.setdefault(value.sequence, []).append(node)

    def note_split(self, split: int, visit: Visit) -> None:
        """Note a Split and the maker of its input."""
        self._outputs[split] = visit.node.output
        makers = [value.maker for value in visit.inputs[:1] if value.maker]
        self._neighbours[split] = dict.fromkeys(makers)

    def note_neighbour(self, visit: Visit) -> None:
        """Note the splits whose outputs a node takes, if it is one of `NEIGHBOURS`."""
        if not is_neighbour(visit.node):
            return
        for split, output, _ in chain.from_iterable(value.origins for value in visit.inputs):
            if self._outputs[split][output] in visit.node.input:
                self._neighbours[split][visit.node.op_type] = None

    def note_recombination(self, visit: Visit, splits: Iterable[int]) -> None:
        """Note the splits of which a node combines two pieces."""
        for split in splits:
            self._recombined.setdefault(split, []).append(visit.description)

    def with_uses(self, sites: Sequence[SplitSite]) -> list[SplitSite]:
        """The sites with the uses of their pieces; the position of a site is its number."""
        return [self._with_uses(split, site) for split, site in enumerate(sites)]

    def _with_uses(self, split: int, site: SplitSite) -> SplitSite:
        """The site of one split with the uses of its pieces, or of its sequence."""
        if split not in self._outputs:
            is_whole = split in self._used_whole
            return replace(site, taken=() if is_whole else tuple(self._taken.get(split, ())))
        names = self._outputs[split]
        unused = tuple(index for index, name in enumerate(names) if name not in self._used)
        nodes = tuple(self._recombined.get(split, ())) if len(names) == 2 else ()
        neighbours = tuple(self._neighbours[split])
        return replace(site, unused_outputs=unused, recombined_by=nodes, neighbours=neighbours)


def is_neighbour(node: Node) -> bool:
    """Whether a node counts as a neighbour of the splits next to it."""
    return not node.domain and node.op_type in NEIGHBOURS


def piece_values(split: int, node: Node, values: Sequence[Value]) -> list[Value]:
    """The outputs of a split node as its pieces, or as the sequence of them."""
    if node.op_type != "Split":
        return [replace(value, sequence=split) for value in values or [UNKNOWN]]
    outputs = zip(range(len(node.output)), chain(values, repeat(UNKNOWN)), strict=False)
    return [replace(value, origins=frozenset({Piece(split, index)})) for index, value in outputs]


def _position(context: InferenceContext) -> int | None:
    """The constant position of a SequenceAt; None for other nodes and computed positions."""
    if context.node.op_type != "SequenceAt" or context.node.domain:
        return None
    try:
        (position,) = context.items(1)
    except (ValueError, IndexError):
        return None
    return position if isinstance(position, int) else None
