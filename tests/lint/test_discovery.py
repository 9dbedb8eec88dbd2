"""Paths of a command line: which files are read, and what happens if one cannot be."""

import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

import dmlsplit as dml
from dmlsplit.errors import about, one_line
from dmlsplit.lint.discovery import ENDINGS, flag_site, scan_file, scan_paths
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


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dmlsplit.frontends.onnx", None)
    with pytest.raises(dml.UnsupportedError, match=r"\.onnx files need the package"):
        scan_file(str(tmp_path / "a.onnx"))


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


def of_a_file(message: str) -> dml.InvalidArgumentError:
    """An error about m.onnx."""
    with pytest.raises(dml.InvalidArgumentError) as caught, about("m.onnx"):
        raise dml.InvalidArgumentError(message)
    return caught.value


@pytest.mark.parametrize(
    ("error", "text", "path"),
    [
        (ValueError("a\n  b"), "a b", ""),
        (of_a_file("is\nbad"), "is bad", "m.onnx: "),
        (dml.InvalidArgumentError("is bad"), "is bad", ""),
        (FileNotFoundError(2, "No such file", "m.onnx"), "No such file", "m.onnx: "),
        (RecursionError("maximum recursion depth exceeded"), "is nested too deeply", ""),
        (ValueError(), "ValueError", ""),
        (MemoryError(), "MemoryError", ""),
    ],
)
def test_an_error_is_one_line_with_or_without_its_file(
    error: Exception, text: str, path: str
) -> None:
    assert one_line(error, with_path=False) == text
    assert one_line(error) == path + text
