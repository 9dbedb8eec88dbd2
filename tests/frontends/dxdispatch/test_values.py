"""Initial values of resources."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch_models import F32, Run, model, printed_values, ramp, values, zeros

# Resources.


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (values(F32, [1, 2.5, -3]), "1, 2.5, -3"),
        (values(F32, ["nan", "INF", "-inf"]), "nan, inf, -inf"),
        (values(F32, [0.1, 1e10, 123456789]), "0.1, 1e+10, 1.23457e+08"),
        (values("FLOAT64", [0.1, 1e-300]), "0.1, 1e-300"),
        (values("DML_TENSOR_DATA_TYPE_INT8", [-128, 127]), "-128, 127"),
        (values("UINT64", [2**64 - 1]), str(2**64 - 1)),
        (zeros(3, "INT16"), "0, 0, 0"),
        (
            values(F32, ramp(4, 1, 2.5)),
            "1, 3.5, 6, 8.5",
        ),
        (
            values("UINT8", ramp(4, 250, 3)),
            "250, 253, 0, 3",
        ),
        (
            values("FLOAT16", ramp(3, 2048, 1)),
            "2048, 2048, 2048",
        ),
        (
            values("FLOAT16", ramp(3, -1, 0.5)),
            "-1, -0.5, 0",
        ),
        (
            values(F32, [7], sizeInBytes=12, initialValuesOffsetInBytes=4),
            "0",
        ),
    ],
)
def test_initial_values(ran: Run, resource: dict[str, Any], text: str) -> None:
    assert printed_values(ran, resource) == text


def test_float_sequences_add_up_in_their_own_precision(ran: Run, tmp_path: Path) -> None:
    resource = values(F32, ramp(1000, 0, 0.1))
    ran(model(resources={"X": resource}))
    found = run(tmp_path / "model.json", "cpu").resources["X"]
    value, expected = np.float32(0), []
    for _ in range(1000):
        expected.append(value)
        value = np.float32(value + np.float32(0.1))
    assert found.tobytes() == np.array(expected).tobytes()


def test_halves_are_rounded_toward_zero_as_dxdispatch_rounds_them(tmp_path: Path, ran: Run) -> None:
    numbers = [0.1, -0.1, 65504, 65530, 1e-8, 0.3333333, 1]
    ran(model(resources={"X": {"initialValuesDataType": "FLOAT16", "initialValues": numbers}}))
    bits = run(tmp_path / "model.json", "cpu").resources["X"].view("u2").tolist()
    assert bits == [0x2E66, 0xAE66, 0x7BFF, 0x7BFF, 0x0000, 0x3555, 0x3C00]


def test_a_list_of_types_is_bytes(ran: Run, tmp_path: Path) -> None:
    values = [
        {"name": "count", "type": "UINT32", "value": 6},
        {"type": "FLOAT32", "value": 2.5},
        {"type": "INT8", "value": -1},
    ]
    for resource in (
        {"initialValues": values},
        {"initialValuesDataType": "UNKNOWN", "initialValues": values},
    ):
        ran(model(resources={"X": resource}))
        found = run(tmp_path / "model.json", "cpu").resources["X"]
        assert found.tobytes() == struct.pack("<Ifb", 6, 2.5, -1)
