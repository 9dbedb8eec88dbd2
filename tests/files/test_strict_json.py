"""JSON with comments, read by stricter rules."""

import json
from pathlib import Path

import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.files.strict_json import parse_json, read_json
from tests.support.dxdispatch import EXAMPLE, model


def test_comments_and_trailing_commas_are_read_as_dxdispatch_does() -> None:
    plain = json.dumps(model(), indent=1).replace('"A"', '"A//b/*,]"')
    text = plain.replace('"Axis": 0,', '// the axis, "Axis": 1,\n"Axis": 0,')
    text = text.replace("]\n", ", /* end, ] of\n list */ ]\n")
    assert text.count("/* end") > 1
    assert parse_json(text) == json.loads(plain)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert set(read_json(path).value) == {"$schema", "resources", "dispatchables", "commands"}


def test_files_that_are_not_utf_8_or_larger_than_16_mib_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b'{"\xff": 1}')
    with pytest.raises(InvalidArgumentError, match="cannot be read as UTF-8"):
        read_json(path)
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidArgumentError, match="at most 16,777,216 are read"):
        read_json(path)
