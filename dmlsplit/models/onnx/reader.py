"""A bounded reader of protobuf messages, which copies no payload unless asked.

Source: Protocol Buffers, "Encoding". A message is a sequence of fields, each a varint key
(number and wire type) and a value. A payload is skipped in one step, whatever its size.

A message is declared as a frozen dataclass with fields by `single` and `repeated`; others are
skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from mmap import mmap
from typing import Any, NamedTuple, TypeVar

from dmlsplit.models.limits import (
    COMPUTED_PER_BYTE,
    MAX_COMPUTED,
    MAX_NAME_BYTES,
    MAX_STRING_BYTES,
    MAX_VALUES,
    MIN_COMPUTED,
)

# The wire types of protobuf that fields may have.
VARINT = 0  # an integer, in 1 to 10 bytes
I64 = 1  # 8 bytes
LEN = 2  # a length, and that number of bytes
I32 = 5  # 4 bytes
_FIXED_BYTES = {I64: 8, I32: 4}
_VARINT_BYTES = 10


class WireError(ValueError):
    """The bytes are not a protobuf message, or exceed a limit of this reader."""


class LimitError(WireError):
    """The bytes exceed a limit of dmlsplit, which the text names; they may be right."""


class Span(NamedTuple):
    """A range of bytes of the file."""

    start: int
    end: int


_Entry = TypeVar("_Entry")
_Message = TypeVar("_Message")
# The type that a field is read as: `int`; `bytes` for the first MAX_STRING_BYTES; `Span` for
# unread bytes; a dataclass for a message; else a function of the text.
_Type = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a field of a message, and the type that it is read as."""

    number: int
    value_type: _Type
    repeated: bool
    wire_types: tuple[int, ...]


def single(
    number: int, value_type: _Type, default: Any = None, wire_type: int | None = None
) -> Any:
    """Declare a field that occurs at most once."""
    usual = VARINT if value_type is int else LEN
    encoding = Encoding(number, value_type, repeated=False, wire_types=(wire_type or usual,))
    return field(default=default, metadata={"encoding": encoding})


def repeated(number: int, value_type: _Type, wire_type: int | None = None) -> Any:
    """Declare a repeated field. One of numbers, of this wire type, may also be packed."""
    unpacked = VARINT if value_type is int else wire_type
    wire_types = (LEN,) if unpacked is None else (unpacked, LEN)
    encoding = Encoding(number, value_type, repeated=True, wire_types=wire_types)
    return field(default=(), metadata={"encoding": encoding})


class Reader:
    """A file, and how much of it may still be read. A `WireError` says what is wrong, and where."""

    def __init__(self, data: bytes | mmap, maximum_fields: int) -> None:
        self._data = data
        self._limit = maximum_fields
        self._left = maximum_fields
        self._computed_limit = min(MAX_COMPUTED, MIN_COMPUTED + COMPUTED_PER_BYTE * len(data))
        self._elements_left = self._computed_limit

    def charge_elements(self, count: int) -> None:
        """Count elements to be computed; a ValueError if there are too many in all."""
        self._elements_left -= count
        if self._elements_left < 0:
            raise LimitError(
                f"more than {self._computed_limit:,} computed values, the limit for its file size"
            )

    def read(self, message: type[_Message], span: Span) -> _Message:
        """Read the fields that a message declares."""
        members: dict[str, Any] = {}
        encodings = _encodings(message)  # type: ignore[arg-type]
        for (name, encoding), payload in self._fields(span, encodings):
            if not encoding.repeated:
                members[name] = self._value(encoding.value_type, payload)
                continue
            entries = members.setdefault(name, [])
            if encoding.value_type is int:
                self.add_numbers(entries, payload)
            else:
                entries.append(self._value(encoding.value_type, payload))
        return message(**{k: tuple(v) if isinstance(v, list) else v for k, v in members.items()})

    def add_numbers(self, numbers: list[int], span: Span) -> None:
        """Add the integers in a range to a list of at most MAX_VALUES, and one that exceeds it."""
        position, end = span
        while position < end and len(numbers) <= MAX_VALUES:
            value, position = self._varint(position, end)
            numbers.append(_signed(value))

    def copy(self, span: Span, limit: int) -> bytes:
        """A copy of a range of at most `limit` bytes."""
        size = span.end - span.start
        if size > limit:
            raise LimitError(f"byte {span.start}: {size} bytes where at most {limit} are read")
        return self._data[span.start : span.end]

    def _value(self, value_type: _Type, payload: Span) -> Any:
        """The value of a field of this type, whose bytes are at `payload`."""
        if value_type is int:
            return _signed(self._varint(*payload)[0])
        if value_type is Span:
            return payload
        if value_type is bytes:
            return self._data[payload.start : min(payload.end, payload.start + MAX_STRING_BYTES)]
        if is_dataclass(value_type):
            return self.read(value_type, payload)
        text = self.copy(payload, MAX_NAME_BYTES)
        return value_type(text.decode("utf-8", "backslashreplace"))

    def _fields(self, span: Span, entries: Mapping[int, _Entry]) -> Iterator[tuple[_Entry, Span]]:
        """For each key in `entries`: its entry, and the bytes of the value."""
        data = self._data
        position, end = span
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise LimitError(
                    f"the graph has more than {self._limit:,} fields, the limit for its file size"
                )
            start = position
            key = data[position]
            position += 1
            # Most keys are one byte, so that this saves a call for most fields.
            if key >= 0x80:
                key, position = self._varint(start, end)
            number = key >> 3
            wire_type = key & 7
            if not 0 < number < 2**29:
                raise WireError(f"byte {start}: field number {number} does not exist")
            begin = position
            if wire_type == VARINT:
                _, position = self._varint(position, end)
            elif wire_type == LEN:
                size, begin = self._varint(position, end)
                position = begin + size
            elif wire_type in _FIXED_BYTES:
                position += _FIXED_BYTES[wire_type]
            else:
                raise WireError(f"byte {start}: wire type {wire_type} is invalid")
            if position > end:
                raise WireError(
                    f"byte {start}: field {number} ends at byte {position}, after the end of its "
                    f"message at byte {end}"
                )
            if key in entries:
                yield entries[key], Span(begin, position)

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """A number of variable length, and the position after it."""
        if position < end and (value := self._data[position]) < 0x80:
            return value, position + 1
        value = 0
        chunk = self._data[position : min(position + _VARINT_BYTES, end)]
        for index, byte in enumerate(chunk):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, position + index + 1
        problem = "is cut off" if len(chunk) < _VARINT_BYTES else "has more than 10 bytes"
        raise WireError(f"byte {position}: a number {problem}")


def _signed(value: int) -> int:
    """An unsigned 64-bit number as a signed one, in two's complement."""
    return value - 2**64 if value >= 2**63 else value


@cache
def _encodings(message: type) -> dict[int, tuple[str, Encoding]]:
    """Name and encoding of each declared field, by key."""
    return {
        encoding.number << 3 | wire_type: (member.name, encoding)
        for member in fields(message)
        if (encoding := member.metadata.get("encoding"))
        for wire_type in encoding.wire_types
    }
