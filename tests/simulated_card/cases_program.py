"""The command line on a card."""

import gc
from pathlib import Path

import cupy
import numpy as np
import pytest

from dmlsplit import cli
from tests.simulated_card import card

PICTURE = Path(__file__).parent.parent / "data" / "picture.npy"


def run(*arguments: object) -> int:
    """The exit status of ``dmlsplit`` with these arguments."""
    return cli.main([str(argument) for argument in arguments])


def test_the_devices_command_lists_every_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("devices") == 0
    assert capsys.readouterr().out.count("Simulated H200") == 2


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_run_splits_a_file_on_the_card(device: str, tmp_path: Path) -> None:
    picture = np.load(PICTURE)
    with card.calls() as cuda_calls:
        assert (
            run("run", PICTURE, "--axis", 2, "--count", 3, "--device", device, "-o", tmp_path) == 0
        )
    # One element before files are written, so that nothing is imported later; then the block.
    assert cuda_calls.count("cuLaunchKernel") == 2
    for colour in range(3):
        piece = np.load(tmp_path / f"picture_{colour}.npy")
        np.testing.assert_array_equal(piece, picture[:, :, colour : colour + 1])


def test_a_file_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gc.collect()  # Otherwise arrays of earlier tests could return to the pool and be large enough.
    cupy.get_default_memory_pool().free_all_blocks()
    card.set_memory_limit(0, card.memory_used(0) + (1 << 12))
    line = ("run", PICTURE, "--axis", 2, "--count", 3, "--device", "cuda:0", "-o", tmp_path / "out")
    assert run(*line) == 2
    error = capsys.readouterr().err.strip()
    assert "bytes are free" in error
    assert "\n" not in error
    assert not list(tmp_path.glob("out/*"))


def test_a_device_beyond_the_last_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", PICTURE, "--axis", 2, "--count", 3, "--device", "cuda:2") == 2
    assert "this machine has cuda:0 to cuda:1" in capsys.readouterr().err
