"""Draws which bytes of the input of a packed split go to which output, as SVG.

Memory is drawn like a page of text: byte 0 at the top left, one line per row of the input. A run of
bytes has the colour of its output on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from dmlsplit import SplitOperatorDesc, TensorDesc
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.messages import counted

PAGE_WIDTH = 760  # pixels
_MARGIN = 20
_LINE = 14
_GAP = 18
_SIDE_BY_SIDE = 4
_LETTER = 7  # the mean width of a letter in a label
# A row of at most _PIXEL_ELEMENTS is a pixel; a line holds several pixels, up to _LINE_ELEMENTS.
_PIXEL_ELEMENTS, _LINE_ELEMENTS = 4, 64
# Okabe and Ito's palette, readable with any colour vision: red, green and blue for the planes of an
# image come first. It repeats after eight outputs.
_COLOURS = "#d55e00 #009e73 #0072b2 #cc79a7 #e69f00 #56b4e9 #f0e442 #999999".split()


class _Run(NamedTuple):
    """Bytes `src` to ``src + size`` of the input, copied to byte `dst` of an output."""

    src: int
    dst: int
    size: int
    output: int


class _Page(NamedTuple):
    """A tensor's memory in lines: where each of its runs starts in it."""

    line_bytes: int
    runs: list[tuple[int, _Run]]

    @property
    def lines(self) -> int:
        """The number of lines."""
        return -(-max(start + run.size for start, run in self.runs) // self.line_bytes)


def svg_picture(desc: SplitOperatorDesc) -> str:
    """An SVG document of a valid split of packed tensors."""
    rows = descriptor_geometry(desc).row_split
    assert rows is not None
    runs = [
        _Run(row * rows.pitch + offset, row * width, width, output)
        for output, (offset, width) in enumerate(zip(rows.offsets, rows.widths, strict=True))
        for row in range(rows.rows)
    ]
    in_a_line = _rows_to_a_line(desc, rows.rows, rows.pitch)
    page = _Page(in_a_line * rows.pitch, [(run.src, run) for run in runs])
    pages = [
        _Page(in_a_line * width, [(run.dst, run) for run in runs if run.output == output])
        for output, width in enumerate(rows.widths)
    ]
    # At the scale of the input, a few outputs of packed rows fit side by side below it.
    gaps = min(desc.output_count, _SIDE_BY_SIDE) - 1
    scale = (PAGE_WIDTH - 2 * _MARGIN - gaps * _GAP) / page.line_bytes
    title = f"SPLIT axis {desc.axis} into {counted(desc.output_count, 'output')}"
    label = ": ".join(_label("input", desc.input_tensor))
    y = _MARGIN + 2 * _LINE
    body = [
        _text(_MARGIN, _MARGIN, title, bold=True),
        _text(_MARGIN, y, f"{label}; {counted(page.line_bytes, 'byte')} per line"),
        *_shapes(page, scale, _MARGIN, y := y + _GAP // 2),
    ]
    shapes, y = _outputs(desc, pages, scale, y + page.lines * _LINE + _GAP)
    width, height = PAGE_WIDTH, y + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    )
    background = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, background, *body, *shapes, "</svg>"]) + "\n"


def _outputs(
    desc: SplitOperatorDesc, pages: list[_Page], scale: float, y: int
) -> tuple[list[str], int]:
    """The outputs, side by side if they fit, and the y below them."""
    body: list[str] = []
    x, bottom = float(_MARGIN), y
    for index, (page, tensor) in enumerate(zip(pages, desc.output_tensors, strict=True)):
        labels = _label(f"output {index}", tensor)
        width = max(page.line_bytes * scale, _LETTER * max(map(len, labels)))
        if x > _MARGIN and x + width > PAGE_WIDTH - _MARGIN + 0.01:
            x, y = float(_MARGIN), bottom + _GAP
        body += (_text(x, y + nth * _LINE, label) for nth, label in enumerate(labels, 1))
        top = y + 2 * _LINE + _GAP // 2
        body += _shapes(page, scale, x, top)
        x, bottom = x + width + _GAP, max(bottom, top + page.lines * _LINE)
    return body, bottom + _GAP


def _label(name: str, tensor: TensorDesc) -> tuple[str, str]:
    """The name and shape of a tensor, and its size."""
    size = tensor.element_count * tensor.element_bytes
    shape = f"{name}: {tensor.data_type.name}[{','.join(map(str, tensor.sizes))}]"
    return shape, f"{counted(tensor.element_count, 'element')}, {counted(size, 'byte')}"


def _rows_to_a_line(desc: SplitOperatorDesc, rows: int, pitch: int) -> int:
    """The rows of the input in a line of the picture: the pixels of an image's line, or 1."""
    tensor = desc.input_tensor
    outer = next((size for size in reversed(tensor.sizes[: desc.axis]) if size > 1), 1)
    is_pixel = pitch <= _PIXEL_ELEMENTS * tensor.element_bytes
    fits = is_pixel and outer * pitch <= _LINE_ELEMENTS * tensor.element_bytes
    return outer if fits and outer < rows else 1


def _shapes(page: _Page, scale: float, x: float, y: int) -> Iterator[str]:
    width, height = page.line_bytes * scale, page.lines * _LINE
    yield f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="#e8e8e8"/>'
    for start, run in page.runs:
        line, column = divmod(start, page.line_bytes)
        title = (
            f"bytes {run.src} to {run.src + run.size - 1} of the input are bytes {run.dst} "
            f"to {run.dst + run.size - 1} of output {run.output}"
        )
        colour = _COLOURS[run.output % len(_COLOURS)]
        yield (
            f'<rect x="{x + column * scale:.2f}" y="{y + line * _LINE}" '
            f'width="{run.size * scale:.2f}" height="{_LINE - 1}" fill="{colour}">'
            f"<title>{title}</title></rect>"
        )


def _text(x: float, y: int, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y}"{weight}>{escape(text)}</text>'
