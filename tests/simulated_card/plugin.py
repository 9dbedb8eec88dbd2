"""A plugin of pytest: the session runs on the simulated card (``-p simulated_card.plugin``).

``CARD_MEMORY`` sets the memory of each device, in bytes; ``CARD_OTHERS_FIRST`` lets the work of
other streams run as early, not as late, as is legal; ``CARD_EXACT`` gives every array an
allocation of its own, so that a byte beyond an array is found.
"""

from __future__ import annotations

import os

from simulated_card import card

card.load()
for device in range(2):
    card.set_memory_limit(device, int(os.environ.get("CARD_MEMORY", 2 << 30)))
card.run_others_first(bool(os.environ.get("CARD_OTHERS_FIRST")))
if os.environ.get("CARD_EXACT"):
    import cupy

    cupy.cuda.set_allocator(None)
