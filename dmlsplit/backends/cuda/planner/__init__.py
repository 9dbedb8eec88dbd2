"""Which kernels carry out a geometry, and how they are launched: pure, without a GPU.

Kernels are not compiled for the sizes of a split; those are arguments of launches. The choice:

==============  ===============================================================================
`rows`          wide outputs; narrow ones of whole aligned vectors, if few share a warp; single rows
`strided`       rows of few equal elements: pixels, points, complex numbers
`transpose`     rows of many outputs that are one element wide each, at aligned addresses
`tile`          other short rows, or narrow outputs of long rows, through shared memory
`transpose`     strided, and contiguous along different dimensions in input and output
`strided`       everything else
==============  ===============================================================================
"""

from collections.abc import Iterable, Iterator
from math import gcd

from dmlsplit.backends.cuda.launch import VECTOR, Assumptions, DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.planner.forms import Nest, form_of, nest_of
from dmlsplit.backends.cuda.planner.layouts import takes_whole_rows
from dmlsplit.backends.cuda.planner.strided import fit_windows, interleaved_launch, strided_launches
from dmlsplit.backends.cuda.planner.tiles import tile_launches
from dmlsplit.backends.cuda.planner.transpose import down_loop, element_launch, transpose_launches
from dmlsplit.backends.cuda.planner.wide import LEAST_WIDTH, wide_launches
from dmlsplit.geometry import RowSplit, SplitGeometry

__all__ = ["DeviceLimits", "KernelLaunch", "plan"]

# From this width, `rows` is faster than `tile`. The keys are the bytes that `tile` moves at once.
# In rows of 96 bytes, one vector in six holds the end of a row, and `rows` copies it separately.
WIDE_BYTES = {1: 96, 2: 96, 4: 128, 8: 128, 16: 512}
# If the lanes of a warp look up different entries of a table in the parameters, they get them one
# at a time (CUDA C++ Programming Guide, "Constant memory"), and read from distant addresses. Up to
# WARP_OUTPUTS outputs per warp, this costs little.
WARP_BYTES, WARP_OUTPUTS = 32 * VECTOR, 4
# With fewer rows, `rows` writes to fewer places than `tile`, whose blocks would be mostly idle.
FEW_ROWS = 32
# Below this share of the bytes, narrow outputs among wide ones do not get their own launch, which
# would read their sectors again.
NARROW_SHARE = 1 / 16


def plan(
    geometry: SplitGeometry, input_alignment: int, output_alignment: int, limits: DeviceLimits
) -> tuple[KernelLaunch, ...]:
    """The launches of a geometry on a device, in any order.

    An alignment is the largest power of two, 1 to 16, that divides the address of the input's
    first element, or those of all outputs.
    """
    rows = geometry.row_split
    assumed = Assumptions(
        input_alignment,
        output_alignment,
        limits,
        geometry.output_count,
        # Outputs that would fill more than half of the cache are not worth caching.
        2 * geometry.total_bytes > limits.l2_bytes,
    )
    if rows is None or (rows.pitch > rows.row_bytes and _are_windows(geometry, assumed)):
        return tuple(_nest_launches(geometry, assumed))
    return tuple(_row_launches(rows.take(rows.nonempty), assumed))


def _row_launches(split: RowSplit, assumed: Assumptions) -> Iterable[KernelLaunch]:
    """Launches for outputs of a packed split, by the first test that fits."""
    unit = gcd(VECTOR, *split.widths, split.pitch if split.rows > 1 else VECTOR)
    alignment = min(assumed.input_alignment, assumed.output_alignment)
    has_aligned_memory = alignment == VECTOR
    if has_aligned_memory and unit == VECTOR and not (split.rows > 1 and _is_crowded(split)):
        return wide_launches(split, assumed, is_aligned=True)
    if fit_windows(split, assumed):
        return [interleaved_launch(split, assumed)]
    if has_aligned_memory and (squares := element_launch(split, assumed)) is not None:
        return [squares]
    # In a single row, all outputs count as wide: each has blocks of its own.
    least = WIDE_BYTES[min(unit, alignment)] if split.rows > 1 else 1
    if split.rows > 1 and min(split.widths) < least and takes_whole_rows(split):
        return tile_launches(split, assumed)
    return _by_width(split, assumed, least)


def _by_width(split: RowSplit, assumed: Assumptions, wide: int) -> Iterator[KernelLaunch]:
    """Separate launches for wide and narrow outputs."""
    narrow = [i for i, width in enumerate(split.widths) if width < wide]
    if sum(split.widths[i] for i in narrow) <= NARROW_SHARE * split.row_bytes:
        least = 1 if split.rows == 1 else LEAST_WIDTH
        narrow = [i for i in narrow if split.widths[i] < least]
    others = sorted(set(range(len(split.outputs))).difference(narrow))
    if others:
        yield from wide_launches(split.take(others), assumed, is_aligned=False)
    if narrow:
        yield from tile_launches(split.take(narrow), assumed)


def _is_crowded(split: RowSplit) -> bool:
    """Whether outputs are narrow, and too many of them share what a warp reads."""
    if split.rows < FEW_ROWS or max(split.widths) >= WIDE_BYTES[VECTOR]:
        return False
    outputs = min(len(split.outputs), len(split.outputs) * WARP_BYTES / split.row_bytes)
    return outputs > WARP_OUTPUTS


def _are_windows(geometry: SplitGeometry, assumed: Assumptions) -> bool:
    """Whether all outputs are single units a few apart: windows are then faster than tiles."""
    nests = (nest_of(piece, assumed) for piece in geometry.pieces if piece.run_bytes)
    return all(abs(nest.step) > 1 and form_of(nest, 1, assumed).window_step for nest in nests)


def _nest_launches(geometry: SplitGeometry, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Launches for a geometry that is not packed, separate for each kernel and unit."""
    by_unit: dict[int, dict[Nest, list[int]]] = {}
    others: dict[Nest, list[tuple[int, int]]] = {}
    for index, piece in enumerate(geometry.pieces):
        if not piece.run_bytes:
            continue
        nest = nest_of(piece, assumed)
        is_window = form_of(nest, 1, assumed).window_step is not None
        if is_window or down_loop(nest) is None:
            others.setdefault(nest, []).append((index, piece.input_offset))
        else:
            by_unit.setdefault(nest.unit, {}).setdefault(nest, []).append(index)
    for alike in by_unit.values():
        yield from transpose_launches(alike, geometry.pieces, assumed)
    yield from strided_launches(others, assumed)
