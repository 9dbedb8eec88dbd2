"""Integer constants of an IR, read from its .bin file."""

import os
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import Known
from dmlsplit.frontends.openvino import scan
from tests.support.openvino_files import INT64, Scan, const, layer, port, variadic, weights


def test_a_constant_may_be_described_by_its_output_alone(scanned: Scan) -> None:
    lengths = layer(2, "Const", data='offset="8" size="16"', outputs=port(0, (2,), "I64"))
    (found,) = scanned(variadic(lengths=lengths), weights())
    assert isinstance(found.state, Known)


def test_constants_share_bytes_and_may_be_anywhere(scanned: Scan) -> None:
    raw = b"\1" + np.array([0, 2, 4], "<i2").tobytes()
    axis = const(1, "1", 1, 2, "i16")
    lengths = const(2, "2", 3, 4, "i16")
    (found,) = scanned(variadic(axis=axis, lengths=lengths), raw)
    assert [t.sizes for t in found.state.descriptor.output_tensors] == [(2, 2), (4, 2)]
    shared = {"axis": const(1, "", 0, 8), "lengths": const(2, "2", 0, 16)}
    xml = variadic(**shared, dims=(6, 4), outputs=((6, 1), (6, 3)))
    (found,) = scanned(xml, np.array([1, 3], INT64).tobytes())
    assert found.state.descriptor.axis == 1


def test_a_constant_that_declares_too_many_lengths_is_not_read(scanned: Scan) -> None:
    lengths = const(2, str(2**40), 0, 2**43)
    (found,) = scanned(variadic(lengths=lengths), weights())
    assert f"makes {2**40} pieces" in found.state.problem


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "loop"])
def test_weights_that_cannot_be_read_are_an_error(tmp_path: Path, what: str) -> None:
    (tmp_path / "model.xml").write_text(variadic())
    path = tmp_path / "model.bin"
    if what == "folder":
        path.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    if what == "loop":
        path.symlink_to("model.bin")
    said = "is missing" if what == "missing" else "is not a regular file"
    with pytest.raises(InvalidArgumentError, match=f"the weights file model.bin {said}"):
        scan(tmp_path / "model.xml")


def test_weights_are_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "model.xml").write_text(variadic())
    (tmp_path / "secret").write_bytes(weights())
    (inside / "model.bin").symlink_to("../secret")
    (found,) = scan(inside / "model.xml")
    assert "links out of its folder and is not followed" in found.state.reason
    (inside / "model.bin").unlink()
    (inside / "other").write_bytes(weights())
    (inside / "model.bin").symlink_to("other")
    assert isinstance(scan(inside / "model.xml")[0].state, Known)
