"""The CPU engine: copies in C where the library was built, else NumPy assignments."""

from typing import NoReturn

from dmlsplit.errors import InvalidArgumentError


def refuse_stream(stream: object) -> NoReturn:
    """Refuse the stream of a copy on the CPU."""
    raise InvalidArgumentError(
        f"stream is {stream!r:.60}; the CPU has no streams, so it must be None"
    )
