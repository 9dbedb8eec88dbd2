"""Paths of a command line: which files are read, and the report if one cannot be read."""

import errno
import os
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.frontends.onnx import FixedSizes
from dmlsplit.models.discovery import SKIPPED, option_site, scan_paths
from tests.support.command import ROOT, save
from tests.support.fixtures import Capsys, Patch
from tests.support.hangs import no_hang
from tests.support.models import one_split


def test_the_models_of_this_project_are_accepted() -> None:
    """The action checks the whole repository by default."""
    assert main(["validate", str(ROOT)]) == 0


def test_each_file_is_scanned_once_and_counted(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        onnx.save(one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0), tmp_path / name)
    progress: list[tuple[int, int]] = []
    paths = [str(tmp_path), str(tmp_path / "*.onnx"), str(tmp_path / "b.onnx")]
    file_scan = scan_paths(paths, lambda done, total: progress.append((done, total)))
    assert [Path(f.file).name for f in file_scan.sites] == ["a.onnx", "b.onnx"]
    assert len(progress) == 2
    assert progress[-1][0] == progress[-1][1] > 0
    # Of several models, not each needs to have a dimension.
    assert scan_paths(paths, dimensions=FixedSizes({"n": 2})).unused == (
        (
            "n",
            "remove it, as no input has a dynamic dimension; declare sizes of other values in the "
            "model's value_info",
        ),
    )


def test_a_scan_that_runs_out_of_memory_is_one_unreadable_file(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "a.onnx").write_bytes(b"x")

    def exhausted(path: str, *more: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dmlsplit.models.onnx.scanner.scan_declarations", exhausted)
    assert scan_paths([str(tmp_path)]).unreadable == ((str(tmp_path / "a.onnx"), "MemoryError"),)


def test_a_path_that_is_too_long_is_reported_once_as_unreadable() -> None:
    long = 300 * "a" + ".onnx"
    assert scan_paths([long]).unreadable == ((long, "File name too long"),)


def test_a_descriptor_given_by_options_may_break_rules() -> None:
    site = option_site("FLOAT32", (6, 2), 7, (2, 4))
    assert "DML-SPLIT-AXIS-RANGE" in dml.validate(site.state.descriptor).rule_ids


# Folders.


@pytest.fixture
def clone(here: Path) -> Path:
    """A project with models of its own, and others in hidden folders and virtual environments."""
    names = (
        "m.onnx", ".m.onnx", "sub/m.onnx", "sub/..data/m.onnx", ".git/m.onnx", ".venv/lib/m.onnx",
        ".venv/lib/deep/m.onnx", "env/lib/m.onnx", "sub/env/bin/m.onnx",
    )  # fmt: skip
    for name in names:
        save(name, one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0))
    for name in (".venv", "env", "sub/env"):
        Path(name, "pyvenv.cfg").touch()
    # Links may lead out of the folder, or in a circle.
    Path("sub/link.onnx").symlink_to("m.onnx")
    Path("sub/loop").symlink_to(here)
    Path(".git/ir.xml").write_text("<net></net>")
    Path(".git/config.xml").write_text(f"<config>{4096 * ' '}<net></net></config>")
    return here


def names(path: str, hidden: bool = False) -> tuple[list[str], int]:
    scan = scan_paths([path], include_hidden=hidden)
    return [Path(file).as_posix() for file in scan.files], scan.skipped_count


def test_hidden_folders_and_environments_are_skipped_and_counted(clone: Path) -> None:
    assert names(".") == (["m.onnx", "sub/m.onnx"], 8)
    assert names(str(clone))[1] == 8
    assert names("sub") == (["sub/m.onnx"], 2)
    assert len(names(".", hidden=True)[0]) == 10


NAMED = {
    ".venv": [".venv/lib/deep/m.onnx", ".venv/lib/m.onnx"],
    "env": ["env/lib/m.onnx"],
    "sub/../.venv/lib": ["sub/../.venv/lib/deep/m.onnx", "sub/../.venv/lib/m.onnx"],
    ".git/m.onnx": [".git/m.onnx"],
    ".m.onnx": [".m.onnx"],
    ".venv/**/m.onnx": [".venv/lib/deep/m.onnx", ".venv/lib/m.onnx"],
    "sub/..data": ["sub/..data/m.onnx"],
}


@pytest.mark.parametrize("path", NAMED)
def test_named_paths_are_never_skipped(path: str, clone: Path) -> None:
    assert names(path) == (NAMED[path], 0)


def test_one_note_gives_the_number_of_skipped_files(clone: Path, capsys: Capsys) -> None:
    reason = f"({SKIPPED})"
    note = f"dmlsplit: note: skipped 7 model files {reason}; name them, or give --hidden\n"
    Path(".git/ir.xml").rename("ir")
    for line, message in (
        (". sub", note),
        ("--hidden .", ""),
        (". .m.onnx .venv .git env sub/env sub/..data", ""),
    ):
        assert main(["validate", *line.split()]) == 0
        assert capsys.readouterr().err == message
    for name in ("m.onnx", "sub/m.onnx"):
        Path(name).unlink()
    assert main(["validate", "."]) == 2
    message = (
        f"no .onnx or .xml model found; skipped 7 {reason}. Fix: name them, or give --hidden\n"
    )
    assert capsys.readouterr().err == f"dmlsplit: error: .: {message}"


def test_a_pattern_follows_no_links_to_folders(clone: Path) -> None:
    Path("sub/here").symlink_to(".")
    Path("sub/there").symlink_to(".")
    with no_hang():
        assert names("**/m.onnx")[0] == [
            "env/lib/m.onnx",
            "m.onnx",
            "sub/env/bin/m.onnx",
            "sub/m.onnx",
        ]
        assert names("s*/**/m*")[0] == ["sub/env/bin/m.onnx", "sub/m.onnx"]
        assert names("**/**/link.onnx")[0] == ["sub/link.onnx"]


def test_a_folder_has_models_that_are_links_inside_of_it(clone: Path) -> None:
    """As in a cache of Hugging Face, where names are links to files without a suffix."""
    Path("blobs").mkdir()
    Path("sub/m.onnx").rename("blobs/abc")
    Path("sub/cached.onnx").symlink_to("../blobs/abc")
    assert names(".") == (["m.onnx", "sub/cached.onnx"], 8)
    ((_, problem),) = scan_paths(["sub"]).unreadable
    assert f"skipped 3 ({SKIPPED})" in problem
    assert names("sub/c*.onnx")[0] == ["sub/cached.onnx"]


@pytest.mark.parametrize("pattern", ["", "**/*.onnx"])
def test_a_folder_that_cannot_be_read_is_reported(
    tmp_path: Path, monkeypatch: Patch, pattern: str
) -> None:
    for name in ("open", "closed", ".hidden", ".hidden/closed"):
        (tmp_path / name).mkdir()
        onnx.save(
            one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0), tmp_path / name / "m.onnx"
        )
    honest = os.scandir

    def refusing(path: str) -> object:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return honest(path)

    monkeypatch.setattr(os, "scandir", refusing)
    result = scan_paths([str(tmp_path / pattern)])
    assert result.unreadable == ((str(tmp_path / "closed"), "Permission denied"),)
    assert [Path(file).parent.name for file in result.files if "open" in file] == ["open"]
