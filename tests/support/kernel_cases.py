"""Splits to run through the kernels: their inputs, and the outputs that NumPy expects."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings

from dmlsplit.backends.cuda import planner
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.geometry import SplitGeometry, packed_byte_strides, split_geometry
from tests.host_cuda import harness

POISON = 0xEE
# Tags of splits: all blocks also run as machine code; numbers of a launch reach 31 or 32 bits.
MACHINE, WRAPS = "machine code", "wraps"
# The kernels that the planner chooses from.
SOURCES = Path(__file__).parents[2].joinpath("cuda").glob("*.cu")
KERNELS = {path.stem for path in SOURCES}

each_toolchain = pytest.mark.parametrize(
    "toolchain", [harness.SANITIZED, harness.COUNTING], ids=["sanitizers", "hazards"]
)
# Each case costs a compilation, so it is too expensive to search for a smaller failing one.
COMPILING = settings(
    settings.get_profile("default"), phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor are; strides are in bytes, and may be 0 or negative."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int

    @property
    def origin(self) -> int:
        """Bytes of the buffer before the first element."""
        return -sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True) if n)

    @property
    def size(self) -> int:
        """Bytes from the start of the lowest element to the end of the highest."""
        if 0 in self.shape:
            return 0
        reach = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        return self.origin + reach + self.element_bytes

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The tensor inside the bytes of its buffer."""
        kind = np.dtype(f"V{self.element_bytes}")
        return np.ndarray(self.shape, kind, memory, self.origin, self.strides)


