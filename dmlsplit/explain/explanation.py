"""What carrying out a split means: bytes, kernels, and the time at a card's bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from dmlsplit.backends.cuda.gpus import Card
from dmlsplit.backends.cuda.planner import Plan, plan
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT
from dmlsplit.geometry import SplitGeometry


@dataclass(frozen=True, slots=True)
class Explanation:
    """One split, carried out.

    Attributes
    ----------
    place : str
        Where the split is.
    desc : SplitOperatorDesc
        A valid descriptor.
    geometry : SplitGeometry
        The bytes that it moves.
    plan : Plan
        The kernel launches, for buffers at addresses that are multiples of 16.
    card : Card
        What the time is for.
    """

    place: str
    desc: SplitOperatorDesc
    geometry: SplitGeometry
    plan: Plan
    card: Card

    @property
    def bytes_moved(self) -> int:
        """Bytes read and bytes written."""
        return 2 * self.geometry.total_bytes

    @property
    def seconds(self) -> float:
        """Time for the bytes at the card's peak bandwidth: nothing can be faster."""
        return self.bytes_moved / self.card.bandwidth


def explain(place: str, desc: SplitOperatorDesc, card: Card) -> Explanation:
    """Explain a descriptor that has passed validation."""
    geometry = descriptor_geometry(desc)
    # Every binding is at least that aligned.
    aligned = MINIMUM_BUFFER_TENSOR_ALIGNMENT
    return Explanation(place, desc, geometry, plan(geometry, aligned, aligned, card.limits), card)
