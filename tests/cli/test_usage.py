"""Options that are abbreviated or repeated, and words that are nearly right."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.cli import build_parser, main
from dmlsplit.directml.levels import NEWEST
from tests.golden.commands import transcript
from tests.support.command import every_parser
from tests.support.fixtures import Capsys

PARSERS = {parser.prog: parser for parser in every_parser(build_parser())}


def usage_error(capsys: Capsys, line: str) -> str:
    """The first line of the error for wrong usage."""
    with pytest.raises(SystemExit) as end:
        raise SystemExit(main(shlex.split(line)))
    assert end.value.code == 2
    return capsys.readouterr().err.splitlines()[0].removeprefix("dmlsplit: error: ")


@pytest.mark.parametrize("command", ["", "validate"])
def test_help_and_the_option_print_the_same(command: str) -> None:
    _, _, by_word = transcript(f"help {command}", main).partition("\n")
    assert by_word == transcript(f"{command} --help", main).partition("\n")[2]
    assert by_word.startswith("> usage: dmlsplit ")


def test_without_a_command_the_help_is_an_error() -> None:
    *lines, status = transcript("", main).splitlines()[1:]
    assert status == "= 2"
    *help_lines, _ = transcript("--help", main).splitlines()[1:]
    assert lines == [line.replace(">", "!", 1) for line in help_lines]


@pytest.mark.parametrize("name", PARSERS)
def test_no_command_takes_an_abbreviated_option(name: str, capsys: Capsys) -> None:
    options = [text for text in PARSERS[name]._option_string_actions if text.startswith("--")]
    for option in options:
        short = option[:-1]
        if short in options or name == "dmlsplit":
            continue
        command = name.removeprefix("dmlsplit ")
        positional = {"run": "IN.npy"}.get(command, "")
        text = usage_error(capsys, f"{command} {positional} {short}")
        assert text == f"{name} does not accept {short}. Did you mean {option}?"


@pytest.mark.parametrize("name", PARSERS)
def test_an_option_is_repeatable_or_given_once(name: str, capsys: Capsys) -> None:
    command = name.removeprefix("dmlsplit").strip()
    for action in PARSERS[name]._actions:
        option = next(reversed(action.option_strings), "")
        if option in ("", "--help", "--version") or option in ("--dim", "--fail-on", "--allow"):
            continue
        first_value, second_value = "", ""
        if action.nargs != 0:
            first_value, second_value = list(map(str, action.choices or (1, 2)))[:2]
        positional = {"run": "IN.npy"}.get(command, "")
        text = usage_error(
            capsys, f"{command} {positional} {option} {first_value} {option} {second_value}"
        )
        both_values = (
            f": {float(first_value) if action.dest == 'seconds' else first_value} and "
            if first_value
            else ""
        )
        assert text.startswith(f"{option} is given twice{both_values}"), text
        assert text.endswith("Fix: give it once")


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("validat m.onnx", "selftest. Did you mean validate?"),
        ("lint m.onnx", "devices, selftest"),
        ("levels --format jsn", "text, json. Did you mean json?"),
        ("validate m.onnx --format sarfi", ". Did you mean sarif?"),
        ("validate m.onnx --feature-level 2", f"{NEWEST}. Did you mean 2_0?"),
        ("validate m.onnx --feature-level 41", f"{NEWEST}. Did you mean 4_1?"),
        ("validate m.onnx --feature-level 9_9", f", {NEWEST}"),
        ("explain DML-SPLIT-AXIS-RANG", "a file. Did you mean DML-SPLIT-AXIS-RANGE?"),
        ("validate m.onnx --windws 19041", "--windws 19041. Did you mean --windows?"),
    ],
)
def test_a_word_that_is_nearly_right_is_named(line: str, end: str, capsys: Capsys) -> None:
    assert usage_error(capsys, line).endswith(end)


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("22H2", "Windows 10 22H2 is 19045; Windows 11 22H2 is 22621"),
        ("22h2", "Windows 10 22H2 is 19045; Windows 11 22H2 is 22621"),
        ("2004", "Windows 10 2004 is 19041"),
        ("11", "the first Windows 11 is 22000"),
    ],
)
def test_a_version_of_windows_gets_its_build(version: str, build: str, capsys: Capsys) -> None:
    text = usage_error(capsys, f"validate m.onnx --windows {version}")
    assert text == (
        f"--windows is {version}, which is a version of Windows. Fix: give its build: {build}"
    )


@pytest.mark.parametrize(
    ("count", "fix"),
    [
        ("4", "--split 2,2,1,1 or a --count such as 1, 2, 3, 6"),
        ("7", "a --count such as 1, 2, 3, 6"),
        ("0", "a --count such as 1, 2, 3, 6"),
    ],
)
def test_a_count_that_does_not_divide_prints_the_sizes_that_would_work(
    count: str, fix: str, here: Path, capsys: Capsys
) -> None:
    np.save("a.npy", np.arange(12).reshape(2, 6))
    text = usage_error(capsys, f"run a.npy --axis -1 --count {count}")
    assert text == f"--count is {count}; it must divide 6, the size of axis -1. Fix: give {fix}"
