"""Paths of a command line: which files are read, and what happens if one cannot be."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.lint.discovery import ENDINGS, flag_site, scan_paths
from tests.support.command import save
from tests.support.models import single


def test_each_file_is_scanned_once_and_counted(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        onnx.save(single(TensorProto.FLOAT, (6,), (2, 4), 0), tmp_path / name)
    seen: list[tuple[int, int]] = []
    paths = [str(tmp_path), str(tmp_path / "*.onnx"), str(tmp_path / "b.onnx")]
    found = scan_paths(paths, ENDINGS, lambda done, total: seen.append((done, total)))
    assert [Path(f.file).name for f in found.sites] == ["a.onnx", "b.onnx"]
    assert len(seen) == 2
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_scan_that_runs_out_of_memory_is_one_unreadable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.onnx").write_bytes(b"x")

    def exhausted(path: str, *more: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dmlsplit.frontends.onnx.scan", exhausted)
    assert scan_paths([str(tmp_path)]).unreadable == ((str(tmp_path / "a.onnx"), "MemoryError"),)


def test_flags_keep_what_is_wrong_for_the_report() -> None:
    site = flag_site("FLOAT32", (6, 2), 7, (2, 4))
    assert "DML-SPLIT-AXIS-RANGE" in dml.validate(site.descriptors[0]).rule_ids


# Folders.


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with models of its own, and others in hidden folders and virtual environments."""
    monkeypatch.chdir(tmp_path)
    names = (
        "m.onnx", "sub/m.onnx", "sub/..data/m.onnx", ".git/m.onnx", ".venv/lib/m.onnx",
        ".venv/lib/deep/m.onnx", "env/lib/m.onnx", "sub/env/bin/m.onnx",
    )  # fmt: skip
    for name in names:
        save(name, single(TensorProto.FLOAT, (6, 4), (2, 4), 0))
    for name in (".venv", "env", "sub/env"):
        Path(name, "pyvenv.cfg").touch()
    Path(".git/ir.xml").write_text("<net></net>")
    Path(".git/config.xml").write_text("<config></config>")
    return tmp_path


def names(path: str) -> tuple[list[str], int]:
    scan = scan_paths([path])
    return [Path(file).as_posix() for file in scan.files], scan.left_out


def test_hidden_folders_and_environments_are_left_out_and_counted(clone: Path) -> None:
    assert names(".") == (["m.onnx", "sub/m.onnx"], 7)
    assert names(str(clone))[1] == 7
    assert names("sub") == (["sub/m.onnx"], 2)


@pytest.mark.parametrize(
    ("path", "found", "left_out"),
    [
        (".venv", [".venv/lib/deep/m.onnx", ".venv/lib/m.onnx"], 0),
        ("env", ["env/lib/m.onnx"], 0),
        ("sub/../.venv/lib", ["sub/../.venv/lib/deep/m.onnx", "sub/../.venv/lib/m.onnx"], 0),
        (".git/m.onnx", [".git/m.onnx"], 0),
        (".venv/**/m.onnx", [".venv/lib/deep/m.onnx", ".venv/lib/m.onnx"], 0),
        ("sub/..data", ["sub/..data/m.onnx"], 0),
    ],
)
def test_what_is_named_is_taken(path: str, found: list[str], left_out: int, clone: Path) -> None:
    assert names(path) == (found, left_out)


def test_left_out_files_are_told_in_one_note(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", ".", "sub"]) == 0
    assert capsys.readouterr().err == (
        "dmlsplit: note: 7 model files in hidden folders and virtual environments were left out; "
        "name a folder to judge those in it\n"
    )
    Path(".git/ir.xml").unlink()
    assert main(["validate", ".", ".venv", ".git", "env", "sub/env", "sub/..data"]) == 0
    assert capsys.readouterr().err == ""
    for name in ("m.onnx", "sub/m.onnx"):
        Path(name).unlink()
    capsys.readouterr()
    assert main(["validate", "."]) == 2
    assert capsys.readouterr().err == (
        "dmlsplit: error: .: no .onnx or .xml model found, but 6 in hidden folders and virtual "
        "environments. Fix: name those folders\n"
    )
