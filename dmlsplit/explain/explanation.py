"""What a split comes down to: bytes, kernels, and the time at the bandwidth of a GPU."""

from dataclasses import dataclass

from dmlsplit.backends.cuda.gpus import Gpu
from dmlsplit.backends.cuda.planner import KernelLaunch, plan
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT
from dmlsplit.geometry import SplitGeometry


@dataclass(frozen=True, slots=True)
class Explanation:
    """The geometry, kernels and expected time of one split."""

    place: str
    desc: SplitOperatorDesc  # valid
    geometry: SplitGeometry
    launches: tuple[KernelLaunch, ...]  # for buffers whose addresses are multiples of 16
    gpu: Gpu  # that the time is for

    @property
    def seconds(self) -> float | None:
        """Seconds to read and write the bytes at the GPU's peak bandwidth: a lower bound.

        None if that bandwidth is not known.
        """
        bandwidth = self.gpu.bandwidth
        return None if bandwidth is None else 2 * self.geometry.total_bytes / bandwidth


def explain(place: str, desc: SplitOperatorDesc, gpu: Gpu) -> Explanation:
    """Explain a descriptor that has passed validation."""
    geometry = descriptor_geometry(desc)
    aligned = MINIMUM_BUFFER_TENSOR_ALIGNMENT  # as every binding is, at least
    return Explanation(place, desc, geometry, plan(geometry, aligned, aligned, gpu.limits), gpu)
