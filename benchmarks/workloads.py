"""The splits that the kernels are measured by: where models use them, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from benchmarks.cases import CASES, Case


@dataclass(frozen=True, slots=True)
class Workload:
    """One split.

    Attributes
    ----------
    number : int
        Its row number in reports.
    name : str
        What it is in a model.
    shape : tuple of int
        Shape of the input, in elements.
    dtype : str
        NumPy's name of an unsigned integer of the same width as the element.
    axis : int
        The axis that is split; not negative.
    sizes : tuple of int
        Sizes of the outputs along that axis.
    strides : tuple of int or None
        Strides of the input, in elements; None if it is packed.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.removeprefix("uint")) // 8

    @property
    def total_bytes(self) -> int:
        """Bytes of the input."""
        return prod(self.shape) * self.element_bytes

    @property
    def case(self) -> Case:
        """The same split as a case of the GPU benchmark."""
        strides = self.strides and tuple(step * self.element_bytes for step in self.strides)
        name = f"{self.number} {self.name}"
        return Case(name, CASES, self.shape, self.dtype, self.axis, self.sizes, strides=strides)


def _fsdp_sizes() -> tuple[int, ...]:
    """290 uneven parameters of 53 million elements: norms, projections, odd biases."""
    pattern = (4096, 262144, 65536, 65536, 262144, 4096, 389120, 389121, 389119, 127)
    return pattern * 29


BYTE, HALF, SINGLE, DOUBLE = "uint8", "uint16", "uint32", "uint64"

WORKLOADS = (
    Workload(1, "QKV, GQA prefill", (8192, 10240), HALF, 1, (8192, 1024, 1024)),
    Workload(2, "QKV, decode", (64, 10240), HALF, 1, (8192, 1024, 1024)),
    Workload(3, "QKV, MHA", (4, 2048, 36864), HALF, 2, (12288,) * 3),
    Workload(4, "SwiGLU halves", (16384, 28672), HALF, 1, (14336,) * 2),
    Workload(5, "GDN in_proj", (4096, 13952), HALF, 1, (12288, 512, 512, 640)),
    Workload(6, "MLA kv 512 + 64", (16384, 576), HALF, 1, (512, 64)),
    Workload(7, "RoPE head halves", (16384, 64, 128), HALF, 2, (64, 64)),
    Workload(8, "LSTM gates", (512, 4096), SINGLE, 1, (1024,) * 4),
    Workload(9, "FSDP copy-out", (8, sum(_fsdp_sizes())), SINGLE, 1, _fsdp_sizes()),
    Workload(10, "axis 0, 256 x 4 MiB", (256, 1 << 20), SINGLE, 0, (1,) * 256),
    Workload(11, "axis 0, 4096 x 64 KiB", (4096, 1 << 14), SINGLE, 0, (1,) * 4096),
    Workload(12, "C2f halves", (32, 128, 80, 80), HALF, 1, (64, 64)),
    Workload(13, "ShuffleNet 58 + 58", (64, 116, 28, 28), HALF, 1, (58, 58)),
    Workload(14, "7x7 odd inner", (64, 1536, 7, 7), HALF, 1, (384, 384, 768)),
    Workload(15, "YOLO head 85", (32, 25200, 85), HALF, 2, (2, 2, 1, 80)),
    Workload(16, "YOLOv8 64 + 80", (32, 8400, 144), HALF, 2, (64, 80)),
    Workload(17, "RGB u8 NHWC", (32, 2160, 3840, 3), BYTE, 3, (1,) * 3),
    Workload(18, "RGBA u8", (32, 2160, 3840, 4), BYTE, 3, (1,) * 4),
    Workload(19, "complex64 re/im", (1 << 28, 2), SINGLE, 1, (1, 1)),
    Workload(20, "complex128 re/im", (1 << 27, 2), DOUBLE, 1, (1, 1)),
    Workload(21, "32 x 1-wide fp32", (1 << 22, 32), SINGLE, 1, (1,) * 32),
    Workload(22, "vocabulary, odd offset", (4096, 50257), HALF, 1, (25129, 25128)),
    Workload(23, "bytes, misaligned", (65536, 4099), BYTE, 1, (1000, 3099)),
    Workload(24, "1000 x 8-wide fp32", (65536, 8000), SINGLE, 1, (8,) * 1000),
    Workload(25, "rank 8, axis 4", (4, 3, 8, 5, 6, 7, 16, 33), HALF, 4, (2, 2, 2)),
    Workload(26, "transposed input", (8192, 8192), SINGLE, 1, (4096, 4096), strides=(1, 8192)),
)


def scaled(workload: Workload, max_bytes: int) -> Workload:
    """Return the workload with fewer rows, so that its input has about `max_bytes` at most.

    Only dimensions before the axis shrink, and never below 1, so that widths, offsets and
    alignments stay. If the axis is the first, or the input is strided, nothing can shrink without
    changing those, and the workload is returned as it is.
    """
    if workload.strides is not None:
        return workload
    shape = list(workload.shape)
    for d in range(workload.axis):
        excess = prod(shape) * workload.element_bytes / max_bytes
        if excess > 1:
            shape[d] = max(1, int(shape[d] / excess))
    return replace(workload, shape=tuple(shape))
