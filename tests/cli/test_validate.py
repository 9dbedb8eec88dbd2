"""`validate`: files, folders, formats and targets. Most refusals are in tests/golden/cli."""

import json
from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.support.command import save, status_and_verdicts
from tests.support.dxdispatch import model
from tests.support.fixtures import Capsys
from tests.support.models import one_split


def test_a_split_that_a_level_rejects_gives_exit_status_1_and_the_rule(
    here: Path, capsys: Capsys
) -> None:
    save("model.onnx", one_split(TensorProto.INT64, (6,), sizes=(2, 4), axis=0))
    assert main(["validate", "model.onnx", "--feature-level", "4_1"]) == 0
    capsys.readouterr()
    assert main(["validate", "model.onnx", "--feature-level", "4_0"]) == 1
    assert "DML-LEVEL-DATA-TYPE" in capsys.readouterr().out


# Files.


def test_a_file_name_may_look_like_a_pattern(here: Path, capsys: Capsys) -> None:
    save("m[1].onnx", one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0))
    assert status_and_verdicts(capsys, "m[1].onnx") == (
        0,
        {"m[1].onnx:net/cut": "runs on DirectML"},
    )


# Dynamic models and targets.


@pytest.fixture
def dynamic_and_static(here: Path) -> None:
    """dynamic.onnx, of any size "batch", and static.onnx, of the size 3."""
    save("dynamic.onnx", one_split(TensorProto.INT64, ("batch", 6), sizes=(2, 4), axis=1))
    save("static.onnx", one_split(TensorProto.INT64, (3, 6), sizes=(2, 4), axis=1))


@pytest.mark.usefixtures("dynamic_and_static")
def test_dim_sets_a_dynamic_size() -> None:
    assert main(["validate", "dynamic.onnx", "--dim", "batch=3"]) == 0


@pytest.mark.usefixtures("dynamic_and_static")
@pytest.mark.parametrize(("model", "dim"), [("dynamic.onnx", "cut=3"), ("static.onnx", "batch=3")])
def test_a_dim_that_a_model_does_not_have_is_an_error(model: str, dim: str, capsys: Capsys) -> None:
    assert main(["validate", model, "--dim", dim]) == 2
    assert "no input of an .onnx model here has a dynamic dimension" in capsys.readouterr().err


@pytest.mark.usefixtures("dynamic_and_static")
@pytest.mark.parametrize("paths", [["dynamic.onnx", "static.onnx"], ["."]])
def test_a_dim_that_no_model_has_is_a_note_if_another_dim_is_used(
    paths: list[str], capsys: Capsys
) -> None:
    """Where there are several models, a name may be for others."""
    assert main(["validate", *paths, "--dim", "batch=3", "--dim", "cut=3"]) == 0
    assert capsys.readouterr().err == (
        "dmlsplit: note: --dim cut: no input of these models has a dynamic dimension of that name. "
        "Fix: give batch; declare sizes of other values in the model's value_info\n"
    )


@pytest.mark.usefixtures("dynamic_and_static")
def test_a_split_that_is_refused_for_every_size_may_have_an_equivalent_for_some() -> None:
    line = "validate dynamic.onnx --feature-level 1_0 --allow equivalent"
    assert main(line.split()) == 0


@pytest.mark.parametrize("text", ["batch", "=1", "batch=", "batch=-1", "batch=x", "batch=\u0661"])
def test_a_dim_that_is_not_a_name_and_a_size_is_refused(text: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "m.onnx", "--dim", text])
    assert "it must be NAME=N or INPUT.AXIS=N" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--ort 1.6", "--ort applies to ONNX models only; d.json is passed to DirectML unchanged"),
        ("--winml 19041", "--winml applies to ONNX models only"),
        ("--dim n=2", "--dim is n=2; it applies to ONNX models only. Fix: give sizes in the file"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "explain"])
def test_options_for_onnx_models_are_refused_for_other_files_alone(
    command: str, options: str, problem: str, here: Path, capsys: Capsys
) -> None:
    Path("d.json").write_text(json.dumps(model()))
    assert main([command, "d.json", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, problem in err) == ("", True)


def test_a_note_says_which_files_a_runtime_does_not_pass_to_directml(
    here: Path, capsys: Capsys
) -> None:
    Path("d.json").write_text(json.dumps(model()))
    save("m.onnx", one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0))
    assert main(["validate", "m.onnx", "d.json", "--ort", "--format", "json"]) == 0
    assert "other files, such as d.json, an application calls" in capsys.readouterr().err
