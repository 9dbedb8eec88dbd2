"""Pictures: the bytes of each output are drawn at their places."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given

import dmlsplit as dml
from dmlsplit.explain.picture import svg_picture
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
        "bytes 0 to 3 of the input: bytes 0 to 3 of output 0",
        "bytes 4 to 11 of the input: bytes 0 to 7 of output 1",
        "bytes 12 to 15 of the input: bytes 4 to 7 of output 0",
        "bytes 16 to 23 of the input: bytes 8 to 15 of output 1",
    }
    assert len(list(root.iter(f"{SVG}title"))) == 8


def test_the_title_of_a_run_of_one_byte_is_in_the_singular() -> None:
    assert titles(drawn(described("UINT8", (3,), 0, (2, 1)))) == {
        "bytes 0 to 1 of the input: bytes 0 to 1 of output 0",
        "byte 2 of the input: byte 0 of output 1",
    }


def test_a_row_fills_the_width_and_pieces_their_share() -> None:
    root = drawn(described("UINT8", (1, 10), 1, (4, 6)))
    widths = [float(rect.get("width", 0)) for rect in root.iter(f"{SVG}rect") if len(rect)]
    assert widths == pytest.approx([280.8, 421.2, 280.8, 421.2])


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


LIMITS = "the picture shows at most 12 outputs, 12 lines of each tensor and 3000 runs of bytes"


def test_of_many_rows_12_are_drawn_and_the_bytes_of_these_are_named() -> None:
    assert texts(drawn(described("UINT8", (300, 85), 1, (4, 1, 80)))) == [
        "SPLIT axis 1 into 3 outputs",
        "input: UINT8[300,85]: 25500 elements, 25500 bytes, 1020 drawn; 85 bytes per line",
        "output 0: UINT8[300,4]",
        "1200 elements, 1200 bytes, 48 drawn",
        "output 1: UINT8[300,1]",
        "300 elements, 300 bytes, 12 drawn",
        "output 2: UINT8[300,80]",
        "24000 elements, 24000 bytes, 960 drawn",
        LIMITS,
    ]


def test_of_many_outputs_12_are_drawn_and_the_rest_is_counted() -> None:
    labels = texts(drawn(described("UINT8", (8, 40), 1, (2,) * 20)))
    assert sum(label.startswith("output ") for label in labels) == 12
    assert labels[-1] == "... and 8 more outputs"


def test_of_many_runs_3000_are_drawn() -> None:
    root = drawn(described("UINT8", (1, 4000), 1, (1,) * 4000))
    assert texts(root)[1] == (
        "input: UINT8[1,4000]: 4000 elements, 4000 bytes, 3000 drawn; 4000 bytes per line"
    )
    assert len(list(root.iter(f"{SVG}title"))) == 3000 + 12  # in the input, and in the outputs


def test_a_picture_that_is_whole_names_no_limit() -> None:
    labels = texts(drawn(described("UINT8", (8, 16), 0, (1,) * 8)))
    assert "input: UINT8[8,16]: 128 elements, 128 bytes; 128 bytes per line" in labels
    assert LIMITS not in labels
    assert not any("drawn" in label for label in labels)


@given(desc=split_descriptors())
def test_any_layout_can_be_drawn(desc: dml.SplitOperatorDesc) -> None:
    root = drawn(desc)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for rect in root.iter(f"{SVG}rect"):
        x, y = float(rect.get("x", 0)), float(rect.get("y", 0))
        assert x + float(rect.get("width", 0)) <= width + 0.1
        assert y + float(rect.get("height", 0)) <= height
