"""A case in GPU memory, and a peer prepared for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.cases import Case

Mode = Literal["graph", "queue", "wall"]


@dataclass(frozen=True, slots=True)
class BufferSet:
    """An input on the GPU and memory for its outputs, as CuPy arrays of integers.

    `memory` has the bytes that hold the input and starts at an aligned address.
    """

    array: Any
    outputs: list[Any]
    memory: Any


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
