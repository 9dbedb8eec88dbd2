"""A fair Triton split: one launch for all outputs, tile shape chosen by timing."""

# No deferred annotations: Triton reads the annotations of its kernels.

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
import triton.language as tl

from dmlsplit.geometry import RowSplit

if TYPE_CHECKING:
    from benchmarks.gpu_problem import GpuProblem

_TILE_ELEMENTS = (2048, 8192)
_WARPS = (4, 8)


@triton.jit
def _split(  # noqa: ANN202
    source,  # noqa: ANN001
    joined,  # noqa: ANN001
    tiles,  # noqa: ANN001
    tile_count,  # noqa: ANN001
    rows,  # noqa: ANN001
    pitch,  # noqa: ANN001
    inner_rows,  # noqa: ANN001
    outer_pitch,  # noqa: ANN001
    is_nested: tl.constexpr,
    has_one_address: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    aligned: tl.constexpr,
    alignment: tl.constexpr,
):
    # A tile is (output address, first column in the input, width, first column in the output). With
    # one address for all outputs, the first number is the output's offset from `joined`. The rows
    # of an output are adjacent; nested rows are adjacent in groups of `inner_rows`, which begin
    # `outer_pitch` elements apart.
    # Tiles of the same rows run together, so that shared sectors are read once. The table counts in
    # units of `alignment` bytes and of `aligned` elements, from which the compiler knows how many
    # bytes a lane may read at once.
    program = tl.program_id(0).to(tl.int64)
    tile = tiles + 4 * (program % tile_count)
    row = (program // tile_count) * tile_rows + tl.arange(0, tile_rows)
    column_in = tl.load(tile + 1) * aligned
    width = tl.load(tile + 2) * aligned
    column = tl.load(tile + 3) * aligned + tl.arange(0, tile_columns)
    if has_one_address:
        target = joined + tl.load(tile) * aligned
    else:
        target = tl.multiple_of((tl.load(tile) * alignment).to(source.dtype), alignment)
    nested = row // inner_rows * outer_pitch + row % inner_rows * width
    start = nested if is_nested else row * width
    inside = (row[:, None] < rows) & (column[None, :] < width)
    values = tl.load(source + row[:, None] * pitch + column_in + column[None, :], mask=inside)
    tl.store(target + start[:, None] + column[None, :], values, mask=inside)


def prepare(problem: "GpuProblem", has_one_address: bool = False) -> Callable[[int], None]:
    """Compile, choose the fastest tile shape on the first set, and return the call.

    With `has_one_address`, the outputs must be views of one tensor.
    """
    import torch

    case, rows = problem.case, _row_split(problem)
    inner_rows, alignment = prod(case.shape[case.joined_at : case.axis]), case.alignments[1]
    unit = gcd(8, rows.pitch, *rows.widths, *case.alignments)
    element = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[unit]

    def units(array: Any) -> Any:
        return torch.as_tensor(array).reshape(-1).view(torch.uint8).view(element)

    sources = [units(entry.array) for entry in problem.sets]
    joined = [units(entry.joined) for entry in problem.sets] if has_one_address else sources
    widths = [width // unit for width in rows.widths if width]

    def call_with(columns: int, elements: int, warps: int) -> Callable[[int], None]:
        aligned = gcd(16, columns, rows.pitch // unit, *widths)
        begins = [
            [start // (unit * aligned) for start in case.output_starts]
            if has_one_address
            else [torch.as_tensor(out).data_ptr() // alignment for out in entry.outputs]
            for entry in problem.sets
        ]
        tables = [
            torch.as_tensor(_tiles(rows, unit, columns, aligned, each)).to(sources[0].device)
            for each in begins
        ]
        height = max(1, elements // columns)
        grid = (len(tables[0]) * -(-rows.rows // height),)

        def call(index: int) -> None:
            _split[grid](
                sources[index],
                joined[index],
                tables[index],
                len(tables[index]),
                rows.rows,
                rows.pitch // unit,
                inner_rows,
                inner_rows * (rows.pitch // unit),
                is_nested=inner_rows < rows.rows,
                has_one_address=has_one_address,
                tile_rows=height,
                tile_columns=columns,
                aligned=aligned,
                alignment=alignment,
                num_warps=warps,
            )

        return call

    choices = sorted({min(4096, _power(min(widths))), min(1024, _power(max(widths))), 256})
    candidates = [
        call_with(columns, elements, warps)
        for columns in choices
        for elements in _TILE_ELEMENTS
        for warps in _WARPS
        if columns <= elements
    ]
    return min(candidates, key=_seconds)


def _row_split(problem: "GpuProblem") -> RowSplit:
    if problem.case.strides is not None:
        raise NotImplementedError("takes packed inputs only; not called with a strided one")
    rows = replace(problem.case, joined_at=None).geometry.row_split
    assert rows is not None
    return rows


def _tiles(
    rows: RowSplit, unit: int, columns: int, aligned: int, begins: Sequence[int]
) -> np.ndarray:
    step = unit * aligned
    table = [
        (begin, offset // step, width // step, start // aligned)
        for begin, offset, width in zip(begins, rows.offsets, rows.widths, strict=True)
        for start in range(0, width // unit, columns)
    ]
    return np.array(table, np.int64)


def _power(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def _seconds(call: Callable[[int], Any]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call(0)
    start.record()
    for _ in range(3):
        call(0)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
