"""The command line: `levels`, `run`, exit codes, pipes. Validation has its own file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.cli import main

PICTURE = Path(__file__).parent / "data" / "picture.npy"
DISPATCH = Path(__file__).parent / "data" / "dispatch.json"
ROOT = Path(__file__).parent.parent


def test_run_splits_a_picture_into_its_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(PICTURE), "--axis", "-1", "--split", "1,1,1", "-o", str(tmp_path)]) == 0
    picture = np.load(PICTURE)
    for colour in range(3):
        plane = np.load(tmp_path / f"picture_{colour}.npy")
        np.testing.assert_array_equal(plane, picture[..., colour : colour + 1])
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("uint8 (192, 256, 3) -> 3 pieces along axis 2, on cpu")
    assert out[1].endswith("picture_0.npy  uint8 (192, 256, 1)")


def test_run_carries_out_a_dxdispatch_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(DISPATCH)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Resource 'Rows': 1, 2, 3, 6, 7, 8",
        "Resource 'Rest': 4, 5, 9, 10",
    ]


def test_run_takes_a_count(tmp_path: Path) -> None:
    assert main(["run", str(PICTURE), "--axis", "0", "--count", "4", "-o", str(tmp_path)]) == 0
    assert np.load(tmp_path / "picture_3.npy").shape == (48, 256, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy", "--axis", "0", "--count", "2"], "missing.npy: No such file"),
        ([str(ROOT), "--axis", "0", "--count", "2"], "is not a zarr store"),
        ([str(PICTURE), "--axis", "2"], "needs --axis, and --split 2,1,3 or --count N"),
        ([str(PICTURE), "--count", "2"], "needs --axis"),
        ([str(DISPATCH), "--axis", "2"], "--axis is not for a DxDispatch model"),
        (["missing.json"], "missing.json: is not a file"),
        ([str(PICTURE), "--axis", "3", "--count", "2"], "axis is 3; it must be -3 to 2"),
        ([str(PICTURE), "--axis", "2", "--split", "1,1"], "sizes are [1, 1], 2 in sum"),
        ([str(PICTURE), "--axis", "2", "--count", "2"], "count is 2"),
        ([str(PICTURE), "--axis", "2", "--count", "3", "--device", "tpu"], "device is 'tpu'"),
        (["/dev/null", "--axis", "0", "--count", "2"], "not a regular file"),
        ([__file__, "--axis", "0", "--count", "2"], "is not a .npy file"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dmlsplit: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["run"],
        ["run", str(PICTURE), "--axis", "2", "--split", "1,x"],
        ["run", str(PICTURE), "--axis", "2", "--split", "1", "--count", "1"],
        ["levels", "--format", "xml"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2


def test_levels_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["levels"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 16
    assert max(map(len, lines)) <= 80
    assert lines[7].split() == "4_1 1.7.0 - 1-8 + f64 u64 i64".split()


def test_levels_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["levels", "--format", "json"]) == 0
    levels = json.loads(capsys.readouterr().out)["levels"]
    assert [level["value"] for level in levels][:3] == [0x1000, 0x2000, 0x2100]
    assert levels[7]["windows"] == {"build": 22621, "name": "Windows 11 22H2"}
    assert levels[0]["input_tensor"]["dimension_counts"] == [4, 4]


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "dmlsplit", *arguments]
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        line, capture_output=True, text=True, env=environment, check=False, **options
    )


def test_the_module_is_the_command() -> None:
    done = command("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dmlsplit ")


def test_a_pipe_that_closes_early_is_no_error() -> None:
    line = f"{sys.executable} -m dmlsplit levels --format json | true; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout == "0\n"
    assert done.stderr == ""
