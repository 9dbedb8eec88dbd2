"""Reads integer constants of an IR from the .bin file next to the .xml."""

import os
import struct
from math import prod
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.openvino.ir import MAX_RANK, Layer, checked_integer
from dmlsplit.frontends.site import Cause, NotKnownError
from dmlsplit.messages import counted

# The `struct` type for the attribute element_type of an integer Const.
_INTEGERS = dict(zip("i8 u8 i16 u16 i32 u32 i64 u64".split(), "bBhHiIqQ", strict=True))


def constant_shape(layer: Layer) -> tuple[int, ...]:
    """The shape of a Const, from its attribute or otherwise from its output."""
    text = layer.data.get("shape")
    if text is None:
        dims = layer.outputs[0].dims if layer.outputs else []
        if any(dim < 0 for dim in dims):
            raise InvalidArgumentError(f"Const {layer.name[:80]!r}: its shape is dynamic")
        return tuple(dims)
    parts = text.split(",", MAX_RANK) if text.strip() else []
    return tuple(checked_integer(f"Const {layer.name[:80]!r}: shape", part, 0) for part in parts)


def integers(layer: Layer, xml: Path) -> list[int]:
    """The values of an integer Const, as a flat list. Check its shape first: it may claim any.

    NotKnownError if the .bin file links out of its folder, OSError if it is not a file.
    """
    name = f"Const {layer.name[:80]!r}"
    precision = layer.outputs[0].precision if layer.outputs else ""
    element_type = layer.data.get("element_type", precision).lower()
    if element_type not in _INTEGERS:
        text = f"{name} has type {element_type[:20]!r}; it must be an integer type"
        raise InvalidArgumentError(text)
    code, count = _INTEGERS[element_type], prod(constant_shape(layer))
    width = struct.calcsize(f"<{code}")
    offset = checked_integer(f"{name}: offset", layer.data.get("offset", ""), 0)
    size = checked_integer(f"{name}: size", layer.data.get("size", ""), 0)
    if size != count * width:
        elements = f"{counted(count, 'element')} of type {element_type}"
        raise InvalidArgumentError(
            f"{name}: size is {size}; it must be {count * width}, for {elements}"
        )
    path = _weights(xml)
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(min(offset, length))
        raw = file.read(size)
    if len(raw) != size:
        raise InvalidArgumentError(
            f"{name}: bytes {offset} to {offset + size} are outside {path.name}, which has {length}"
        )
    return list(struct.unpack(f"<{count}{code}", raw))


def _weights(xml: Path) -> Path:
    path = xml.with_suffix(".bin")
    if not path.is_file():
        exists = os.path.lexists(path)
        what = "is not a regular file" if exists else "is missing; it belongs next to the .xml"
        raise OSError(f"the weights file {path.name} {what}")
    if path.resolve().parent != path.parent.resolve():
        why = f"{path.name} links out of its folder and is not followed"
        raise NotKnownError(why, Cause.WEIGHTS)
    return path
