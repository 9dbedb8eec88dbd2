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


def test_a_model_that_breaks_a_rule_keeps_its_report(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    tensor = '{"DataType": "FLOAT32", "Sizes": [4]}'
    desc = f'{{"InputTensor": {tensor}, "OutputTensors": [{tensor}], "Axis": 1}}'
    path.write_text(
        f'{{"resources": {{}}, "dispatchables": {{"cut": {{"type": "SPLIT", "desc": {desc}}}}}, '
        '"commands": []}'
    )
    with pytest.raises(InvalidArgumentError, match=r"model\.json: dispatchables\.cut: ") as error:
        dxdispatch.run(path, "cpu")
    assert error.value.report is not None
    assert error.value.message.startswith("dispatchables.cut: ")
