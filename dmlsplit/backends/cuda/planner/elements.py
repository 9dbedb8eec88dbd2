"""Plans for rows of many outputs that are one element wide each: a transposition, too.

Rows are across and outputs are down. Nothing is compiled for the number of rows or the pitch.
"""

from dmlsplit.backends.cuda.launch import POINTER_BYTES, VECTOR, Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner.columns import Columns
from dmlsplit.backends.cuda.planner.squares import (
    MOST_SIDE_BYTES,
    Plane,
    Transposition,
    best,
    squares,
)

SECTOR = 32
# Squares that are less full cost more than the same rows in `tile`: instructions, and wavefronts of
# the first-level cache where rows are not multiples of 16 bytes.
LEAST_FILL = 0.6


def transposed_elements(columns: Columns, assumed: Assumptions) -> KernelLaunch | None:
    """The launch for outputs that are one element wide each, or None if it does not pay."""
    unit, count = columns.equal_width, len(columns.outputs)
    is_aligned = min(assumed.input_alignment, assumed.output_alignment) == VECTOR
    is_short = max(columns.rows, count) * unit <= MOST_SIDE_BYTES
    if not (unit in (1, 2, 4, 8) and is_aligned and is_short and _has_no_gaps(columns)):
        return None
    plane = Plane(count, columns.rows, down_stride=0, across_stride=columns.pitch)
    # Two squares side by side both read the sectors that lie in both.
    allowed = [s for s in squares(unit, VECTOR) if s.down >= count or columns.pitch % SECTOR == 0]
    if not allowed or best(allowed, [plane]).fill([plane]) < LEAST_FILL:
        return None
    launch = Transposition(best(allowed, [plane]), (plane,), (0,), (0,), has_pointers=True).launch(
        columns.outputs,
        columns.total_bytes,
        assumed,
        f"rows of {count} outputs, one element of {unit} bytes each",
    )
    room = POINTER_BYTES * (assumed.most_outputs - count)
    return launch if len(launch.argument_bytes) <= room else None


def _has_no_gaps(columns: Columns) -> bool:
    width = columns.equal_width
    return columns.offsets == tuple(range(0, width * len(columns.outputs), width))
