"""cuda.core's `copy_batch`: one call of the driver for the copies of all rows and outputs.

cuda.core 1.2 or newer has it (github.com/NVIDIA/cuda-python/pull/2593). It calls
cuMemcpyBatchAsync, which a CUDA graph cannot capture.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dmlsplit.geometry import RowSplit

if TYPE_CHECKING:
    from benchmarks.gpu_problem import GpuProblem

# Each copy is two objects of Python and an entry in the driver's tables.
MAX_COPIES = 100_000


def prepare(problem: "GpuProblem") -> Callable[[int], None]:
    """Describe all copies, and return the call."""
    import cupy
    from cuda.core import Buffer, Device, Stream
    from cuda.core.utils import copy_batch

    rows = problem.case.geometry.row_split
    if rows is None:
        raise NotImplementedError("takes packed arrays only; not called with strided ones")
    if (count := rows.rows * len(rows.outputs)) > MAX_COPIES:
        raise NotImplementedError(f"not called: {count} copies are more than {MAX_COPIES}")
    Device(cupy.cuda.Device().id).set_current()
    stream = Stream.from_handle(cupy.cuda.get_current_stream().ptr)

    def buffers(index: int) -> tuple[list[Any], list[Any]]:
        entry = problem.sets[index]
        source, outputs = entry.array.data.ptr, [out.data.ptr for out in entry.outputs]
        parts = list(copies(rows))
        return (
            [Buffer.from_handle(source + start, size) for start, _, _, size in parts],
            [Buffer.from_handle(outputs[output] + start, size) for _, output, start, size in parts],
        )

    sets = [buffers(index) for index in range(len(problem.sets))]
    return lambda index: copy_batch(stream, *sets[index])


def copies(split: RowSplit) -> Iterator[tuple[int, int, int, int]]:
    """The first byte in the input, the output, the first byte in it, and the bytes of each copy."""
    for row in range(split.rows):
        columns = zip(split.outputs, split.offsets, split.widths, strict=True)
        for output, offset, width in columns:
            if width:
                yield row * split.pitch + offset, output, row * width, width
