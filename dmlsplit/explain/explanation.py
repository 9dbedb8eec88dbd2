"""What a split comes down to: bytes, kernels, and the time at the bandwidth of a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from dmlsplit.backends.cuda.gpus import Gpu
from dmlsplit.backends.cuda.planner import LaunchPlan, plan
from dmlsplit.directml.operator import SplitOperatorDesc, descriptor_geometry
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT
from dmlsplit.geometry import SplitGeometry


@dataclass(frozen=True, slots=True)
class Explanation:
    """The geometry, kernels and expected time of one split.

    Attributes
    ----------
    place : str
        Where the split is.
    desc : SplitOperatorDesc
        Its descriptor, which is valid.
    geometry : SplitGeometry
        The bytes that it copies.
    plan : LaunchPlan
        The kernel launches, for buffers whose addresses are multiples of 16.
    gpu : Gpu
        The GPU that the time is for.
    """

    place: str
    desc: SplitOperatorDesc
    geometry: SplitGeometry
    plan: LaunchPlan
    gpu: Gpu

    @property
    def bytes_moved(self) -> int:
        """Bytes read plus bytes written."""
        return 2 * self.geometry.total_bytes

    @property
    def seconds(self) -> float:
        """Seconds to move the bytes at the GPU's peak bandwidth: a lower bound."""
        return self.bytes_moved / self.gpu.bandwidth


def explain(place: str, desc: SplitOperatorDesc, gpu: Gpu) -> Explanation:
    """Explain a descriptor that has passed validation."""
    geometry = descriptor_geometry(desc)
    aligned = MINIMUM_BUFFER_TENSOR_ALIGNMENT  # as every binding is, at least
    return Explanation(place, desc, geometry, plan(geometry, aligned, aligned, gpu.limits), gpu)
