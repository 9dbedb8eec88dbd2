"""The engine of ``Device("cpu")``."""

from dataclasses import dataclass

from dmlsplit.backends import Program
from dmlsplit.backends.cpu import assignments, native, threads
from dmlsplit.geometry import SplitGeometry


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """Copies in C, or with NumPy where the library is missing or turned off."""

    device: str = "cpu"

    def compile(self, geometry: SplitGeometry) -> Program:
        """A program in C, or of NumPy's assignments if the library is missing or turned off."""
        threads.thread_count()  # raises the error of an invalid variable before a split is bound
        library = native.library()
        return native.program_of(geometry, library) if library else assignments.program_of(geometry)
