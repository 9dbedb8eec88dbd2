"""What carrying out a split means: its bytes, and the time they take at a card's bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlsplit.cards import Card
from dmlsplit.geometry import SplitGeometry, descriptor_geometry
from dmlsplit.split import SplitOperatorDesc


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
    card : Card
        What the time is for.
    """

    place: str
    desc: SplitOperatorDesc
    geometry: SplitGeometry
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
    return Explanation(place, desc, descriptor_geometry(desc), card)


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
        "bytes_read": geometry.total_bytes,
        "bytes_written": geometry.total_bytes,
        "card": explanation.card.name,
        "bandwidth": explanation.card.bandwidth,
        "seconds": explanation.seconds,
    }
