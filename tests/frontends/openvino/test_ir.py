"""IR files that are read or refused."""

import sys
import time
from collections.abc import Callable

import pytest

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.openvino import ir
from tests.support.fixtures import Patch
from tests.support.openvino_files import Scan, edge, net, variadic, weights


def test_version_10_names_precisions_at_outputs_only(scanned: Scan) -> None:
    xml = variadic(version="10").replace('<port id="0" precision="FP32">', '<port id="0">')
    (found,) = scanned(xml, weights())
    assert str(found.state.descriptor.input_tensor) == "FLOAT32[6,2]"


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
    ("made", "name", "what"),
    [
        (with_tags, "MAX_EVENTS", "tags and texts"),
        (with_layers, "MAX_KEPT", "layers, ports and edges"),
        (with_edges, "MAX_KEPT", "layers, ports and edges"),
    ],
)
def test_what_takes_memory_and_time_is_counted(
    made: Callable[[int], str], name: str, what: str, limit: int, scanned: Scan, monkeypatch: Patch
) -> None:
    limit = limit or getattr(ir, name)
    monkeypatch.setattr(ir, name, limit)
    for count in (limit + 1, limit):
        said = ""
        try:
            timed(scanned, made(count))
        except InvalidArgumentError as error:
            said = str(error)
        assert (f"contains more than {limit} {what}" in said) == (count > limit)


def timed(scanned: Scan, content: str | bytes) -> None:
    start = time.process_time()
    try:
        scanned(content)
    finally:
        assert time.process_time() - start < 3


def test_memory_does_not_grow_with_a_file_of_filler(scanned: Scan) -> None:
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
