"""Which kernels carry out a geometry, and how they are launched. Pure, and GPU-free.

A plan bakes every size and offset into constants; a launch passes pointers only. The choice:

==============  ===============================================================================
`vector`        all rows of all outputs are multiples of 16 bytes, at aligned addresses
`deinterleave`  a few equal elements of 1 to 8 bytes to a row, at aligned addresses
`tile`          short rows, or narrow outputs of long rows, through shared memory
`shift`         wide outputs at any alignment, through funnel shifts
`transpose`     strided boxes whose two sides are contiguous along different dimensions
`strided`       everything else
==============  ===============================================================================
"""

from __future__ import annotations

from dmlsplit.backends.cuda.launch import Constant, DeviceLimits, KernelLaunch, LaunchPlan
from dmlsplit.backends.cuda.planner.boxes import box_launches
from dmlsplit.backends.cuda.planner.rows import row_launches
from dmlsplit.geometry import SplitGeometry

__all__ = ["H200", "Constant", "DeviceLimits", "KernelLaunch", "LaunchPlan", "plan"]

H200 = DeviceLimits(132, 2048, 228 << 10, 48 << 10, 60 << 20, 32764)


def plan(
    geometry: SplitGeometry,
    input_alignment: int,
    output_alignment: int,
    limits: DeviceLimits = H200,
) -> LaunchPlan:
    """Choose the launches of a geometry.

    Parameters
    ----------
    geometry
        What to copy.
    input_alignment, output_alignment
        The largest power of two, 1 to 16, that divides the address of the input's first
        element, and those of all outputs.
    limits
        The device.
    """
    stream = 2 * geometry.total_bytes > limits.l2_bytes
    common = [Constant("bool", "kStream", int(stream))]
    most = limits.parameter_bytes // 8 - 1
    rows = geometry.row_split
    if rows is None:
        launches = box_launches(geometry, input_alignment, output_alignment, common, most)
    else:
        launches = row_launches(rows, input_alignment, output_alignment, common, most)
    return LaunchPlan(tuple(launches))
