"""Pictures: the bytes of each output are drawn at their places."""

import xml.etree.ElementTree as ET
from math import prod

import pytest
from hypothesis import given

import dmlsplit as dml
from dmlsplit.explain.picture import MAX_DRAWN_OUTPUTS, MAX_RUNS, svg_picture
from tests.golden.make import PICTURE, PIXELS
from tests.support.descriptors import split_descriptors

SVG = "{http://www.w3.org/2000/svg}"


def described(
    data_type: str, shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]
) -> dml.SplitOperatorDesc:
    return dml.SplitOperatorDesc.from_sizes(
        dml.TensorDesc(data_type, shape), axis=axis, sizes=sizes
    )


def drawn(desc: dml.SplitOperatorDesc) -> ET.Element:
    return ET.fromstring(svg_picture(desc))


def titles(root: ET.Element) -> set[str]:
    return {title.text or "" for title in root.iter(f"{SVG}title")}


def test_the_picture_of_rgb_pixels_is_the_committed_one() -> None:
    assert svg_picture(PIXELS) == PICTURE.read_text("utf-8")


def test_every_run_is_drawn_in_the_input_and_in_its_output() -> None:
    root = drawn(described("FLOAT32", (2, 3), 1, (1, 2)))
    assert titles(root) == {
        "bytes 0 to 3 of the input are bytes 0 to 3 of output 0",
        "bytes 4 to 11 of the input are bytes 0 to 7 of output 1",
        "bytes 12 to 15 of the input are bytes 4 to 7 of output 0",
        "bytes 16 to 23 of the input are bytes 8 to 15 of output 1",
    }
    assert len(list(root.iter(f"{SVG}title"))) == 8


def test_a_row_fills_the_width_and_pieces_their_share() -> None:
    root = drawn(described("UINT8", (1, 10), 1, (4, 6)))
    widths = [float(rect.get("width", 0)) for rect in root.iter(f"{SVG}rect") if len(rect)]
    assert widths == pytest.approx([280.8, 421.2, 280.8, 421.2])


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("shape", "axis", "sizes", "input_drawn"),
    [
        ((300, 85), 1, (4, 1, 80), 12 * 85),  # lines
        ((100_000, 40), 1, (2,) * 20, 12 * 40),  # lines and outputs
        ((480, 640, 3), 2, (1, 1, 1), 12 * 3),
        ((8, 16), 0, (1,) * 8, 8 * 16),
        ((1, 4000), 1, (1,) * 4000, 3000),  # runs
    ],
)
def test_the_bytes_that_are_left_out_are_named_exactly(
    shape: tuple[int, ...], axis: int, sizes: tuple[int, ...], input_drawn: int
) -> None:
    root = drawn(described("UINT8", shape, axis, sizes))
    total, labels = prod(shape), texts(root)
    is_whole = input_drawn == total
    drawn_said = "" if is_whole else f", {input_drawn} drawn"
    assert f"{total} elements, {total} bytes{drawn_said};" in labels[1]
    assert any(line.startswith("the picture shows at most") for line in labels) != is_whole
    omitted_count = len(sizes) - MAX_DRAWN_OUTPUTS
    assert (f"... and {omitted_count} more outputs" in labels) == (omitted_count > 0)
    rows = prod(shape[:axis])
    for size, label in zip(sizes, labels[3 : 3 + 2 * MAX_DRAWN_OUTPUTS : 2], strict=False):
        inner = size * prod(shape[axis + 1 :])
        assert label.endswith(f", {12 * inner} drawn") == (rows > 12)
        assert ("drawn" in label) == (rows > 12)
    assert len(list(root.iter(f"{SVG}rect"))) < 3 * MAX_RUNS


@given(desc=split_descriptors())
def test_any_layout_can_be_drawn(desc: dml.SplitOperatorDesc) -> None:
    root = drawn(desc)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for rect in root.iter(f"{SVG}rect"):
        x, y = float(rect.get("x", 0)), float(rect.get("y", 0))
        assert x + float(rect.get("width", 0)) <= width + 0.1
        assert y + float(rect.get("height", 0)) <= height
