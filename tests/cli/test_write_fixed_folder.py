"""`validate FOLDER --write-fixed DIR`: each model that needs it, and the messages about each."""

import errno
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from dmlsplit.cli import main
from dmlsplit.lint.fix import rewrite
from dmlsplit.lint.report import FORMATS
from dmlsplit.models import discovery
from tests.support.command import ROOT, refused, save, status_and_verdicts
from tests.support.fixtures import Capsys, Patch
from tests.support.models import one_split, parsed

OLD = "--windows 19041"
FIXABLE = one_split(TensorProto.INT8, (6, 4), sizes=(2, 4), axis=0)
ACCEPTED = one_split(TensorProto.FLOAT, (1, 1, 6, 2), sizes=(2, 4), axis=2)
NOT_FIXABLE = one_split(TensorProto.INT64, (6, 4), sizes=(2, 4), axis=0)
WRITE = f"validate models {OLD} --write-fixed fixed/"


@pytest.fixture
def models(here: Path) -> Path:
    """A folder with models of every fate."""
    save("models/a.onnx", FIXABLE)
    save("models/deep/b.onnx", FIXABLE)
    save("models/fine.onnx", ACCEPTED)
    save("models/wide.onnx", NOT_FIXABLE)
    save("models/none.onnx", parsed("(float[6] x) => (float[6] y) { y = Relu (x) }"))
    return here


def written(folder: str = "fixed") -> list[str]:
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())


def model_lines(capsys: Capsys) -> list[str]:
    """The lines about the models."""
    text = capsys.readouterr().out.partition("\n\n")[0]
    return text.replace("\n      ", " ").replace("\n    ", " ").split("\n")


def test_each_model_that_needs_it_is_written_and_each_has_a_line(
    models: Path, capsys: Capsys
) -> None:
    assert main(WRITE.split()) == 1  # one split is still refused
    head, *lines = model_lines(capsys)
    assert head.startswith(
        "fixed/: 5 models: 2 written; 2 skipped, because nothing has to be replaced; 1 not "
        "fixable; outputs are equal bit for bit on 3 random inputs, compared in "
    )
    assert [" ".join(line.split()[:4]) for line in lines] == [
        "models/a.onnx: fixed/a.onnx: 1 split",
        "models/deep/b.onnx: fixed/deep/b.onnx: 1 split",
        "models/fine.onnx: skipped",
        "models/none.onnx: skipped",
        "models/wide.onnx: not fixable: net/cut:",
    ]
    assert "Cast would lose bits of INT64" in lines[4]
    assert written() == ["fixed/a.onnx", "fixed/deep/b.onnx"]
    assert status_and_verdicts(capsys, "fixed", *OLD.split())[0] == 0


def test_the_report_and_the_status_are_those_after_the_changes(
    models: Path, capsys: Capsys
) -> None:
    Path("models/wide.onnx").unlink()
    assert main([*WRITE.split(), "--verbose"]) == 0
    text = capsys.readouterr().out
    before, after = text.index("\n\nBefore:\n\nerror["), text.index("\n\nAfter:\n\nok runs")
    assert "--> models/a.onnx" in text[before:after]
    assert "--> fixed/a.onnx" in text[after:]
    assert "--> models/fine.onnx" in text[after:]


