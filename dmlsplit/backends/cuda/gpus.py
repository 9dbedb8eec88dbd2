"""GPUs that a plan and a time can be given for without having one.

Source: NVIDIA's data sheets (bandwidth, decimal gigabytes; multiprocessors; L2) and the
CUDA C++ Programming Guide, "Technical specifications per compute capability" (the rest).
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlsplit.backends.cuda.nvml import CudaDevice, cuda_devices
from dmlsplit.backends.cuda.planner import H200, DeviceLimits
from dmlsplit.errors import InvalidArgumentError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU product.

    Attributes
    ----------
    name : str
    bandwidth : int
        Peak memory bandwidth in bytes per second.
    limits : DeviceLimits
        What the planner must know of it.
    """

    name: str
    bandwidth: int
    limits: DeviceLimits


_HOPPER, _AMPERE, _ADA, _TURING = (2048, 228), (2048, 164), (1536, 100), (1024, 64)
_GB = 10**9


def _card(
    name: str, gigabytes: int, multiprocessors: int, per_sm: tuple[int, int], l2_mib: int
) -> Card:
    threads, shared = per_sm
    limits = DeviceLimits(
        multiprocessors, threads, shared << 10, 48 << 10, l2_mib << 20, parameter_bytes=32764
    )
    return Card(name, gigabytes * _GB, limits)


CARDS = (
    Card("H200", 4800 * _GB, H200),
    _card("H100 SXM", 3350, 132, _HOPPER, 50),
    _card("H100 PCIe", 2000, 114, _HOPPER, 50),
    _card("A100-SXM4-80GB", 2039, 108, _AMPERE, 40),
    _card("A100-PCIE-80GB", 1935, 108, _AMPERE, 40),
    _card("L40S", 864, 142, _ADA, 96),
    _card("L4", 300, 58, _ADA, 48),
    _card("RTX 4090", 1008, 128, _ADA, 72),
    _card("T4", 320, 40, _TURING, 4),
)


def find_card(name: str) -> Card:
    """Return the card of that name; the beginning of a name will do.

    Raises
    ------
    InvalidArgumentError
        If no card is called that.
    """
    wanted = name.upper().replace("NVIDIA", "").replace("GEFORCE", "").strip()
    exact = [card for card in CARDS if card.name.upper() == wanted]
    begun = [card for card in CARDS if wanted and card.name.upper().startswith(wanted)]
    for card in (*exact, *begun):
        return card
    raise InvalidArgumentError(
        f"card is {name!r}; it must be one of {', '.join(card.name for card in CARDS)}"
    )


def this_card() -> Card:
    """Return the first CUDA device's card; an H200 where there is none."""
    try:
        present = cuda_devices()
    except UnsupportedError:
        present = []
    return card_of_device(present[0]) if present else CARDS[0]


def card_of_device(device: CudaDevice) -> Card:
    """Return the card that a device is; an unknown one plans like an H200 at its own bandwidth."""
    try:
        known = find_card(device.name)
    except InvalidArgumentError:
        known = CARDS[0]
    return Card(device.name, device.peak_bandwidth or known.bandwidth, known.limits)
