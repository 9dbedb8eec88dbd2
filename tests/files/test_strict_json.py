"""JSON with comments, read by stricter rules."""

import json
from pathlib import Path

import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import load, run
from tests.support.dxdispatch import EXAMPLE, model


def test_comments_and_trailing_commas_are_read_as_dxdispatch_does(
    tmp_path: Path,
) -> None:
    text = json.dumps(model(), indent=1).replace(
        '"Axis": 0,', '// the axis, "Axis": 1,\n"Axis": 0,'
    )
    text = text.replace("]", ", /* end, ] of\n list */ ]").replace('"A"', '"A//b/*,]"')
    path = tmp_path / "model.json"
    path.write_text(text)
    assert list(run(path, "cpu").lines) == [
        "Resource 'B': 1, 2",
        "Resource 'C': 3",
        "Resource 'D': 4, 5, 6",
    ]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert len(load(path).resources) == 4


def test_files_that_are_not_utf_8_or_larger_than_16_mib_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b'{"\xff": 1}')
    with pytest.raises(InvalidArgumentError, match="cannot be read as UTF-8"):
        load(path)
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidArgumentError, match="larger than 16 MiB"):
        load(path)