def test_the_command_that_a_report_advises_writes_the_models(models: Path, capsys: Capsys) -> None:
    assert main(["validate", "models", *OLD.split()]) == 1
    (command,) = (
        line.removeprefix("Fix: dmlsplit ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("Fix: ")
    )
    assert main(shlex.split(command)) == 1
    assert written() == ["fixed/a.onnx", "fixed/deep/b.onnx"]


def test_an_error_of_one_model_does_not_stop_the_others(
    models: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    honest = rewrite.write_fixed

    def failing(source: Path, *arguments: object, **options: object) -> object:
        if source.name == "a.onnx":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "fixed/a.onnx")
        return honest(source, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "write_fixed", failing)
    assert main(WRITE.split()) == 2
    head, first, *_ = model_lines(capsys)
    assert "1 written; 2 skipped, because nothing has to be replaced; 1 not fixable; 1 fai" in head
    assert first == "  models/a.onnx: failed: fixed/a.onnx: No space left on device"
    assert written() == ["fixed/deep/b.onnx"]


def test_weights_in_another_file_stay_beside_their_model(models: Path, capsys: Capsys) -> None:
    content = one_split(TensorProto.INT8, (6, 4), sizes=(2, 4), axis=0)
    content.graph.initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(content, "models/heavy.onnx", **options)
    assert main(WRITE.split()) == 1
    (line,) = (line for line in model_lines(capsys) if "heavy" in line)
    reason, _, command = line.partition(". Fix: rewrite the model: dmlsplit ")
    assert "not fixable: its weights are in other files, which must be in the folder" in reason
    assert written() == ["fixed/a.onnx", "fixed/deep/b.onnx"]
    assert main(shlex.split(command)) == 0
    assert Path("models/heavy.fixed.onnx").exists()


def test_a_folder_is_made_only_for_a_model_that_is_written(models: Path) -> None:
    for name in ("a.onnx", "deep/b.onnx"):
        (Path("models") / name).unlink()
    save("models/deep/wide.onnx", NOT_FIXABLE)
    assert main(WRITE.split()) == 1
    assert not Path("fixed").exists()


def test_only_onnx_models_are_rewritten(models: Path, capsys: Capsys) -> None:
    for name in ("cut.xml", "cut.bin"):
        shutil.copy(ROOT / "tests" / "data" / name, "models")
    assert main(WRITE.split()) == 1
    assert "  models/cut.xml: not fixable: only .onnx files are rewritten" in model_lines(capsys)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("models one --write-fixed fixed", "models/a.onnx and one/a.onnx would both be written as"),
        ("models --write-fixed old", "old/a.onnx: exists and is not replaced. Fix: add --overwr"),
        ("models --write-fixed models --overwrite", "models/a.onnx is an input. Fix: name another"),
        (
            "models --write-fixed file",
            "--write-fixed is 'file', a file; for several models, it must be a folder",
        ),
        (
            "models --write-fixed f.onnx",
            "'f.onnx', a file; for several models, it must be a folder",
        ),
        ("file.xml --write-fixed f.onnx", "it rewrites .onnx files only. Fix: omit it"),
    ],
)
def test_what_is_wrong_is_said_before_the_scan_and_nothing_is_written(
    line: str, message: str, models: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    for name in ("one/a.onnx", "old/a.onnx"):
        save(name, FIXABLE)
    Path("file").write_text("text")
    Path("file.xml").write_text("<net/>")
    before = written(".")
    monkeypatch.setattr(discovery, "scan_paths", None)
    assert message in refused(capsys, f"validate {line} {OLD}")
    assert written(".") == before


def test_overwrite_replaces_what_an_earlier_run_wrote(models: Path, capsys: Capsys) -> None:
    assert main(WRITE.split()) == 1
    Path("fixed/a.onnx").write_text("old")
    assert "Fix: add --overwrite" in refused(capsys, WRITE)
    assert main([*WRITE.split(), "--overwrite"]) == 1
    assert len(onnx.load("fixed/a.onnx").graph.node) > 2


def test_a_descriptor_given_by_options_has_no_model_to_write(here: Path, capsys: Capsys) -> None:
    line = "validate --data-type FLOAT32 --sizes 6 --axis 0 --split 2,4 --write-fixed"
    for output in ("f.onnx", "fixed"):
        assert "--write-fixed needs PATHs: .onnx files" in refused(capsys, f"{line} {output}")


def test_a_size_becomes_static_in_the_models_that_have_its_dimension(models: Path) -> None:
    save("models/batch.onnx", one_split(TensorProto.INT8, ("batch", 3, 4, 4), sizes=(1, 2), axis=1))
    assert main([*WRITE.split(), "--dim", "batch=2"]) == 1
    (graph_input,) = onnx.load("fixed/batch.onnx").graph.input
    assert graph_input.type.tensor_type.shape.dim[0].dim_value == 2
    assert Path("fixed/a.onnx").exists()


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "text"])
def test_every_format_reports_the_models_after_the_changes(
    form: str, models: Path, capsys: Capsys
) -> None:
    assert main([*WRITE.split(), "--format", form]) == 1
    report, messages = capsys.readouterr()
    assert "models/a.onnx" not in report
    assert "models/wide.onnx" in report
    assert "models/a.onnx: fixed/a.onnx: 1 split replaced" in messages
