"""What carrying out a split means: bytes, kernels, and the time at a card's bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlsplit.backends.planning import Plan, plan
from dmlsplit.cards import Card
from dmlsplit.geometry import SplitGeometry, descriptor_geometry
from dmlsplit.split import SplitOperatorDesc
from dmlsplit.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT


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


def explanation_record(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation, ready for JSON."""
    geometry = explanation.geometry
    rows = geometry.row_split
    return {
        "place": explanation.place,
        "descriptor": str(explanation.desc),
        "row_split": rows
        and {
            "rows": rows.rows,
            "pitch": rows.pitch,
            "offsets": list(rows.offsets),
            "widths": list(rows.widths),
        },
        "pieces": [
            {
                "shape": list(piece.shape),
                "source_strides": list(piece.source_strides),
                "target_strides": list(piece.target_strides),
                "source_offset": piece.source_offset,
                "run_bytes": piece.run_bytes,
            }
            for piece in geometry.pieces
        ],
        "launches": [
            {
                "kernel": launch.kernel,
                "reason": launch.reason,
                "outputs": list(launch.outputs),
                "grid": launch.grid,
                "block": launch.block,
                "shared_bytes": launch.shared_bytes,
                "resident_blocks": launch.resident,
                "bytes_in_flight": launch.bytes_in_flight,
                "total_bytes": launch.total_bytes,
            }
            for launch in explanation.plan.launches
        ],
        "bytes_read": geometry.total_bytes,
        "bytes_written": geometry.total_bytes,
        "card": explanation.card.name,
        "bandwidth": explanation.card.bandwidth,
        "seconds": explanation.seconds,
    }
