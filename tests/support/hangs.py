"""A bound on the work of a call, which finds what never ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

# No measure of speed: what is bounded takes at most a second where nothing else runs, and the same
# work without its bound takes minutes.
HANG_SECONDS = 10


@contextmanager
def no_hang() -> Iterator[None]:
    """Fail if the block takes more time of the processor than any slow machine needs."""
    start = time.process_time()
    try:
        yield
    finally:
        assert time.process_time() - start < HANG_SECONDS
