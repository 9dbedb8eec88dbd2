"""Files that appear whole or not at all."""

import os
import threading
from pathlib import Path

import pytest

from dmlsplit.atomic import atomic_write, write_text


def test_a_temporary_file_takes_the_name_when_all_went_well(tmp_path: Path) -> None:
    path = tmp_path / "out.onnx"
    path.write_text("old")
    with atomic_write(path) as (temporary,):
        assert temporary.suffix == ".onnx"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_temporary_file_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")

    def interrupted() -> None:
        with atomic_write(path) as (temporary,):
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_temporary_file_is_as_readable_as_any_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_device_or_pipe_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is not a regular file"), atomic_write(pipe):
        pass
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    received: list[str] = []
    reader.start()
    write_text(pipe, "text")
    reader.join()
    assert received == ["text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["", "no/such/file"])
def test_where_nothing_can_be_written_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"no such folder|not a regular file"):
        write_text(tmp_path / name, "text")
    assert list(tmp_path.iterdir()) == []
