"""`run`: .npy files and DxDispatch models; zarr arrays have tests of their own."""

from pathlib import Path

import numpy as np
import pytest

from dmlsplit.cli import main
from tests.support.command import ROOT

PICTURE = ROOT / "tests" / "data" / "picture.npy"
DISPATCH = ROOT / "tests" / "data" / "dispatch.json"


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


def test_run_runs_a_dxdispatch_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(DISPATCH)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Resource 'Rows': 1, 2, 3, 6, 7, 8",
        "Resource 'Rest': 4, 5, 9, 10",
    ]


def test_run_takes_a_count(tmp_path: Path) -> None:
    assert main(["run", str(PICTURE), "--axis", "0", "--count", "4", "-o", str(tmp_path)]) == 0
    assert np.load(tmp_path / "picture_3.npy").shape == (48, 256, 3)


def test_one_piece_is_not_one_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(PICTURE), "--axis", "0", "--count", "1", "-o", str(tmp_path)]) == 0
    assert "-> 1 piece along axis 0" in capsys.readouterr().out


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
        ["run"],
        ["run", str(PICTURE), "--axis", "2", "--split", "1,x"],
        ["run", str(PICTURE), "--axis", "2", "--split", "1", "--count", "1"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
