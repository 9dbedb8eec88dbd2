"""Draws which bytes of the input go to which output, as SVG.

Memory is drawn like a page of text: byte 0 at the top left, one line per row of the input.
A run of bytes has the colour of its output on both sides; unused bytes of the input are grey.
"""

from collections.abc import Iterator
from itertools import islice, product
from operator import mul
from typing import NamedTuple
from xml.sax.saxutils import escape

from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.geometry import SplitGeometry, ceil_div
from dmlsplit.messages import counted, omitted_lines

# Lengths in pixels: the width of the picture, the margin around it, the height of a line, the gap
# between two tensors, and the mean width of a letter in a label.
PAGE_WIDTH = 760
_MARGIN = 20
_LINE = 14
_GAP = 18
_LETTER = 7
# The most outputs that are drawn side by side below the input.
_SIDE_BY_SIDE = 4
# The most that is drawn: runs of all outputs together, lines of each tensor, and outputs. The
# picture says what it leaves out.
MAX_RUNS = 3000
MAX_LINES = 12
MAX_DRAWN_OUTPUTS = 12
# A row of at most this many elements is a pixel, of which a line holds several.
_PIXEL_ELEMENTS = 4
# The most elements of a line of pixels.
_LINE_ELEMENTS = 64
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
    """A tensor's memory in lines: the parts of its runs that are drawn."""

    line_bytes: int
    lines: int
    # Each part: its line, its first byte in the line, its bytes, and the run that it belongs to.
    parts: list[tuple[int, int, int, _Run]]

    @property
    def drawn_bytes(self) -> int:
        """The bytes that are drawn."""
        return sum(size for _, _, size, _ in self.parts)


def svg_picture(desc: SplitOperatorDesc) -> str:
    """An SVG document of a valid split."""
    geometry = descriptor_geometry(desc)
    runs = list(_runs(geometry))
    rows, line_bytes = _line_layout(desc, geometry)
    # At the scale of the input, a few outputs of packed rows fit side by side below it.
    gaps = min(desc.output_count, _SIDE_BY_SIDE) - 1
    scale = (PAGE_WIDTH - 2 * _MARGIN - gaps * _GAP) / line_bytes
    page = _page([(run.src, run) for run in runs], line_bytes)
    title = f"SPLIT axis {desc.axis} into {counted(desc.output_count, 'output')}"
    label = ": ".join(_label("input", desc.input_tensor, page.drawn_bytes))
    y = _MARGIN + 2 * _LINE
    body = [
        _text(_MARGIN, _MARGIN, title, bold=True),
        _text(_MARGIN, y, f"{label}; {counted(line_bytes, 'byte')} per line"),
        *_shapes(page, scale, _MARGIN, y := y + _GAP // 2),
    ]
    pages = list(_output_pages(geometry, runs, rows, line_bytes))
    shapes, y = _outputs(desc, pages, scale, y + page.lines * _LINE + _GAP)
    body += shapes
    for note in _notes(geometry, [page, *pages]):
        body.append(_text(_MARGIN, y + _LINE, note))
        y += _LINE + _GAP
    width, height = PAGE_WIDTH, y + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    )
    background = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, background, *body, "</svg>"]) + "\n"


def _output_pages(
    geometry: SplitGeometry, runs: list[_Run], rows: int, limit: int
) -> Iterator[_Page]:
    """The pages of the outputs; a line has `rows` rows, but at most `limit` bytes."""
    for index, piece in enumerate(geometry.pieces[:MAX_DRAWN_OUTPUTS]):
        outer = rows * abs(piece.loops[0].output_stride) if piece.loops else 0
        line_bytes = min(max(outer, piece.run_bytes, 1), limit)
        yield _page([(run.dst, run) for run in runs if run.output == index], line_bytes)


def _outputs(
    desc: SplitOperatorDesc, pages: list[_Page], scale: float, y: int
) -> tuple[list[str], int]:
    """The outputs, side by side if they fit, and the y below them."""
    body: list[str] = []
    x = float(_MARGIN)
    bottom = y
    for index, (page, tensor) in enumerate(zip(pages, desc.output_tensors, strict=False)):
        labels = _label(f"output {index}", tensor, page.drawn_bytes)
        width = max(page.line_bytes * scale, _LETTER * max(map(len, labels)))
        if x > _MARGIN and x + width > PAGE_WIDTH - _MARGIN + 0.01:
            x, y = float(_MARGIN), bottom + _GAP
        body += (_text(x, y + line * _LINE, label) for line, label in enumerate(labels, 1))
        top = y + 2 * _LINE + _GAP // 2
        body += _shapes(page, scale, x, top)
        x = x + width + _GAP
        bottom = max(bottom, top + page.lines * _LINE)
    return body, bottom + _GAP


