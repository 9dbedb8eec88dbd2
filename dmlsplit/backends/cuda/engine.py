"""The CUDA engine: it compiles the kernels of a plan once, and launches them on any memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any, NamedTuple

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.cupy_driver import Driver
from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.cuda.raw_kernels import Launcher
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.errors import UnsupportedError
from dmlsplit.geometry import Selector, SplitGeometry, selector

Variant = tuple[tuple[Selector, Launcher], ...]


class CudaProgram(NamedTuple):
    """A geometry, and its variants: each is for one alignment of memory, and made when needed.

    A tuple, because one is made for every new combination of sizes.
    """

    driver: Driver
    device: int
    geometry: SplitGeometry
    # Selects the outputs that have elements; addresses of empty ones are ignored.
    select_nonempty: Selector
    variants: dict[tuple[int, int], Variant]

    def add_variant(self, input_alignment: int, output_alignment: int) -> Variant:
        """Plan and compile the launches for addresses that are multiples of these alignments."""
        alignments = input_alignment, output_alignment
        driver = self.driver
        device = self.device
        count = self.geometry.output_count
        kernels = driver.kernels
        launches = []
        for launch in plan(self.geometry, *alignments, driver.limits(device)):
            kernel = kernels.loaded(device, launch.code.source)
            if kernel is None:
                codes = [specialization.code for specialization in (launch, *launch.siblings())]
                kernel, *_ = [kernels.load(device, code.source, code.kernel) for code in codes]
            launcher = driver.launcher(device, kernel, launch)
            launches.append((selector(launch.outputs, count), launcher))
        return self.variants.setdefault(alignments, tuple(launches))

    def prepare(self, alignment: int = VECTOR) -> None:
        """Compile the kernels for all memory whose addresses are multiples of an alignment."""
        powers = [2**n for n in range(VECTOR.bit_length()) if 2**n >= alignment]
        for alignments in product(powers, powers):
            if alignments not in self.variants:
                self.add_variant(*alignments)

    def _variant_of(self, src: int, dsts: Sequence[int]) -> Variant:
        """The variant for the alignment of these addresses."""
        alignments = gcd(VECTOR, src), gcd(VECTOR, *self.select_nonempty(dsts))
        return self.variants.get(alignments) or self.add_variant(*alignments)

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses. Their alignment selects the variant, which is compiled if new."""
        device = self.device
        variant = self._variant_of(src, dsts)
        launches = [launcher.bind((src, *select(dsts))) for select, launcher in variant]

        def copy(stream: Any = None) -> None:
            handle = None if stream is None else stream_handle(stream, device)
            for launch in launches:
                launch(handle)

        return copy

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``."""
        handle = None if stream is None else stream_handle(stream, self.device)
        for select, launcher in self._variant_of(src, dsts):
            launcher.launch_at((src, *select(dsts)), handle)


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """The engine of ``Device("cuda:N")``, which must exist."""

    device_number: int = 0

    def __post_init__(self) -> None:
        loaded = driver.load()
        count = loaded.device_count
        if self.device_number >= count:
            devices = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
            raise UnsupportedError(f"device is {self.device!r}; this machine has {devices}")
        if message := loaded.why_unusable(self.device_number):
            raise UnsupportedError(message)

    @property
    def device(self) -> str:
        """``cuda:N``."""
        return f"cuda:{self.device_number}"

    def compile(self, geometry: SplitGeometry) -> CudaProgram:
        """A program without variants: kernels are compiled by `prepare`, or by the first `bind`."""
        rows = geometry.row_split
        count = geometry.output_count
        select_nonempty = (
            tuple if rows and 0 not in rows.widths else selector(geometry.nonempty, count)
        )
        return CudaProgram(driver.load(), self.device_number, geometry, select_nonempty, {})
