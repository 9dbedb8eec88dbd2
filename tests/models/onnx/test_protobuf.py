"""The reader's messages agree with onnx.proto."""

from dataclasses import fields, is_dataclass
from typing import Any

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor as F

from dmlsplit.models.onnx import protobuf as messages

# Messages whose names in onnx.proto differ by more than "Proto" at the end.
RENAMED = {
    messages.Entry: "StringStringEntryProto",
    messages.Dimension: "TensorShapeProto.Dimension",
    messages.TensorType: "TypeProto.Tensor",
    messages.Opset: "OperatorSetIdProto",
}
DECLARED = [value for value in vars(messages).values() if is_dataclass(value)]
PROTO = {message: f"{message.__name__}Proto" for message in DECLARED} | RENAMED
WIRE_TYPES = {F.TYPE_FLOAT: 5, F.TYPE_DOUBLE: 1, F.TYPE_MESSAGE: 2, F.TYPE_STRING: 2}
WIRE_TYPES |= {F.TYPE_BYTES: 2, F.TYPE_INT64: 0, F.TYPE_INT32: 0, F.TYPE_ENUM: 0}


def known_fields(message: type) -> Any:
    descriptor = onnx
    for part in PROTO[message].split("."):
        descriptor = getattr(descriptor, part)
    return descriptor.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("message", PROTO, ids=lambda message: message.__name__)
def test_fields_are_those_of_onnx_proto(message: type) -> None:
    onnx_fields = known_fields(message)
    for field in fields(message):
        encoding = field.metadata["encoding"]
        assert onnx_fields[field.name].number == encoding.number
        assert WIRE_TYPES[onnx_fields[field.name].type] in encoding.wire_types
        assert onnx_fields[field.name].is_repeated <= encoding.repeated
        assert PROTO.get(encoding.value_type) in (None, held(onnx_fields[field.name]))


def held(field: Any) -> str:
    """The message type of a field, without its package; empty if it does not hold a message."""
    return field.message_type.full_name.removeprefix("onnx.") if field.message_type else ""
