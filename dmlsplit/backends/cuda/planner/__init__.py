"""Which kernels carry out a geometry, and how they are launched. Pure, and GPU-free.

No kernel is compiled for the sizes of a split; they are arguments of its launches. The choice:

==============  ===============================================================================
`rows`          wide outputs, at any alignment
`deinterleave`  a few equal elements of 1 to 8 bytes to a row, at aligned addresses
`transpose`     rows of many outputs that are one element wide each, at aligned addresses
`tile`          other short rows, or narrow outputs of long rows, through shared memory
`transpose`     strided, and contiguous along different dimensions in input and output
`strided`       everything else, and single elements a few apart
==============  ===============================================================================
"""

from dmlsplit.backends.cuda.launch import (
    POINTER_BYTES,
    Assumptions,
    Constant,
    DeviceLimits,
    KernelLaunch,
)
from dmlsplit.backends.cuda.planner.nests import are_windows, nest_launches
from dmlsplit.backends.cuda.planner.row_split import row_launches
from dmlsplit.geometry import SplitGeometry

__all__ = ["Constant", "DeviceLimits", "KernelLaunch", "plan"]

# Of a launch's parameters, what is not the addresses of outputs: the input's, and arguments.
OTHER_PARAMETER_BYTES = 2 * POINTER_BYTES


def plan(
    geometry: SplitGeometry, input_alignment: int, output_alignment: int, limits: DeviceLimits
) -> tuple[KernelLaunch, ...]:
    """Choose the launches of a geometry for a device; their order does not matter.

    Alignments are the largest power of two, 1 to 16, that divides the address of the input's
    first element, and those of all outputs.
    """
    assumed = Assumptions(
        input_alignment,
        output_alignment,
        limits=limits,
        outputs=len(geometry.pieces),
        most_outputs=(limits.parameter_bytes - OTHER_PARAMETER_BYTES) // POINTER_BYTES,
        # Outputs that would take half of the cache or more are not worth caching.
        bypasses_cache=2 * geometry.total_bytes > limits.l2_bytes,
    )
    rows = geometry.row_split
    if rows is None or (rows.pitch > sum(rows.widths) and are_windows(geometry, assumed)):
        return tuple(nest_launches(geometry, assumed))
    return tuple(row_launches(rows, assumed))
