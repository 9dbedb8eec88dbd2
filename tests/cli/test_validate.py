"""`validate`: files, folders, formats and targets. Most refusals are in tests/golden/cli."""

from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.support.command import save, status_and_verdicts
from tests.support.fixtures import Capsys
from tests.support.models import one_split

# Files.


def test_a_file_name_may_look_like_a_pattern(here: Path, capsys: Capsys) -> None:
    save("m[1].onnx", one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0))
    assert status_and_verdicts(capsys, "m[1].onnx") == (
        0,
        {"m[1].onnx:net/cut": "runs on DirectML"},
    )


# Dynamic models and targets.


def test_dim_sets_a_dynamic_size_and_an_unknown_name_is_reported(
    here: Path, capsys: Capsys
) -> None:
    save("m.onnx", one_split(TensorProto.INT64, ("batch", 6), sizes=(2, 4), axis=1))
    for dim in ("batch=3", "cut=3"):
        status = main(["validate", "m.onnx", "--dim", dim])
        assert status == (0 if dim == "batch=3" else 2)
    assert "no input of an .onnx model here has a dynamic dimension" in capsys.readouterr().err
    # Where there are several models, it may be for others.
    save("static.onnx", one_split(TensorProto.INT64, (3, 6), sizes=(2, 4), axis=1))
    for paths, status in (["m.onnx", "static.onnx"], 0), (["."], 0), (["static.onnx"], 2):
        capsys.readouterr()
        assert main(["validate", *paths, "--dim", "batch=3", "--dim", "cut=3"]) == status
        message = capsys.readouterr().err
        note = "note: --dim cut: no input of these models has a dynamic dimension of that name"
        fix = "Fix: give batch; declare sizes of other values in the model's value_info"
        assert (message == f"dmlsplit: {note}. {fix}\n") == (status == 0), message
    # What is refused for every size may have an equivalent for some.
    assert main(["validate", "m.onnx", "--feature-level", "1_0", "--allow", "equivalent"]) == 0


@pytest.mark.parametrize("text", ["batch", "=1", "batch=", "batch=-1", "batch=x", "batch=\u0661"])
def test_a_dim_that_is_not_a_name_and_a_size_is_refused(text: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "m.onnx", "--dim", text])
    assert "it must be NAME=N or INPUT.AXIS=N" in " ".join(capsys.readouterr().err.split())
