"""Files that appear complete or not at all."""

import errno
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.files.atomic import atomic_write, write_text
from tests.support.command import ran


def test_a_file_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    path.write_text("old")
    with atomic_write(path) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.startswith(".dmlsplit-")
        assert temporary.suffix == ".onnx"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_longest_names_are_written(tmp_path: Path) -> None:
    for name in ("a" * 255, "x." + "y" * 253):
        write_text(tmp_path / name, "text")
        assert (tmp_path / name).read_text() == "text"


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def interrupted() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_to_a_link_writes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_device_or_pipe_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is not a regular file"), atomic_write(pipe):
        pass
    reader = threading.Thread(target=lambda: pipe_texts.append(pipe.read_text()))
    pipe_texts: list[str] = []
    reader.start()
    write_text(pipe, "text")
    reader.join()
    assert pipe_texts == ["text"]
    assert pipe.is_fifo()


def test_a_writer_that_is_killed_leaves_only_a_hidden_draft(tmp_path: Path) -> None:
    (tmp_path / "out.npy").write_bytes(b"old")
    program = """
import os, signal
from pathlib import Path
from dmlsplit.files.atomic import atomic_write
with atomic_write(Path("out.npy")) as draft:
    draft.write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert ran(sys.executable, "-c", program, cwd=tmp_path).returncode == -9
    assert (tmp_path / "out.npy").read_bytes() == b"old"
    first_draft, _ = sorted(tmp_path.iterdir())
    assert first_draft.name.startswith(".dmlsplit-")
    with atomic_write(tmp_path / "out.npy") as draft:
        assert draft != first_draft
        draft.write_bytes(b"new")
    assert (tmp_path / "out.npy").read_bytes() == b"new"


def test_of_two_writers_of_a_file_each_has_a_draft_and_the_last_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with atomic_write(path) as first:
        first.write_text("first")
        with atomic_write(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised = []

    def sync(number: int) -> None:
        synchronised.append((os.fstat(number).st_size, (tmp_path / "out").exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write_text(tmp_path / "out", "text")
    assert synchronised == [(4, False)]


def test_errors_name_the_file_and_not_its_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="Input/output") as error:
                write_text(tmp_path / "out", "text")
        assert error.value.filename == str(tmp_path / "out")
        assert list(tmp_path.iterdir()) == []


def test_text_is_utf_8_and_its_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "é")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "a").read_bytes() == "é".encode()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
