"""How many outputs the planner puts into one launch, for splits of several layouts."""

from collections.abc import Callable
from functools import cache, partial

from dmlsplit import SplitOperatorDesc, TensorDesc
from dmlsplit.backends.cuda.gpus import find_gpu
from dmlsplit.backends.cuda.launch import KernelLaunch
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT

ROWS = 64
SHOWN = 100, 1000, 4000


def _packed(width: Callable[[int], int], count: int) -> SplitOperatorDesc:
    """Outputs that are `width` bytes wide, by their number."""
    return _split(list(map(width, range(count))))


def _split(
    sizes: list[int], data_type: str = "UINT8", strides: tuple[int, int] | None = None
) -> SplitOperatorDesc:
    tensor = TensorDesc(data_type, (ROWS, sum(sizes)), strides=strides)
    return SplitOperatorDesc.from_sizes(tensor, axis=1, sizes=sizes)


# Functions from a number of outputs to a split, by the description of its layout.
LAYOUTS: dict[str, Callable[[int], SplitOperatorDesc]] = {
    "wide, all of one width": partial(_packed, lambda _: 4096),
    "wide, of different widths": partial(_packed, lambda at: 4096 + 16 * (at % 3)),
    "narrow, 16 bytes": partial(_packed, lambda _: 16),
    "narrow, 4 to 8 bytes": partial(_packed, lambda at: 4 + at % 5),
    "narrow, 100 bytes": partial(_packed, lambda _: 100),
    "wide and narrow, alternating": partial(_packed, lambda at: (4096, 5)[at % 2]),
    "every second element of the input": lambda count: _split(
        [16] * count, "FLOAT32", (32 * count, 2)
    ),
    "a transposed input": lambda count: _split([16] * count, "FLOAT32", (1, ROWS)),
}


@cache
def planned(layout: str, count: int) -> tuple[KernelLaunch, ...]:
    """The launches of a split with this layout on an H200."""
    geometry = descriptor_geometry(LAYOUTS[layout](count))
    aligned = MINIMUM_BUFFER_TENSOR_ALIGNMENT
    return plan(geometry, aligned, aligned, find_gpu("H200").limits)


def launches(layout: str, count: int) -> int:
    """The number of launches that a split with this layout takes."""
    return len(planned(layout, count))


def most_in_one_launch(layout: str) -> int:
    """The most outputs that fit one launch; 0 if two outputs already take more launches.

    The search begins with the outputs that fit a launch of a larger split, nearly the answer.
    """
    if launches(layout, 2) > 1:
        return 0
    count = SHOWN[-1]
    while launches(layout, count) == 1:
        count *= 2
    least = planned(layout, count)[0].code.slots
    most = least + 1
    while launches(layout, most) == 1:
        least, most = most, most + 2 * (most - least)
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if launches(layout, middle) == 1 else (least, middle)
    return least
