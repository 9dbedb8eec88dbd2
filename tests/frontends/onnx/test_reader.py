"""Reading ONNX files: large ones, hostile ones and noise."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx import scan

onnx = pytest.importorskip("onnx", reason="builds models with the package onnx")
from onnx import helper  # noqa: E402

from tests.support.onnx_graphs import (  # noqa: E402
    GOOD,
    REFUSED,
    Scanned,
    branch,
    chained,
    field,
    halve,
    model,
    node,
    sizes,
    value,
    varint,
)


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_file_is_one_clear_line_at_once(scanned: Scanned, case: str) -> None:
    content, message = REFUSED[case]
    start = time.process_time()
    with pytest.raises(InvalidArgumentError) as error:
        scanned(content)
    assert time.process_time() - start < (5 if "without end" in case else 1)
    text = str(error.value)
    assert "model.onnx: " in text
    assert message in text
    assert len(text.splitlines()) == 1
    assert len(text) < 500


def test_a_list_of_absurdly_many_sizes_is_not_read(scanned: Scanned) -> None:
    for content in ([0] * 65_537, varint(0) * 65_537):
        cut = node("Split", "x", "a b")
        if isinstance(content, bytes):  # Packed, as other writers do.
            cut.attribute.add().ParseFromString(field(1, b"split") + field(8, content))
        else:
            cut.attribute.append(helper.make_attribute("split", content))
        (found,) = scanned(model([cut], [value("x", [6])], opsets={"": 11}))
        assert "it must be an integer or a list of at most 65536" in found.problem


def test_the_cost_of_a_large_model_depends_on_its_graph_and_not_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    weights = 3 << 30
    names = [field(1, field(4, b"Relu") + field(1, b"w") + field(2, b"y"))]
    names.append(field(1, field(4, b"Split") + field(1, b"y") + field(2, b"a") + field(2, b"b")))
    tensor = field(1, 3072) + field(1, 1 << 18) + field(2, 1) + field(8, b"w")
    tensor += varint(9 << 3 | 2) + varint(weights)
    initializer = varint(5 << 3 | 2) + varint(len(tensor) + weights) + tensor
    graph = b"".join(names) + initializer
    head = field(1, 8) + field(8, field(2, 13))
    head += varint(7 << 3 | 2) + varint(len(graph) + weights) + graph
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + weights)
    code = (
        "import resource, sys, time\n"
        "from dmlsplit.frontends.onnx import scan\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "start = time.process_time()\n"
        "(found,) = scan(sys.argv[1])\n"
        "print(found.descriptors[0])\n"
        "print(time.process_time() - start)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    text, seconds, kibibytes = result.stdout.splitlines()
    half = "FLOAT32[1536,262144]"
    assert text == f"SPLIT axis 0: FLOAT32[3072,262144] -> {half}, {half}"
    assert float(seconds) < 1
    assert int(kibibytes) < 16 * 1024


SEEDS = [
    GOOD,
    chained([("f0", ["f1"]), ("f1", [])]).SerializeToString(),
    model(
        [
            node("Constant", "", "s", value=sizes("", 2, 4)),
            node("Reshape", "x t", "y"),
            node("Split", "y s", "a b"),
            node("Halve", "a", "p q", domain="own", at=1),
            node("If", "c", "z", then_branch=branch("t", 2), else_branch=branch("e", 3)),
            node("SplitToSequence", "x", "l", keepdims=0),
        ],
        [value("x", [2, 6]), value("outer", ["n", 6])],
        initializers=(sizes("t", -1, 2),),
        functions=(halve(),),
    ).SerializeToString(),
]


def assert_read_or_refused(path: Path) -> None:
    try:
        found = scan(path)
    except InvalidArgumentError as error:
        lines = str(error).splitlines()
        assert len(lines) == 1
    else:
        assert all(isinstance(each, SplitSite) for each in found)


@settings(settings.get_profile("many"))
@given(data=st.data())
def test_mutated_models_never_do_more_than_refuse(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "insert", "delete", "repeat", "cut"]))
        piece = data.draw(st.binary(min_size=1, max_size=12))
        if kind == "flip":
            content[at] ^= piece[0] or 1
        elif kind == "insert":
            content[at:at] = piece
        elif kind == "delete":
            del content[at : at + len(piece)]
        elif kind == "repeat":
            content[at:at] = content[at : at + 40] * piece[0]
        else:
            del content[at:]
        if not content:
            return
    path = tmp_path_factory.getbasetemp() / "mutated.onnx"
    path.write_bytes(content)
    start = time.process_time()
    assert_read_or_refused(path)
    assert time.process_time() - start < 2


@settings(settings.get_profile("many"))
@given(content=st.binary(min_size=1, max_size=200))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.onnx"
    path.write_bytes(field(7, content) + field(8, field(2, 18)))
    assert_read_or_refused(path)
