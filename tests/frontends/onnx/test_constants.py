"""The elements of constants: the ways to store them, and files that are never opened."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_graphs import (
    INT64,
    Scanned,
    field,
    model,
    node,
    sizes,
    typed,
    value,
    varint,
)


@pytest.mark.parametrize(
    ("source", "initializers", "nodes"),
    [
        ("raw initializer", (sizes("s", 2, 4),), []),
        ("int64_data", (typed("s", [2, 4], int64_data=[2, 4]),), []),
        ("Constant", (), [node("Constant", "", "s", value=sizes("", 2, 4))]),
        ("Constant value_ints", (), [node("Constant", "", "s", value_ints=[2, 4])]),
        ("Identity", (sizes("r", 2, 4),), [node("Identity", "r", "s")]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_lengths_are_read_from_initializers_and_constants(
    scanned: Scanned, source: str, initializers: tuple[Any, ...], nodes: list[Any]
) -> None:
    nodes = [*nodes, node("Split", "x s", "a b")]
    (found,) = scanned(model(nodes, [value("x", [6])], initializers=initializers))
    assert found.state.descriptor.split_sizes == (2, 4)


def test_lengths_of_split_1_are_floats(scanned: Scanned) -> None:
    for kind in (np.float16, np.float32, np.float64):
        array = np.array([2, 4], kind)
        data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = numpy_helper.from_array(array, "s")
        plain = helper.make_tensor("s", data_type, [2], array.tolist())
        cut, given = node("Split", "x s", "a b", axis=0), value("x", [6], data_type)
        for tensor in (raw, plain):
            (found,) = scanned(model([cut], [given], initializers=(tensor,), opsets={"": 1}))
            assert found.state.descriptor.split_sizes == (2, 4)


@pytest.mark.parametrize("location", ["weights.bin", "/etc/passwd", "../w", "C:\\w", "..\\w"])
def test_external_lengths_are_never_opened(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    tensor = TensorProto(name="s", data_type=INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value="-1")
    tensor.external_data.add(key="length", value=str(2**70))
    opened: list[str] = []
    original = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a, **k: (opened.append(path), original(path, *a))[1]
    )
    content = model([node("Split", "x s", "a b")], [value("x", [6])], initializers=(tensor,))
    (found,) = scanned(content)
    assert [Path(path).name for path in opened if "pytest" in str(path)] == ["model.onnx"]
    assert found.state.reason == "split is in external data, which is not opened"


def test_a_list_of_absurdly_many_sizes_is_not_read(scanned: Scanned) -> None:
    for content in ([0] * 65_537, varint(0) * 65_537):
        cut = node("Split", "x", "a b")
        if isinstance(content, bytes):  # Packed, as other writers do.
            cut.attribute.add().ParseFromString(field(1, b"split") + field(8, content))
        else:
            cut.attribute.append(helper.make_attribute("split", content))
        (found,) = scanned(model([cut], [value("x", [6])], opsets={"": 11}))
        assert "it must be an integer or a list of at most 65536" in found.state.problem
