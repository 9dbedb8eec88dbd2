"""GPUs that a time can be estimated for without having one: peak bandwidth and size.

Source: NVIDIA's data sheet of each product; decimal gigabytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlsplit.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU product.

    Attributes
    ----------
    name : str
    bandwidth : int
        Peak memory bandwidth in bytes per second.
    multiprocessors : int
        Number of streaming multiprocessors.
    """

    name: str
    bandwidth: int
    multiprocessors: int


_GB = 10**9
CARDS = (
    Card("H200", 4800 * _GB, 132),
    Card("H100 SXM", 3350 * _GB, 132),
    Card("H100 PCIe", 2000 * _GB, 114),
    Card("A100 80GB SXM", 2039 * _GB, 108),
    Card("A100 80GB PCIe", 1935 * _GB, 108),
    Card("L40S", 864 * _GB, 142),
    Card("L4", 300 * _GB, 58),
    Card("T4", 320 * _GB, 40),
    Card("RTX 4090", 1008 * _GB, 128),
    Card("RTX 3090", 936 * _GB, 82),
)


def find_card(name: str) -> Card:
    """Return the card of that name; the beginning of a name will do.

    Raises
    ------
    InvalidArgumentError
        If no card is called that.
    """
    wanted = name.strip().upper().removeprefix("NVIDIA ").strip()
    for card in CARDS:
        if wanted and card.name.upper().startswith(wanted):
            return card
    raise InvalidArgumentError(
        f"card is {name!r}; it must be one of {', '.join(card.name for card in CARDS)}"
    )
