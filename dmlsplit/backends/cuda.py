"""The CUDA engine: plans, compiles and packs at bind time, so that a dispatch only launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dmlsplit.backends import Launch, codegen, driver
from dmlsplit.backends.kernel_launch import VECTOR, KernelLaunch, power_of_two
from dmlsplit.backends.planning import plan
from dmlsplit.backends.prepacked import Enqueue
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import SplitGeometry

Alignments = tuple[int, int]
Kernels = tuple[tuple[KernelLaunch, driver.Kernel], ...]


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """The engine of ``Device("cuda:N")``."""

    device: str = "cuda:0"

    def compile(self, geometry: SplitGeometry) -> CudaProgram:
        """Make a program of a geometry; its kernels are compiled when alignments are known."""
        return CudaProgram(int(self.device.removeprefix("cuda:")), geometry)


@dataclass(frozen=True, slots=True)
class CudaProgram:
    """A compiled geometry.

    Attributes
    ----------
    device : int
        Number of the CUDA device.
    geometry : SplitGeometry
        What it copies.
    variants : dict
        Launches and kernels by the alignments of input and outputs, filled as they are met.
    """

    device: int
    geometry: SplitGeometry
    variants: dict[Alignments, Kernels] = field(default_factory=dict, compare=False)

    def bind(self, source: int, targets: Sequence[int]) -> Launch:
        """Fix the address of the first element of the input and of each output."""
        kernels = self.kernels(*self._alignments(source, targets))
        enqueuers = [
            driver.enqueuer(
                kernel,
                launch.grid,
                launch.block,
                [source, *(targets[index] for index in launch.outputs)],
            )
            for launch, kernel in kernels
        ]
        return _launch(self.device, enqueuers)

    def kernels(self, source_alignment: int, target_alignment: int) -> Kernels:
        """Return the launches of one class of alignments, compiled where they are not yet."""
        found = self.variants.get((source_alignment, target_alignment))
        if found is None:
            limits = driver.limits(self.device)
            planned = plan(self.geometry, source_alignment, target_alignment, limits)
            found = tuple(
                (launch, _kernel(self.device, launch.kernel, codegen.source(launch)))
                for launch in planned.launches
            )
            self.variants[source_alignment, target_alignment] = found
        return found

    def _alignments(self, source: int, targets: Sequence[int]) -> Alignments:
        pieces = self.geometry.pieces
        written = (t for t, piece in zip(targets, pieces, strict=True) if piece.run_bytes)
        return power_of_two(VECTOR, source), power_of_two(VECTOR, *written)


@lru_cache(maxsize=1024)
def _kernel(device: int, name: str, source: str) -> driver.Kernel:
    return driver.load(device, name, source)


def _launch(device: int, enqueuers: Sequence[Enqueue]) -> Launch:
    current_stream = driver.current_stream
    if len(enqueuers) == 1:
        (enqueue,) = enqueuers

        def launch_one(stream: Any = None) -> None:
            enqueue(current_stream(device) if stream is None else stream_handle(stream, device))

        return launch_one

    def launch_all(stream: Any = None) -> None:
        handle = current_stream(device) if stream is None else stream_handle(stream, device)
        for each in enqueuers:
            each(handle)

    return launch_all


def stream_handle(stream: Any, device: int) -> int:
    """Return the handle of anything that stands for a CUDA stream.

    Parameters
    ----------
    stream
        A raw handle, a CuPy or PyTorch stream, or anything with ``__cuda_stream__``.
    device
        The device it must belong to, where it says.

    Raises
    ------
    InvalidArgumentError
        If it is no stream, or one of another device.
    """
    if type(stream) is int and 0 <= stream < 2**64:
        return stream
    owner = _device_of_stream(stream)
    if owner is not None and owner != device:
        raise InvalidArgumentError(
            f"stream belongs to cuda:{owner}; it must belong to cuda:{device}"
        )
    handle = _foreign_handle(stream)
    if type(handle) is int and 0 <= handle < 2**64:
        return handle
    shown = f" {stream!r}" if isinstance(stream, (int, str)) else ""
    raise InvalidArgumentError(
        f"stream is a {type(stream).__qualname__}{shown}; it must be a CuPy or PyTorch stream, "
        "an object with __cuda_stream__, a handle (int of 0 or more), or None"
    )


def _foreign_handle(stream: Any) -> Any:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # (version, handle); once a property, now a method.
        found = protocol() if callable(protocol) else protocol
        return found[1] if isinstance(found, tuple) and len(found) == 2 else None
    return getattr(stream, "cuda_stream", getattr(stream, "ptr", None))


def _device_of_stream(stream: Any) -> int | None:
    """CuPy says `device_id` (-1: any), PyTorch says `device_index`."""
    number = getattr(stream, "device_id", getattr(stream, "device_index", None))
    return number if type(number) is int and number >= 0 else None
