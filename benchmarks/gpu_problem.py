"""A case in GPU memory, and a peer prepared for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np

from benchmarks.cases import Case

Mode = Literal["graph", "queue", "wall"]


@dataclass(frozen=True, slots=True)
class BufferSet:
    """An input on the GPU and memory for its outputs, as CuPy arrays of integers.

    `memory` has the bytes that hold the input and starts at an aligned address. `joined` is the
    packed tensor that the outputs are views of, or None.
    """

    array: Any
    outputs: list[Any]
    memory: Any
    joined: Any = None


@dataclass(frozen=True, slots=True)
class GpuProblem:
    """A case with several sets of buffers, which together exceed the cache."""

    case: Case
    sets: list[BufferSet]

    def views(self, index: int) -> list[Any]:
        """The pieces of an input, as CuPy views."""
        views, start = [], 0
        for size in self.case.sizes:
            cut = (slice(None),) * self.case.axis + (slice(start, start + size),)
            views.append(self.sets[index].array[cut])
            start += size
        return views

    def in_one_tensor(self) -> "GpuProblem":
        """The problem with outputs that follow one another in new memory, if they are separate."""
        if self.case.joined_at is not None:
            return self
        case = replace(self.case, joined_at=0)
        sets = [replace(one, **empty_outputs(case)) for one in self.sets]
        return GpuProblem(case, sets)


def empty_outputs(case: Case) -> dict[str, Any]:
    """The fields `outputs` and `joined` of a set of buffers, in new poisoned memory."""
    if case.joined_at is None:
        outputs, joined = [_empty(case, shape) for shape in case.output_shapes], None
    else:
        joined = _empty(case, case.shape)
        outputs = case.parts(joined)
    poison(outputs)
    return {"outputs": outputs, "joined": joined}


def _empty(case: Case, shape: Sequence[int]) -> Any:
    import cupy

    dtype, start = np.dtype(case.dtype), case.misaligned[1]
    memory = cupy.cuda.alloc(start + prod(shape) * dtype.itemsize)
    return cupy.ndarray(shape, dtype, memory + start)


def poison(outputs: Sequence[Any]) -> None:
    """Overwrite all memory of outputs, and the gaps between their elements."""
    import cupy

    for memory in {id(out.data.mem): out.data.mem for out in outputs}.values():
        cupy.cuda.MemoryPointer(memory, 0).memset_async(0xA5, memory.size)


@dataclass(frozen=True, slots=True)
class GpuPrepared:
    """A call on set `i`, the place of its result, and how to time it.

    `mode`: "graph" can be captured in a CUDA graph; "queue" cannot, so its calls are queued one
    by one; "wall" runs on streams of its own and is timed by the host's clock. `is_split` is False
    for a plain copy.
    """

    call: Callable[[int], object]
    outputs: Callable[[int], list[Any]]
    mode: Mode
    is_split: bool = True


GpuPeer = Callable[[GpuProblem], GpuPrepared]
