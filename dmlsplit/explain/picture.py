"""Draws which bytes of the input go to which output, as SVG.

Memory is drawn like a page of text: byte 0 at the top left, one line per row of the input.
A run of bytes has the colour of its output on both sides; unused bytes of the input are grey.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from operator import mul
from xml.sax.saxutils import escape

from dmlsplit.geometry import SplitGeometry
from dmlsplit.messages import more

PAGE_WIDTH = 760  # pixels
_MARGIN = 20
_LINE = 14
_GAP = 18
_LABEL_WIDTH = 150
# Limits; the picture says what it leaves out.
MOST_RUNS = 3000
MOST_LINES = 12
MOST_OUTPUTS = 12
# Okabe and Ito's palette, readable with any colour vision; it repeats after eight outputs.
_COLOURS = "#0072b2 #e69f00 #009e73 #cc79a7 #56b4e9 #d55e00 #f0e442 #999999".split()


@dataclass(frozen=True, slots=True)
class _Run:
    """Bytes `src` to ``src + size`` of the input, copied to byte `dst` of an output."""

    src: int
    dst: int
    size: int
    output: int


def svg_picture(geometry: SplitGeometry, title: str) -> str:
    """An SVG document of a split below a one-line title."""
    runs = list(_runs(geometry))
    line_bytes = _line_bytes(geometry)
    scale = (PAGE_WIDTH - 2 * _MARGIN) / line_bytes
    y = _MARGIN + 2 * _LINE
    body = [
        _text(_MARGIN, _MARGIN, title, bold=True),
        _text(_MARGIN, y, f"input: {line_bytes} bytes to the line"),
    ]
    shapes, y = _page([(run.src, run) for run in runs], line_bytes, scale, _MARGIN, y + _GAP // 2)
    body += shapes
    shapes, y = _outputs(geometry, runs, line_bytes, scale, y + _GAP)
    body += shapes
    for note in _notes(geometry, runs):
        body.append(_text(_MARGIN, y + _LINE, note))
        y += _LINE + _GAP
    return _document(body, y + _MARGIN)


def _outputs(
    geometry: SplitGeometry, runs: list[_Run], most: int, scale: float, y: int
) -> tuple[list[str], int]:
    """The outputs, side by side if they fit, and the y below them."""
    body: list[str] = []
    x, bottom = float(_MARGIN), y
    for index, piece in enumerate(geometry.pieces[:MOST_OUTPUTS]):
        outer = abs(piece.loops[0].output_stride) if piece.loops else 0
        line_bytes = min(max(outer, piece.run_bytes, 1), most)
        width = max(line_bytes * scale, _LABEL_WIDTH)
        if x > _MARGIN and x + width > PAGE_WIDTH - _MARGIN:
            x, y = float(_MARGIN), bottom + _GAP
        body.append(_text(x, y + _LINE, f"output {index}: {piece.total_bytes} bytes"))
        own = [(run.dst, run) for run in runs if run.output == index]
        shapes, end = _page(own, line_bytes, scale, x, y + _LINE + _GAP // 2)
        body += shapes
        x, bottom = x + width + _GAP, max(bottom, end)
    return body, bottom + _GAP


def _line_bytes(geometry: SplitGeometry) -> int:
    rows = geometry.row_split
    if rows is not None:
        return max(1, rows.pitch)
    steps = [abs(loop.input_stride) for piece in geometry.pieces for loop in piece.loops]
    return max([*steps, *(piece.run_bytes for piece in geometry.pieces), 1])


def _runs(geometry: SplitGeometry) -> Iterator[_Run]:
    share = max(1, MOST_RUNS // max(1, len(geometry.pieces)))
    for output, piece in enumerate(geometry.pieces[:MOST_RUNS]):
        if not piece.run_bytes:
            continue
        src_steps = [loop.input_stride for loop in piece.loops]
        dst_steps = [loop.output_stride for loop in piece.loops]
        for index in islice(product(*(range(loop.size) for loop in piece.loops)), share):
            src = piece.input_offset + sum(map(mul, index, src_steps))
            dst = sum(map(mul, index, dst_steps))
            yield _Run(src, dst, piece.run_bytes, output)


def _page(
    runs: list[tuple[int, _Run]], line_bytes: int, scale: float, x: float, y: int
) -> tuple[list[str], int]:
    """The rectangles of a tensor's runs, each given after its start, and the y below."""
    first = min((start for start, _ in runs), default=0) // line_bytes * line_bytes
    end = max((start + run.size for start, run in runs), default=line_bytes)
    lines = min(MOST_LINES, -(-(end - first) // line_bytes))
    width, height = line_bytes * scale, lines * _LINE
    shapes = [f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="#e8e8e8"/>']
    for start, run in runs:
        said = (
            f"bytes {run.src} to {run.src + run.size - 1} of the input are bytes {run.dst} "
            f"to {run.dst + run.size - 1} of output {run.output}"
        )
        colour = _COLOURS[run.output % len(_COLOURS)]
        for line, column, size in _by_line(start - first, run.size, line_bytes, lines):
            shapes.append(
                f'<rect x="{x + column * scale:.2f}" y="{y + line * _LINE}" '
                f'width="{size * scale:.2f}" height="{_LINE - 1}" fill="{colour}">'
                f"<title>{said}</title></rect>"
            )
    return shapes, y + height


def _by_line(start: int, size: int, line_bytes: int, lines: int) -> Iterator[tuple[int, int, int]]:
    """Line, column and size of each part of a run."""
    end = min(start + size, lines * line_bytes)
    while start < end:
        line, column = divmod(start, line_bytes)
        part = min(end - start, line_bytes - column)
        yield line, column, part
        start += part


def _notes(geometry: SplitGeometry, runs: list[_Run]) -> Iterator[str]:
    yield from more(len(geometry.pieces), MOST_OUTPUTS, "output")
    shown = sum(run.size for run in runs)
    if shown < geometry.total_bytes:
        yield f"the picture shows the first {shown} of {geometry.total_bytes} bytes at most"


def _text(x: float, y: int, text: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y}"{weight}>{escape(text)}</text>'


def _document(body: list[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{PAGE_WIDTH}" height="{height}" '
        f'viewBox="0 0 {PAGE_WIDTH} {height}" font-family="sans-serif" font-size="12">'
    )
    background = f'<rect width="{PAGE_WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, background, *body, "</svg>"]) + "\n"
