"""`conformance`: write, probe with a stand-in, check; statuses and one-line errors."""

import json
from pathlib import Path

import pytest

from dmlsplit.cli import main
from tests.conformance.stand_in import build as stand_in


@pytest.fixture
def library(builds: Path) -> Path:
    why = stand_in.missing()
    if why:
        pytest.skip(why)
    return stand_in.built(builds)


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["conformance", *map(str, arguments)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_write_probe_check(
    here: Path, library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = ran(capsys, "write", "kit")
    assert (status, err) == (0, "")
    assert out.startswith("kit: ")
    status, out, err = ran(capsys, "probe", "--directml", library, "-o", "observed.json")
    assert (status, out) == (0, "")
    assert err == "dmlsplit: observed.json: 154 accepted, 75 refused\n"
    status, out, _ = ran(capsys, "probe", "--directml", library, "-o", "-")
    assert (status, json.loads(out).keys()) == (
        0,
        json.loads(Path("observed.json").read_text()).keys(),
    )
    assert not Path("-").exists()
    asked = json.loads(Path("observed.json").read_text())["cases"]
    listed = json.loads(Path("kit/cases.json").read_text())["cases"]
    wanted = [(case["id"], case["desc"]) for case in listed if case["last_stage"] != "bind"]
    assert [(case["id"], case["desc"]) for case in asked] == wanted
    status, out, err = ran(capsys, "check", "observed.json")
    assert (status, err) == (0, "")
    assert out.startswith("A STAND-IN, not DirectML, 1.2.3.4 agrees with the rules\n")
    monkeypatch.setenv("STAND_IN_SWITCHES", "any-sum")
    assert ran(capsys, "probe", "--directml", library, "-o", "other.json")[0] == 0
    status, out, err = ran(capsys, "check", "other.json", "--format", "json")
    assert (status, err) == (1, "")
    assert json.loads(out)["counts"]["verdict"] == 2
    status, out, _ = ran(capsys, "check", "other.json", "--format", "markdown")
    assert (status, out[:4]) == (1, "### ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("write full", "full: is not an empty folder; name a new one"),
        ("write no/kit", "no: there is no such folder"),
        (
            "probe --directml full/note -o o.json",
            "DirectML's licence allows its use on Windows only",
        ),
        ("probe --directml none.dll -o o.json", "none.dll: No such file or directory"),
        ("probe --directml none.dll -o full/note", "full/note exists; name a new file"),
        ("probe --directml none.dll -o no/o.json", "no: there is no such folder"),
        ("check none.json", "none.json: is not a file"),
        ("check full/note", "full/note: is not JSON"),
    ],
)
def test_an_error_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    Path("full").mkdir()
    Path("full/note").write_text("mine")
    status, out, err = ran(capsys, *arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("dmlsplit: error: ")
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in here.rglob("*") if path.is_file()] == ["note"]


@pytest.mark.parametrize("step", [[], ["probe"], ["check"]])
def test_help_says_that_nothing_has_run_on_windows(
    step: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["conformance", *step, "--help"])
    assert exit_.value.code == 0
    assert ("HAS RUN ON WINDOWS YET" in capsys.readouterr().out) == (step != ["check"])
