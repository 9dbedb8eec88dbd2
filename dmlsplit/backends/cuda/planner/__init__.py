"""Which kernels carry out a geometry, and how they are launched: pure, without a GPU.

Kernels are not compiled for the sizes of a split; sizes are arguments of launches. The choice:

==============  ===============================================================================
`rows`          single rows; outputs of whole aligned vectors, unless they are narrow and many
`strided`       rows of few equal elements: pixels, points, complex numbers
`transpose`     rows of many outputs that are one element wide each, at aligned addresses
`tile`          narrow outputs, through shared memory
`rows`          wide outputs
`transpose`     strided, and contiguous along different dimensions in input and output
`strided`       everything else
==============  ===============================================================================

The first line that fits decides, except that evenly spaced single units in padded rows go to
`strided` at once. If a block can read whole rows, `tile` copies all outputs if one is narrow;
otherwise wide outputs and more than a few bytes of narrow ones have separate launches. The last two
lines are for splits that are not packed.
"""

from collections.abc import Iterable, Iterator
from math import gcd

from dmlsplit.backends.cuda.launch import VECTOR, WARP, Assumptions, DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.planner.estimates import WIDE_BYTES
from dmlsplit.backends.cuda.planner.forms import Nest, form_of, nest_of
from dmlsplit.backends.cuda.planner.layouts import takes_whole_rows
from dmlsplit.backends.cuda.planner.rows import rows_launches
from dmlsplit.backends.cuda.planner.strided import fits_window, interleaved_launch, strided_launches
from dmlsplit.backends.cuda.planner.tile import tile_launches
from dmlsplit.backends.cuda.planner.transpose import down_loop, element_launch, transpose_launches
from dmlsplit.geometry import RowSplit, SplitGeometry

__all__ = ["DeviceLimits", "KernelLaunch", "plan"]

# The bytes of a warp's load.
WARP_BYTES = WARP * VECTOR
# The most outputs that should share WARP_BYTES of a row: if more do, they are narrower than a cache
# line of 128 bytes, on average. A warp of `rows`, which reads one output, would then read short
# runs in many rows. In other kernels, too, a store of a warp should go to at most this number of
# outputs on average: their pointers are parameters, in constant memory, which serves a warp's
# addresses one after another. tests/proofs/test_counts.py checks this for the benchmarks'
# workloads.
WARP_OUTPUTS = 4
# Beside wide outputs, `rows` also copies this number of bytes of narrow ones, because a launch of
# `tile` would take longer than what `rows` loses on them (docs/design/016-slabs.md).
MAX_BESIDE_WIDE = 2 << 20


def plan(
    geometry: SplitGeometry, input_alignment: int, output_alignment: int, limits: DeviceLimits
) -> tuple[KernelLaunch, ...]:
    """The launches of a geometry on a device, which may run in any order.

    An alignment is the largest power of two, 1 to 16, that divides the address of the input's
    first element, or those of all outputs.
    """
    rows = geometry.row_split
    assumptions = Assumptions(
        input_alignment,
        output_alignment,
        limits,
        geometry.output_count,
        # The input and the outputs do not fit the L2 cache together.
        2 * geometry.total_bytes > limits.l2_bytes,
    )
    if rows is None or (rows.pitch > rows.row_bytes and _are_spaced_units(geometry, assumptions)):
        return tuple(_nest_launches(geometry, assumptions))
    return tuple(_row_launches(rows.take(rows.nonempty), assumptions))


def _row_launches(split: RowSplit, assumptions: Assumptions) -> Iterable[KernelLaunch]:
    """Launches for the outputs of a packed split, by the first test that fits."""
    unit = gcd(VECTOR, *split.widths, split.pitch if split.rows > 1 else VECTOR)
    has_aligned_memory = min(assumptions.input_alignment, assumptions.output_alignment) == VECTOR
    if has_aligned_memory and unit == VECTOR and not (split.rows > 1 and _is_crowded(split)):
        return rows_launches(split, assumptions, is_aligned=True)
    if fits_window(split, assumptions):
        return [interleaved_launch(split, assumptions)]
    if has_aligned_memory and (launch := element_launch(split, assumptions)) is not None:
        return [launch]
    # In a single row, all outputs count as wide, because each has blocks of its own.
    min_wide = WIDE_BYTES if split.rows > 1 else 1
    if min(split.widths) < min_wide and takes_whole_rows(split):
        return tile_launches(split, assumptions)
    return _by_width(split, assumptions, min_wide)


def _by_width(split: RowSplit, assumptions: Assumptions, min_wide: int) -> Iterator[KernelLaunch]:
    """Separate launches for wide outputs, of at least `min_wide` bytes, and narrow ones.

    Beside wide outputs, `rows` also copies a few bytes of narrow ones, which must be of a vector or
    more.
    """
    narrow_bytes = split.rows * sum(width for width in split.widths if width < min_wide)
    if max(split.widths) >= min_wide > VECTOR and narrow_bytes <= MAX_BESIDE_WIDE:
        min_wide = VECTOR
    wide = [i for i, width in enumerate(split.widths) if width >= min_wide]
    narrow = [i for i, width in enumerate(split.widths) if width < min_wide]
    if wide:
        yield from rows_launches(split.take(wide), assumptions, is_aligned=False)
    if narrow:
        yield from tile_launches(split.take(narrow), assumptions)


def _is_crowded(split: RowSplit) -> bool:
    """Whether outputs are so narrow that too many share the bytes of a warp's load."""
    count = len(split.outputs)
    are_narrow = max(split.widths) < WIDE_BYTES
    return are_narrow and min(count, count * WARP_BYTES / split.row_bytes) > WARP_OUTPUTS


def _are_spaced_units(geometry: SplitGeometry, assumptions: Assumptions) -> bool:
    """Whether every output is one unit wide, and `strided` can copy all of them from windows."""
    nests = (nest_of(piece, assumptions) for piece in geometry.pieces if piece.run_bytes)
    return all(abs(nest.step) > 1 and form_of(nest, 1, assumptions).window_step for nest in nests)


def _nest_launches(geometry: SplitGeometry, assumptions: Assumptions) -> Iterator[KernelLaunch]:
    """Launches of `transpose`, separate for each unit, and of `strided`, for each form."""
    transposed: dict[int, dict[Nest, list[int]]] = {}
    strided: dict[Nest, list[tuple[int, int]]] = {}
    for index, piece in enumerate(geometry.pieces):
        if not piece.run_bytes:
            continue
        nest = nest_of(piece, assumptions)
        is_window = form_of(nest, 1, assumptions).window_step is not None
        if is_window or down_loop(nest) is None:
            strided.setdefault(nest, []).append((index, piece.input_offset))
        else:
            transposed.setdefault(nest.unit, {}).setdefault(nest, []).append(index)
    for outputs_by_nest in transposed.values():
        yield from transpose_launches(outputs_by_nest, geometry.pieces, assumptions)
    yield from strided_launches(strided, assumptions)
