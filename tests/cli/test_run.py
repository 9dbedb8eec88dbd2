"""`run`: .npy files and DxDispatch models; zarr arrays have tests of their own."""

from pathlib import Path

import numpy as np
import pytest

from dmlsplit.cli import main
from tests.support.command import ROOT

PICTURE = ROOT / "tests" / "data" / "picture.npy"


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


def test_one_piece_is_not_one_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(PICTURE), "--axis", "0", "--count", "1", "-o", str(tmp_path)]) == 0
    assert "-> 1 piece along axis 0" in capsys.readouterr().out
