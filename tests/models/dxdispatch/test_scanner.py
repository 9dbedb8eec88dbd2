"""The Splits of DxDispatch models and descriptor files."""

import json
from pathlib import Path

import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends import Known
from dmlsplit.frontends.dxdispatch import read_descriptor, scan
from tests.support.dxdispatch import model, split_desc, tensor


def test_scan_finds_every_split_and_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    dispatchables = {
        "join": {"type": "DML_OPERATOR_JOIN"},
        "bad": {"type": "SPLIT", "desc": split_desc(OutputCount=2)},
        "silent": {
            "type": "SPLIT",
            "desc": {"InputTensor": tensor([2]), "OutputTensors": [tensor([2])], "Axis": 0},
        },
    }
    path.write_text(json.dumps(model(dispatchables=dispatchables)))
    cut, bad, silent = scan(path)
    assert (cut.file, cut.graph, cut.node, cut.index) == (str(path), "dispatchables", "cut", 0)
    assert cut.operator == "DML_OPERATOR_SPLIT"
    assert cut.state == Known(read_descriptor(split_desc()))
    assert (bad.node, bad.index) == ("bad", 2)
    assert "OutputCount is 2; it must be 3" in bad.state.problem
    assert silent.warnings == ("OutputCount is missing; dxdispatch.exe requires it",)


def test_scan_reads_a_file_that_is_only_a_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "descriptor.json"
    for content in (split_desc(), {"type": "DML_OPERATOR_SPLIT", "desc": split_desc()}):
        path.write_text(json.dumps(content))
        (site,) = scan(path)
        assert site.state == Known(read_descriptor(split_desc()))
    path.write_text('{"type": "JOIN", "desc": {}}')
    assert "is 'JOIN'" in scan(path)[0].state.problem
    path.write_text('{"some": "thing"}')
    with pytest.raises(InvalidArgumentError, match="is neither a DxDispatch model"):
        scan(path)
