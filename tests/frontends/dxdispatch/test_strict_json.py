"""JSON with comments, read by stricter rules."""

import json
from pathlib import Path

import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import load, run, scan
from tests.support.dxdispatch import EXAMPLE, Run, model


def test_comments_and_trailing_commas_are_read_as_dxdispatch_does(ran: Run) -> None:
    text = json.dumps(model(), indent=1).replace(
        '"Axis": 0,', '// the axis, "Axis": 1,\n"Axis": 0,'
    )
    text = text.replace("]", ", /* end, ] of\n list */ ]").replace('"A"', '"A//b/*,]"')
    assert ran(text) == ["Resource 'B': 1, 2", "Resource 'C': 3", "Resource 'D': 4, 5, 6"]


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert len(load(path).resources) == 4


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
    for path, message in [
        (tmp_path, "is not a file"),
        (tmp_path / "none.json", "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        (tmp_path / "latin.json", "UTF-8"),
    ]:
        for read in (load, scan, run):
            with pytest.raises(InvalidArgumentError, match=message):
                read(path)
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidArgumentError, match="larger than 16 MiB"):
        load(huge)