def _label(name: str, tensor: TensorDesc, drawn: int) -> tuple[str, str]:
    """The name and shape of a tensor; its size, and how much of it is drawn."""
    size = tensor.element_count * tensor.element_bytes
    sizes = ",".join(map(str, tensor.sizes))
    left_out = f", {drawn} drawn" if drawn < size else ""
    elements = counted(tensor.element_count, "element")
    shape = f"{name}: {tensor.data_type.name}[{sizes}]"
    return shape, f"{elements}, {counted(size, 'byte')}{left_out}"


def _line_layout(desc: SplitOperatorDesc, geometry: SplitGeometry) -> tuple[int, int]:
    """The rows of a packed input in a line of the picture, and the bytes of a line.

    A line has one row, or the pixels of an image's line.
    """
    packed = geometry.row_split
    tensor = desc.input_tensor
    if packed is None:
        steps = [abs(loop.input_stride) for piece in geometry.pieces for loop in piece.loops]
        return 1, max([*steps, *(piece.run_bytes for piece in geometry.pieces), 1])
    outer = next((size for size in reversed(tensor.sizes[: desc.axis]) if size > 1), 1)
    is_pixel = packed.pitch <= _PIXEL_ELEMENTS * tensor.element_bytes
    fits = outer * packed.pitch <= _LINE_ELEMENTS * tensor.element_bytes
    rows = outer if is_pixel and fits and outer < packed.rows else 1
    return rows, rows * max(1, packed.pitch)


def _runs(geometry: SplitGeometry) -> Iterator[_Run]:
    """The first runs of every output, MAX_RUNS together."""
    share = max(1, MAX_RUNS // max(1, geometry.output_count))
    for output, piece in enumerate(geometry.pieces[:MAX_RUNS]):
        src_steps = [loop.input_stride for loop in piece.loops]
        dst_steps = [loop.output_stride for loop in piece.loops]
        for index in islice(product(*(range(loop.size) for loop in piece.loops)), share):
            src = piece.input_offset + sum(map(mul, index, src_steps))
            dst = sum(map(mul, index, dst_steps))
            yield _Run(src, dst, piece.run_bytes, output)


def _page(runs: list[tuple[int, _Run]], line_bytes: int) -> _Page:
    """The page of a tensor, from its runs and the byte at which each starts."""
    first = min((start for start, _ in runs), default=0) // line_bytes * line_bytes
    end = max((start + run.size for start, run in runs), default=line_bytes)
    lines = min(MAX_LINES, ceil_div(end - first, line_bytes))
    parts = []
    for start, run in runs:
        byte = start - first
        stop = min(start - first + run.size, lines * line_bytes)
        while byte < stop:
            line, column = divmod(byte, line_bytes)
            size = min(stop - byte, line_bytes - column)
            parts.append((line, column, size, run))
            byte += size
    return _Page(line_bytes, lines, parts)


def _shapes(page: _Page, scale: float, x: float, y: int) -> Iterator[str]:
    """The rectangles of a page, whose top left corner is at x and y; `scale` is pixels per byte."""
    width, height = page.line_bytes * scale, page.lines * _LINE
    yield f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="#e8e8e8"/>'
    for line, column, size, run in page.parts:
        title = (
            f"{_bytes(run.src, run.size)} of the input: {_bytes(run.dst, run.size)} of output "
            f"{run.output}"
        )
        colour = _COLOURS[run.output % len(_COLOURS)]
        yield (
            f'<rect x="{x + column * scale:.2f}" y="{y + line * _LINE}" '
            f'width="{size * scale:.2f}" height="{_LINE - 1}" fill="{colour}">'
            f"<title>{title}</title></rect>"
        )


def _bytes(start: int, size: int) -> str:
    """A range of bytes in words: ``byte 80``, ``bytes 80 to 95``."""
    return f"byte {start}" if size == 1 else f"bytes {start} to {start + size - 1}"


def _notes(geometry: SplitGeometry, pages: list[_Page]) -> Iterator[str]:
    """What the picture leaves out; the first page is that of the input."""
    yield from omitted_lines(geometry.output_count, MAX_DRAWN_OUTPUTS, "output")
    source, *outputs = [page.drawn_bytes for page in pages]
    output_bytes = sum(piece.total_bytes for piece in geometry.pieces[:MAX_DRAWN_OUTPUTS])
    if source < geometry.total_bytes or sum(outputs) < output_bytes:
        yield (
            f"the picture shows at most {MAX_DRAWN_OUTPUTS} outputs, {MAX_LINES} lines of each "
            f"tensor and {MAX_RUNS} runs of bytes"
        )


def _text(x: float, y: int, text: str, bold: bool = False) -> str:
    """A line of text that begins at x, on the baseline y."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y}"{weight}>{escape(text)}</text>'
