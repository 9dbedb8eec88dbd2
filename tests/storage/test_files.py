"""A changed input is noticed by its metadata."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.storage.files import input_fingerprint
from dmlsplit.storage.npy import split_file
from dmlsplit.storage.stores import split_store
from tests.support.stores import VALUES

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_metadata_that_change_during_a_run_are_an_error_and_leave_no_pieces(
    store: Path, tmp_path: Path
) -> None:
    def change(done: int, total: int) -> None:
        metadata = store / "zarr.json"
        metadata.write_text(json.dumps(json.loads(metadata.read_text()) | {"fill_value": 1}))

    with pytest.raises(dml.InvalidArgumentError, match="changed while it was split") as error:
        split_store(store, (1, 6), 2, tmp_path / "out", progress=change)
    assert "Fix: run the same command again" in str(error.value)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("change", ["rewritten", "replaced", "cut short"])
def test_a_npy_file_that_changes_during_a_run_gives_no_pieces(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmlsplit.storage.npy.BLOCK_BYTES", 2048)
    path = tmp_path / "a.npy"
    np.save(path, VALUES)

    def change_once(done: int, total: int) -> None:
        if done < total // 2:
            if change == "replaced":
                np.save(tmp_path / "b.npy", VALUES + 1)
                (tmp_path / "b.npy").replace(path)
            elif change == "rewritten":
                np.save(path, VALUES + 1)
            else:
                with path.open("r+b") as file:
                    file.truncate(1000)

    said = "became shorter while it was read" if change == "cut short" else "changed while"
    with pytest.raises(dml.InvalidArgumentError, match=said) as error:
        split_file(path, (1, 6), 2, tmp_path / "out", progress=change_once)
    assert "a.npy" in str(error.value)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["zarr.json", ".zattrs"])
def test_pipes_and_devices_are_refused_and_not_waited_for(
    store: Path, tmp_path: Path, name: str
) -> None:
    (store / name).unlink(missing_ok=True)
    os.mkfifo(store / name)
    with pytest.raises(dml.InvalidArgumentError, match=f"its {name} is not a regular file"):
        split_store(store, (1, 6), 2, tmp_path / "out")
    for path in (store / name, Path("/dev/zero")):
        with pytest.raises(dml.InvalidArgumentError, match="is not a regular file"):
            input_fingerprint(path)
