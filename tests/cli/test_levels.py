"""`dmlsplit levels --format json`; tests/golden/cli has the tables for people."""

import json
from typing import Any

import pytest

from dmlsplit.cli import main
from dmlsplit.cli.levels import runtime_rows
from dmlsplit.directml.levels import support_table
from dmlsplit.lint.runtimes import runtime_table
from tests.support.fixtures import Capsys

Document = dict[str, Any]
# Sources in lint/runtimes.yaml. Two tests write out the values of some rows of this file and of one
# row of feature_levels.yaml, because a comparison with the parsed tables would not notice a value
# that is parsed wrongly.
COMPATIBILITY = "https://onnxruntime.ai/docs/reference/compatibility.html"
ONNX_VERSIONS = "https://learn.microsoft.com/windows/ai/windows-ml/onnx-versions"


@pytest.fixture
def document(capsys: Capsys) -> Document:
    """What the command prints."""
    assert main(["levels", "--format", "json"]) == 0
    printed: Document = json.loads(capsys.readouterr().out)
    assert printed["schema"] == 1
    return printed


def test_a_level_has_its_directml_its_windows_and_what_tensors_may_be(document: Document) -> None:
    level = next(record for record in document["levels"] if record["value"] == 0x3000)
    eight_types = ["FLOAT32", "FLOAT16", "UINT32", "UINT16", "UINT8", "INT32", "INT16", "INT8"]
    tensor = {"dimension_counts": [1, 8], "data_types": eight_types}
    assert level == {
        "name": "DML_FEATURE_LEVEL_3_0",
        "value": 0x3000,
        "directml": "1.4.0",
        "directml_is_public": True,
        "windows": {"build": 20348, "name": "Windows Server 2022"},
        "windows_basis": "inferred",
        "windows_source": "version history: NTDDI_WIN10_FE selects DML_TARGET_VERSION 0x3000",
        "input_tensor": tensor,
        "output_tensors": tensor,
        "source": "Tensor support row 3.0; feature-level history 3_0 (dimension maximum 5 to 8)",
    }


def test_each_level_is_listed_as_the_table_has_it(document: Document) -> None:
    for record, row in zip(document["levels"], support_table().values(), strict=True):
        assert record["name"] == f"DML_FEATURE_LEVEL_{row.level}"
        assert (record["directml"], record["directml_is_public"]) == (row.directml, row.is_public)
        ranks = [row.minimum_dimensions, row.maximum_dimensions]
        assert record["input_tensor"]["dimension_counts"] == ranks
        assert set(record["input_tensor"]["data_types"]) == {kind.name for kind in row.data_types}
        absent = [record[key] for key in ("windows", "windows_basis", "windows_source")]
        assert (absent == [None] * 3) == (row.windows is None)


def test_a_runtime_has_each_value_with_its_source(document: Document) -> None:
    release = next(record for record in document["onnxruntime"] if record["version"] == "1.11")
    assert release["opset"] == {"value": 16, "source": COMPATIBILITY}
    assert release["split_versions"]["value"] == [2, 11, 13]
    assert "BOOL DOUBLE FLOAT FLOAT16".split() == release["element_types"]["value"][:4]
    assert document["onnxruntime"][0]["directml"] == {"value": None, "source": "not found"}
    assert document["windows_ml"][0] == {
        "build": 18362,
        "opset": {"value": 8, "source": ONNX_VERSIONS},
        "ir": {"value": None, "source": "not found"},
    }
    package = document["windows_ml_packages"][0]
    assert (package["version"], package["onnxruntime"]) == ("1.8", "1.23")
    assert package["directml"]["value"] == "1.15.4"
    assert "no document says it" in package["directml"]["source"]


def test_the_runtimes_are_those_of_the_printed_table_and_releases_without_a_package(
    document: Document,
) -> None:
    names = [
        *(f"ONNX Runtime {r['version']}" for r in document["onnxruntime"] if r["has_package"]),
        *(f"Windows ML {build['build']}" for build in document["windows_ml"]),
        *(f"Windows ML {package['version']}" for package in document["windows_ml_packages"]),
    ]
    assert names == [name for name, *_ in runtime_rows()]
    versions = [record["version"] for record in document["onnxruntime"]]
    assert versions == list(map(str, runtime_table().onnxruntime))
