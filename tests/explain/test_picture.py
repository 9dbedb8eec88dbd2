"""Pictures: the bytes of each output are drawn where they are."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given

import dmlsplit as dml
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.explain.picture import MOST_OUTPUTS, MOST_RUNS, svg_picture
from tests.support.descriptors import split_descriptors

GOLDEN = Path(__file__).parents[1] / "golden" / "picture.svg"
SVG = "{http://www.w3.org/2000/svg}"


def described(
    data_type: str, shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]
) -> dml.SplitOperatorDesc:
    return dml.SplitOperatorDesc.from_sizes(
        dml.TensorDesc(data_type, shape), axis=axis, sizes=sizes
    )


def drawn(desc: dml.SplitOperatorDesc) -> ET.Element:
    return ET.fromstring(svg_picture(descriptor_geometry(desc), str(desc)))


def said(root: ET.Element) -> set[str]:
    return {title.text or "" for title in root.iter(f"{SVG}title")}


def test_golden() -> None:
    desc = described("UINT8", (3, 6), 1, (1, 2, 3))
    assert svg_picture(descriptor_geometry(desc), str(desc)) == GOLDEN.read_text("utf-8")


def test_every_run_is_drawn_in_the_input_and_in_its_output() -> None:
    root = drawn(described("FLOAT32", (2, 3), 1, (1, 2)))
    assert said(root) == {
        "bytes 0 to 3 of the input are bytes 0 to 3 of output 0",
        "bytes 4 to 11 of the input are bytes 0 to 7 of output 1",
        "bytes 12 to 15 of the input are bytes 4 to 7 of output 0",
        "bytes 16 to 23 of the input are bytes 8 to 15 of output 1",
    }
    assert len(list(root.iter(f"{SVG}title"))) == 8


def test_a_row_fills_the_width_and_pieces_their_share() -> None:
    root = drawn(described("UINT8", (1, 10), 1, (4, 6)))
    widths = [float(rect.get("width", 0)) for rect in root.iter(f"{SVG}rect") if len(rect)]
    assert widths == pytest.approx([288, 432, 288, 432])


def test_large_splits_are_cut_short_and_say_so() -> None:
    root = drawn(described("UINT8", (100_000, 40), 1, (2,) * 20))
    text = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert f"... and {20 - MOST_OUTPUTS} more outputs" in text
    assert any("of 4000000 bytes at most" in line for line in text)
    assert len(list(root.iter(f"{SVG}rect"))) < 3 * MOST_RUNS


def test_titles_are_escaped() -> None:
    desc = described("UINT8", (2,), 0, (1, 1))
    ET.fromstring(svg_picture(descriptor_geometry(desc), "<&>"))


@given(desc=split_descriptors())
def test_any_layout_can_be_drawn(desc: dml.SplitOperatorDesc) -> None:
    root = drawn(desc)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for rect in root.iter(f"{SVG}rect"):
        x, y = float(rect.get("x", 0)), float(rect.get("y", 0))
        assert x + float(rect.get("width", 0)) <= width + 0.1
        assert y + float(rect.get("height", 0)) <= height
