"""Reading ONNX files: large ones, hostile ones and noise."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx import scan, walk
from dmlsplit.frontends.onnx.walk import MAXIMUM_FIELDS
from tests.support.mutated import mutated
from tests.support.onnx_graphs import (
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
def test_a_hostile_file_is_one_clear_line_at_once(
    scanned: Scanned, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most fields take 5 s; here they are a sixteenth of it."""
    content, message = REFUSED[case]
    monkeypatch.setattr(walk, "MAXIMUM_FIELDS", MAXIMUM_FIELDS // 16)
    start = time.process_time()
    with pytest.raises(InvalidArgumentError) as error:
        scanned(content)
    assert time.process_time() - start < 1
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
        assert "it must be an integer or a list of at most 65536" in found.state.problem


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


TOKENS = [b"\xff" * 10, varint(2**63), b"\x80" * 9, *(seed[:40] * 99 for seed in SEEDS)]


@settings(settings.get_profile("many"))
@given(content=st.sampled_from(SEEDS).flatmap(lambda seed: mutated(seed, TOKENS)))
def test_mutated_models_never_do_more_than_refuse(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.onnx"
    path.unlink(missing_ok=True)  # faster than to empty it
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
    path.unlink(missing_ok=True)  # faster than to empty it
    path.write_bytes(field(7, content) + field(8, field(2, 18)))
    assert_read_or_refused(path)
