"""Every front end names the file of an error in a field, separate from the message."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends import dxdispatch, onnx, openvino

READERS = [onnx.scan, openvino.scan, dxdispatch.scan, dxdispatch.load, dxdispatch.run]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("content", [None, b"", b"\0no model"], ids=["missing", "empty", "noise"])
def test_the_path_is_a_field_of_the_error(
    read: Callable[[Any], Any], content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgumentError) as error:
        read(path)
    assert error.value.path == str(path)
    assert str(path) not in error.value.message
    assert str(error.value) == f"{path}: {error.value.message}"
