"""Text for people: escapes, short lists, lines that fit."""

import pytest

from dmlsplit.messages import counted, printable, shown, wrapped


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("net/Split_3 ü", "net/Split_3 ü"),
        ("a\nb\x1b[31m", r"a\nb\x1b[31m"),
        ("\u202e", r"\u202e"),  # turns text around
        ("", ""),
    ],
)
def test_characters_that_control_a_terminal_are_escaped(text: str, safe: str) -> None:
    assert printable(text) == safe


@pytest.mark.parametrize(("number", "text"), [(0, "0 splits"), (1, "1 split"), (2, "2 splits")])
def test_a_number_of_things_is_one_or_many(number: int, text: str) -> None:
    assert counted(number, "split") == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "[]"),
        ((1, 2), "[1, 2]"),
        (range(16), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]"),
        (range(41), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ...] (41 values)"),
    ],
)
def test_a_long_list_is_cut_and_counted(values: range, text: str) -> None:
    assert shown(values) == text


def test_lines_fit_a_terminal_and_later_ones_are_indented() -> None:
    lines = wrapped("word " * 40, "  ").splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert len(lines[0]) > 70
    assert lines[0].startswith("  word")
    assert {line[:10] for line in lines[1:]} == {"      word"}


def test_paths_are_not_broken() -> None:
    path = "models/" + "a-" * 50
    assert wrapped(f"at {path} now", "").splitlines() == ["at", f"    {path}", "    now"]


def test_a_command_with_a_quoted_argument_is_not_broken() -> None:
    command = """python -c "import onnx; onnx.load('a b.onnx')\""""
    assert f"word\n    {command} or" in wrapped(f"{'word ' * 15}{command} or", "")