@dataclass(frozen=True)
class Case:
    """One split. Strides are in elements, and None if packed.

    `misaligned` has addresses modulo 4096: the input's, and one for all outputs or one for each.
    `tag` says which proof runs the split, if not all do that run splits of its size.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    axis: int = -1
    element_bytes: int = 1
    strides: tuple[int, ...] | None = None
    output_strides: tuple[tuple[int, ...] | None, ...] | None = None
    misaligned: tuple[int, ...] = (0, 0)
    limits: planner.DeviceLimits = field(default=H200.limits, repr=False)
    tag: str = ""

    @property
    def source(self) -> Layout:
        return self._layout(self.shape, self.strides)

    @property
    def targets(self) -> list[Layout]:
        axis = self.axis % len(self.shape)
        return [
            self._layout((*self.shape[:axis], size, *self.shape[axis + 1 :]), strides)
            for size, strides in zip(
                self.sizes, self.output_strides or [None] * len(self.sizes), strict=True
            )
        ]

    def _layout(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Layout:
        width = self.element_bytes
        if strides is None:
            return Layout(shape, packed_byte_strides(shape, width), width)
        return Layout(shape, tuple(stride * width for stride in strides), width)

    @cached_property
    def geometry(self) -> SplitGeometry:
        return split_geometry(
            self.shape,
            self.axis % len(self.shape),
            self.sizes,
            self.element_bytes,
            self.source.strides,
            [layout.strides for layout in self.targets],
        )

    @property
    def output_phases(self) -> list[int]:
        """The address of each output, modulo 4096."""
        _, *phases = self.misaligned
        return phases * len(self.sizes) if len(phases) == 1 else phases

    @cached_property
    def launches(self) -> tuple[planner.KernelLaunch, ...]:
        phased_pieces = zip(self.geometry.pieces, self.output_phases, strict=True)
        outputs = gcd(VECTOR, *(phase for piece, phase in phased_pieces if piece.run_bytes))
        source = gcd(VECTOR, self.misaligned[0])
        return planner.plan(self.geometry, source, outputs, self.limits)

    @property
    def kernels(self) -> set[str]:
        return {launch.code.kernel for launch in self.launches}

    def random_source(self) -> np.ndarray:
        return np.random.default_rng(5).integers(0, 256, self.source.size, np.uint8)

    def expected(self, data: np.ndarray) -> list[np.ndarray]:
        """Every output's buffer: NumPy's elements, with poison between them."""
        whole = self.source.view(data)
        parts = np.split(whole, np.cumsum(self.sizes)[:-1], axis=self.axis)
        buffers = []
        for layout, part in zip(self.targets, parts, strict=True):
            memory = np.full(layout.size, POISON, np.uint8)
            if memory.size:
                layout.view(memory)[...] = part
            buffers.append(memory)
        return buffers

    def empty_buffers(self, outputs: Iterable[int]) -> list[harness.Buffer]:
        """Zeroed memory of the input and some of the outputs, of any size."""
        layouts = [self.source, *(self.targets[o] for o in outputs)]
        phases = [self.misaligned[0], *(self.misaligned[1] for _ in outputs)]
        return [
            harness.Buffer(layout.size, layout.origin, phase)
            for layout, phase in zip(layouts, phases, strict=True)
        ]

    def buffers(self, data: np.ndarray, outputs: Iterable[int]) -> list[harness.Buffer]:
        """The input, and the poisoned memory of some of the outputs."""
        layouts = self.targets
        poisoned = [
            harness.Buffer(
                layouts[o].size,
                layouts[o].origin,
                self.output_phases[o],
                ((0, np.full(layouts[o].size, POISON, np.uint8)),),
                ((0, layouts[o].size),),
            )
            for o in outputs
        ]
        return [self.source_buffer(data), *poisoned]

    def source_buffer(self, data: np.ndarray) -> harness.Buffer:
        """The input, which is brought back completely."""
        whole = (0, data.size)
        return harness.Buffer(
            data.size, self.source.origin, self.misaligned[0], ((0, data),), (whole,)
        )


@dataclass(frozen=True)
class Ran:
    """The memory after one case."""

    data: np.ndarray
    source: np.ndarray
    targets: list[np.ndarray]
    stored_bytes: int


def run(
    cases: Sequence[Case], folder: Path, toolchain: harness.Toolchain = harness.SANITIZED
) -> list[Ran | harness.KernelFaultError]:
    """Compile the launches of all cases together, and run them two at a time."""
    sources = [[launch.code.source for launch in case.launches] for case in cases]
    programs = harness.build([text for texts in sources for text in texts], folder, toolchain)

    def one(case: Case, texts: list[str]) -> Ran | harness.KernelFaultError:
        data = case.random_source()
        source = data
        targets = [np.full(layout.size, POISON, np.uint8) for layout in case.targets]
        stored_bytes = 0
        for launch, text in zip(case.launches, texts, strict=True):
            buffers = case.buffers(data, launch.outputs)
            try:
                outcome = programs[text].run(
                    launch.grid,
                    launch.threads,
                    buffers,
                    counting=True,
                    arguments=launch.argument_bytes,
                )
            except harness.KernelFaultError as fault:
                fault.add_note(f"{launch.code.kernel} in {case}")
                return fault
            sources, *windows = outcome.windows
            source = np.concatenate(sources)
            for output, (window,) in zip(launch.outputs, windows, strict=True):
                targets[output] = window
            stored_bytes += outcome.counts.store_bytes
        return Ran(data, source, targets, stored_bytes)

    with ThreadPoolExecutor(harness.COMPILERS) as pool:
        return list(pool.map(one, cases, sources))


def check(case: Case, result: Ran | harness.KernelFaultError) -> None:
    """Assert that a case wrote NumPy's bytes, each one once, and nothing else."""
    if isinstance(result, harness.KernelFaultError):
        raise result
    assert np.array_equal(result.source, result.data), "the input changed"
    for i, (output, expected) in enumerate(
        zip(result.targets, case.expected(result.data), strict=True)
    ):
        wrong = np.flatnonzero(output != expected)
        assert wrong.size == 0, (
            f"output {i} of {case} by {case.kernels}: "
            f"{wrong.size} of {expected.size} bytes differ, "
            f"the first at {wrong[0]}: {output[wrong[0]]:#x}, expected {expected[wrong[0]]:#x}"
        )
    assert result.stored_bytes == case.geometry.total_bytes, "bytes are written more than once"


def chosen(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[str]:
    """The names that a test of this session runs with, unless it is skipped."""
    items = (item for item in request.session.items if not item.get_closest_marker("skip"))
    return [i.callspec.params["name"] for i in items if getattr(i, "function", None) is test]


def run_and_compare(cases: Sequence[Case], builds: Path, toolchain: harness.Toolchain) -> None:
    """Compile and run cases together, and compare every byte with NumPy, as `check` does.

    Hazards are those of shared memory, so cases without it do not run again to look for them.
    """
    if toolchain is harness.COUNTING:
        cases = [
            case
            for case in cases
            if any(kernel_launch.shared_bytes for kernel_launch in case.launches)
        ]
    for case, result in zip(cases, run(cases, builds, toolchain), strict=True):
        check(case, result)


def with_launches(case: Case, launches: Sequence[planner.KernelLaunch]) -> Case:
    """The case with these launches instead of those of its plan."""
    changed = replace(case)
    changed.__dict__["launches"] = tuple(launches)
    return changed


def tagged(tag: str, cases: Mapping[str, Case]) -> dict[str, Case]:
    """The splits of a table with a tag."""
    return {name: case for name, case in cases.items() if tag == case.tag}


def small_parameters(case: Case) -> Case:
    """The case on a driver that accepts 4096 bytes of parameters."""
    return replace(case, limits=H200.limits._replace(parameter_bytes=4096))
