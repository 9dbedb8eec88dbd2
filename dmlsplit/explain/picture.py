"""Draws which bytes of the input go to which output, as SVG.

Memory is drawn like a page: byte 0 top left, one line per row of the input. A run of bytes
has the colour of its output, in the input and in the output; what no output takes is grey.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from xml.sax.saxutils import escape

from dmlsplit.geometry import SplitGeometry, StridedCopy

PAGE_WIDTH = 760  # pixels
_MARGIN = 20
_LINE = 14
_GAP = 18
_LABEL_WIDTH = 150
# Larger splits are cut short, and the picture says so.
MOST_RUNS = 3000
MOST_LINES = 12
MOST_OUTPUTS = 12

# Okabe and Ito's palette, readable with any colour vision; repeated beyond eight outputs.
_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#999999",
)


@dataclass(frozen=True, slots=True)
class _Run:
    """Bytes that stay together: where they come from, where they go, how many, which output."""

    source: int
    target: int
    size: int
    output: int


def svg_picture(geometry: SplitGeometry, title: str) -> str:
    """Return an SVG document that shows a split.

    Parameters
    ----------
    geometry
        The byte problem.
    title
        One line above the picture, such as the descriptor.
    """
    runs = list(_runs(geometry))
    line_bytes = _line_bytes(geometry)
    scale = (PAGE_WIDTH - 2 * _MARGIN) / line_bytes
    y = _MARGIN + 2 * _LINE
    body = [
        _text(_MARGIN, _MARGIN, title, bold=True),
        _text(_MARGIN, y, f"input: {line_bytes} bytes to the line"),
    ]
    spread = [(run.source, run) for run in runs]
    shapes, y = _page(spread, line_bytes, scale, _MARGIN, y + _GAP // 2)
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
    """Return the outputs, side by side where they fit, and where they end."""
    body: list[str] = []
    x, below = float(_MARGIN), y
    for index, piece in enumerate(geometry.pieces[:MOST_OUTPUTS]):
        line_bytes = _target_line_bytes(piece, most)
        width = max(line_bytes * scale, _LABEL_WIDTH)
        if x > _MARGIN and x + width > PAGE_WIDTH - _MARGIN:
            x, y = float(_MARGIN), below + _GAP
        body.append(_text(x, y + _LINE, f"output {index}: {piece.total_bytes} bytes"))
        own = [(run.target, run) for run in runs if run.output == index]
        shapes, end = _page(own, line_bytes, scale, x, y + _LINE + _GAP // 2)
        body += shapes
        x, below = x + width + _GAP, max(below, end)
    return body, below + _GAP


def _line_bytes(geometry: SplitGeometry) -> int:
    rows = geometry.row_split
    if rows is not None:
        return max(1, rows.pitch)
    steps = [abs(s) for piece in geometry.pieces for s in piece.input_strides]
    return max([*steps, *(piece.run_bytes for piece in geometry.pieces), 1])


def _target_line_bytes(piece: StridedCopy, most: int) -> int:
    outer = abs(piece.output_strides[0]) if piece.output_strides else piece.run_bytes
    return min(max(outer, piece.run_bytes, 1), most)


def _runs(geometry: SplitGeometry) -> Iterator[_Run]:
    share = max(1, MOST_RUNS // max(1, len(geometry.pieces)))
    for output, piece in enumerate(geometry.pieces[:MOST_RUNS]):
        if not piece.run_bytes:
            continue
        for index in islice(product(*map(range, piece.shape)), share):
            source = piece.input_offset + _dot(index, piece.input_strides)
            yield _Run(source, _dot(index, piece.output_strides), piece.run_bytes, output)


def _dot(index: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return sum(i * step for i, step in zip(index, strides, strict=True))


def _page(
    runs: list[tuple[int, _Run]], line_bytes: int, scale: float, x: float, y: int
) -> tuple[list[str], int]:
    """Return the rectangles of one piece of memory, and where they end."""
    starts = [start for start, _ in runs]
    first = min(starts, default=0) // line_bytes * line_bytes
    last = max((start + run.size for start, run in runs), default=line_bytes)
    lines = min(MOST_LINES, -(-(last - first) // line_bytes))
    height = lines * _LINE
    width = line_bytes * scale
    shapes = [f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" fill="#e8e8e8"/>']
    for start, run in runs:
        shapes += _rectangles(start - first, run, line_bytes, scale, x, y, lines)
    return shapes, y + height


def _rectangles(
    start: int, run: _Run, line_bytes: int, scale: float, x: float, y: int, lines: int
) -> Iterator[str]:
    colour = _COLOURS[run.output % len(_COLOURS)]
    said = (
        f"bytes {run.source} to {run.source + run.size - 1} of the input are bytes {run.target} "
        f"to {run.target + run.size - 1} of output {run.output}"
    )
    end = start + run.size
    while start < end:
        line, column = divmod(start, line_bytes)
        if line >= lines:
            return
        size = min(end - start, line_bytes - column)
        yield (
            f'<rect x="{x + column * scale:.2f}" y="{y + line * _LINE}" '
            f'width="{size * scale:.2f}" height="{_LINE - 1}" fill="{colour}">'
            f"<title>{said}</title></rect>"
        )
        start += size


def _notes(geometry: SplitGeometry, runs: list[_Run]) -> Iterator[str]:
    hidden = len(geometry.pieces) - MOST_OUTPUTS
    if hidden > 0:
        yield f"... and {hidden} outputs more"
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
