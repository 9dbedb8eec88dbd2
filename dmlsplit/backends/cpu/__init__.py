"""The CPU engine: copies in C where the library was built, else NumPy assignments.

engine.py chooses. native.py calls copy.c, which build.py compiles, with the tasks of plan.py on as
many threads as threads.py allows; assignments.py has the engine of NumPy.
"""

from typing import NoReturn

from dmlsplit.errors import InvalidArgumentError


def refuse_stream(stream: object) -> NoReturn:
    """Refuse the stream of a copy on the CPU."""
    raise InvalidArgumentError(
        f"stream is {stream!r:.60}; the CPU has no streams, so it must be None"
    )
