"""IR files that are read or refused, and the integer constants in their .bin files."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import Known
from dmlsplit.frontends.openvino import scan
from dmlsplit.models.openvino import ir
from tests.support.fixtures import Patch
from tests.support.hangs import no_hang
from tests.support.openvino_files import (
    INT64,
    Scan,
    const,
    edge,
    layer,
    net,
    piece_sizes,
    port,
    variadic,
    weights,
)


def test_an_input_of_version_10_has_the_precision_of_the_output_it_reads(scanned: Scan) -> None:
    xml = variadic(version="10").replace('<port id="0" precision="FP32">', '<port id="0">')
    (site,) = scanned(xml, weights())
    assert str(site.state.descriptor.input_tensor) == "FLOAT32[6,2]"


def with_tags(count: int) -> str:
    """The beginning of a file: up to the last <a/>, it has `count` tags, or one less."""
    return '<net version="11"><layers>' + "<a/>" * ((count - 1) // 2)


# Three elements around them are kept too: the net, its layers and its edges.
def with_layers(count: int) -> str:
    return net([f'<layer id="{i}" type="A"/>' for i in range(count - 3)], [])


def with_edges(count: int) -> str:
    return net([], [edge((0, 0), (i, 0)) for i in range(count - 3)])


@pytest.mark.parametrize("limit", [100, pytest.param(None, marks=pytest.mark.slow, id="real")])
@pytest.mark.parametrize(
    ("xml_of", "name", "counted_items"),
    [
        (with_tags, "MAX_XML_EVENTS", "tags and texts"),
        (with_layers, "MAX_KEPT_ELEMENTS", "layers, ports and edges"),
        (with_edges, "MAX_KEPT_ELEMENTS", "layers, ports and edges"),
    ],
)
def test_a_file_with_too_many_tags_layers_or_edges_is_refused(
    xml_of: Callable[[int], str],
    name: str,
    counted_items: str,
    limit: int,
    scanned: Scan,
    monkeypatch: Patch,
) -> None:
    limit = limit or getattr(ir, name)
    monkeypatch.setattr(ir, name, limit)
    for count in (limit + 1, limit):
        message = ""
        try:
            with no_hang():
                scanned(xml_of(count))
        except InvalidArgumentError as error:
            message = str(error)
        is_refused = (
            f"exceeds a limit of dmlsplit: it contains more than {limit} {counted_items}" in message
        )
        assert is_refused == (count > limit)


def test_the_text_of_elements_is_not_kept_in_memory(scanned: Scan) -> None:
    resource = pytest.importorskip("resource", reason="Windows counts memory in another way")
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    filler = b"<x>" + b"filler " * (8 << 20) + b"</x>"
    with pytest.raises(InvalidArgumentError):
        scanned(b'<net version="11">' + filler)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (200 << 20) // unit


def test_a_doctype_in_a_comment_is_only_a_comment(scanned: Scan) -> None:
    xml = variadic().replace("<layers>", "<!-- <!DOCTYPE net> <!ENTITY a 'b'> --><layers>")
    assert len(scanned(xml, weights())) == 1


# Constants.


def test_a_constant_may_be_described_by_its_output_alone(scanned: Scan) -> None:
    lengths = layer(2, "Const", data='offset="8" size="16"', outputs=port(0, (2,), "I64"))
    (site,) = scanned(variadic(lengths=lengths), weights())
    assert isinstance(site.state, Known)


def test_constants_may_share_bytes_and_begin_at_any_byte(scanned: Scan) -> None:
    raw = b"\1" + np.array([0, 2, 4], "<i2").tobytes()
    axis = const(1, "1", 1, 2, "i16")
    lengths = const(2, "2", 3, 4, "i16")
    (site,) = scanned(variadic(axis=axis, lengths=lengths), raw)
    assert piece_sizes(site) == [(2, 2), (4, 2)]
    shared = {"axis": const(1, "", 0, 8), "lengths": const(2, "2", 0, 16)}
    xml = variadic(**shared, dims=(6, 4), outputs=((6, 1), (6, 3)))
    (site,) = scanned(xml, np.array([1, 3], INT64).tobytes())
    assert site.state.descriptor.axis == 1


def test_a_constant_that_declares_too_many_lengths_is_not_read(scanned: Scan) -> None:
    lengths = const(2, str(2**40), 0, 2**43)
    (site,) = scanned(variadic(lengths=lengths), weights())
    assert f"makes {2**40} pieces" in site.state.problem


@pytest.mark.parametrize("fault", ["missing", "folder", "pipe", "loop"])
def test_weights_that_cannot_be_read_are_an_error(tmp_path: Path, fault: str) -> None:
    (tmp_path / "model.xml").write_text(variadic())
    path = tmp_path / "model.bin"
    if fault == "folder":
        path.mkdir()
    if fault == "pipe":
        os.mkfifo(path)
    if fault == "loop":
        path.symlink_to("model.bin")
    problem = "is missing" if fault == "missing" else "is not a regular file"
    with pytest.raises(InvalidArgumentError, match=f"the weights file model.bin {problem}"):
        scan(tmp_path / "model.xml")


def test_weights_that_may_not_be_read_are_named(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "model.xml").write_text(variadic())
    (tmp_path / "model.bin").write_bytes(weights())
    open_file = Path.open

    def refuse_weights(path: Path, *arguments: Any) -> Any:
        if path.suffix == ".bin":
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse_weights)
    problem = "the weights file model.bin cannot be read: Permission denied"
    with pytest.raises(InvalidArgumentError, match=problem):
        scan(tmp_path / "model.xml")


def test_links_of_weights_are_followed_only_inside_the_folder_of_the_model(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "model.xml").write_text(variadic())
    (tmp_path / "secret").write_bytes(weights())
    (inside / "model.bin").symlink_to("../secret")
    (site,) = scan(inside / "model.xml")
    assert "links out of its folder and is not followed" in site.state.reason
    (inside / "model.bin").unlink()
    (inside / "other").write_bytes(weights())
    (inside / "model.bin").symlink_to("other")
    assert isinstance(scan(inside / "model.xml")[0].state, Known)
