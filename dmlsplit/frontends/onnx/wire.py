"""A bounded walk over the protobuf wire format that copies nothing unasked.

Source: Protocol Buffers, "Encoding". A message is a sequence of fields, each a varint key
(number and wire type) and a value. Values of variable length are skipped in one step, so
that a message costs as much as its structure, not its payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from mmap import mmap
from typing import NamedTuple, TypeVar

VARINT, I64, LEN, I32 = 0, 1, 2, 5
_FIXED_BYTES = {I64: 8, I32: 4}
_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are not a protobuf message, or exceed a limit of the walk."""


class Span(NamedTuple):
    """A range of bytes of the buffer."""

    start: int
    end: int


NOWHERE = Span(0, 0)
Known = TypeVar("Known")


def field_key(number: int, wire_type: int) -> int:
    """Return the key that a field begins with."""
    return number << 3 | wire_type


class Wire:
    """A buffer with a budget of fields.

    Parameters
    ----------
    data
        The bytes.
    maximum_fields
        How many fields may be walked in all.
    """

    def __init__(self, data: bytes | mmap, maximum_fields: int) -> None:
        self.data = data
        self._limit = maximum_fields
        self._left = maximum_fields

    def fields(
        self, span: Span, known: Mapping[int, Known]
    ) -> Iterator[tuple[Known, int, int, Span]]:
        """Walk a message, and yield those of its fields whose keys are known.

        Each comes as what `known` has for its key, its wire type, and its value (VARINT) or
        the bytes of it.

        Raises
        ------
        WireError
            Where the bytes stop being a message, or the budget is spent.
        """
        data = self.data
        position, end = span
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise WireError(f"the graph has more than {self._limit} fields")
            start = position
            key = data[position]
            position += 1
            if key >= 0x80:  # Most numbers are one byte; the others are worth a call.
                key, position = self._varint(start, end)
            number, wire_type = key >> 3, key & 7
            if not 0 < number < 2**29:
                raise WireError(f"byte {start}: field number {number} does not exist")
            value, begin = 0, position
            if wire_type == VARINT:
                value, position = self._varint(position, end)
            elif wire_type == LEN:
                size, begin = self._varint(position, end)
                position = begin + size
            elif wire_type in _FIXED_BYTES:
                position += _FIXED_BYTES[wire_type]
            else:
                raise WireError(f"byte {start}: wire type {wire_type} is not in use")
            if position > end:
                raise WireError(
                    f"byte {start}: field {number} ends at byte {position}, after the end of its "
                    f"message at byte {end}"
                )
            if key in known:
                inside = NOWHERE if wire_type == VARINT else Span(begin, position)
                yield known[key], wire_type, value, inside

    def varints(self, span: Span, most: int) -> list[int]:
        """Return the first `most` numbers of a packed field, as unsigned 64-bit values."""
        position, end = span
        values: list[int] = []
        while position < end and len(values) < most:
            value, position = self._varint(position, end)
            values.append(value)
        return values

    def copy(self, span: Span, most: int) -> bytes:
        """Return a copy of a range of at most `most` bytes."""
        size = span.end - span.start
        if size > most:
            raise WireError(f"byte {span.start}: {size} bytes where at most {most} are read")
        return self.data[span.start : span.end]

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        if position < end and (value := self.data[position]) < 0x80:
            return value, position + 1
        value = 0
        chunk = self.data[position : min(position + _VARINT_BYTES, end)]
        for index, byte in enumerate(chunk):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
        what = "is cut off" if len(chunk) < _VARINT_BYTES else "has more than 10 bytes"
        raise WireError(f"byte {position}: a number {what}")


def signed(value: int) -> int:
    """Return the int64 that an unsigned 64-bit value encodes."""
    return value - 2**64 if value >= 2**63 else value
