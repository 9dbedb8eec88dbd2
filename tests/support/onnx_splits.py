"""ONNX's splits, lowered or refused."""

from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.frontends.onnx import ElementType, Lowering, lower, operator_version, read_arguments


def lowered(
    operator: str, opset: int, shape: tuple[int, ...], data_type: str = "FLOAT", **attributes: Any
) -> Lowering:
    arguments = read_arguments(operator_version(operator, opset), **attributes)
    return lower(arguments, ElementType[data_type], shape)


def refused(operator: str, opset: int, shape: tuple[int, ...], **attributes: Any) -> str:
    with pytest.raises(dml.InvalidArgumentError) as error:
        lowered(operator, opset, shape, **attributes)
    text = str(error.value)
    assert text.startswith(f"{operator_version(operator, opset)}: ")
    assert "\n" not in text
    return text
