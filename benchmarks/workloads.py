"""The splits on which the kernels are measured: where models use them, and their sizes."""

from dataclasses import replace
from math import prod

import numpy as np

from benchmarks.cases import CASES, Case


def _case(
    number: int,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    axis: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    misaligned: tuple[int, int] = (0, 0),
    joined_at: int | None = None,
) -> Case:
    """A case at its row number in reports; `strides` are in elements."""
    width = np.dtype(dtype).itemsize
    steps = strides and tuple(step * width for step in strides)
    split = shape, dtype, axis, sizes
    return Case(f"{number} {name}", CASES, *split, number, steps, misaligned, joined_at)


def _fsdp_sizes() -> tuple[int, ...]:
    """290 uneven parameters of 53 million elements: norms, projections, odd biases."""
    pattern = (4096, 262144, 65536, 65536, 262144, 4096, 389120, 389121, 389119, 127)
    return pattern * 29


# FSDP2's all-gather copy-out as in github.com/pytorch/pytorch/pull/197701: 8 shards, 224 MiB.
_FSDP2 = 224 << 20 >> 1 >> 3  # bf16 elements of a shard
# Rows of 64 experts: 4,096 tokens, 8 experts each. They were drawn once, with NumPy's
# default_rng(64): the experts' shares from a Dirichlet distribution with concentration 1.5, then
# the rows from a multinomial distribution.
_EXPERT_ROWS = (
    184, 64, 1005, 115, 276, 425, 81, 126, 320, 524, 81, 724, 289, 285, 1346, 114, 728, 565,
    1970, 973, 51, 387, 455, 1355, 430, 298, 639, 340, 278, 271, 675, 1031, 536, 59, 500, 1213,
    613, 988, 499, 402, 361, 268, 128, 763, 368, 483, 649, 784, 707, 177, 414, 336, 30, 275,
    529, 360, 122, 2000, 353, 470, 473, 54, 349, 1100,
)  # fmt: skip
# A crop of 1920 columns from images that are one column wider: rows begin at odd addresses.
_CROPPED = (1080 * 5763, 5763, 3, 1)

BYTE, HALF, SINGLE, DOUBLE = "uint8", "uint16", "uint32", "uint64"

WORKLOADS = (
    _case(1, "QKV, GQA prefill", (8192, 10240), HALF, 1, (8192, 1024, 1024)),
    _case(2, "QKV, decode", (64, 10240), HALF, 1, (8192, 1024, 1024)),
    _case(3, "QKV, MHA", (4, 2048, 36864), HALF, 2, (12288,) * 3),
    _case(4, "SwiGLU halves", (16384, 28672), HALF, 1, (14336,) * 2),
    _case(5, "GDN in_proj", (4096, 13952), HALF, 1, (12288, 512, 512, 640)),
    _case(6, "MLA kv 512 + 64", (16384, 576), HALF, 1, (512, 64)),
    _case(7, "RoPE head halves", (16384, 64, 128), HALF, 2, (64, 64)),
    _case(8, "LSTM gates", (512, 4096), SINGLE, 1, (1024,) * 4),
    _case(9, "FSDP copy-out", (8, sum(_fsdp_sizes())), SINGLE, 1, _fsdp_sizes()),
    _case(10, "axis 0, 256 x 4 MiB", (256, 1 << 20), SINGLE, 0, (1,) * 256),
    _case(11, "axis 0, 4096 x 64 KiB", (4096, 1 << 14), SINGLE, 0, (1,) * 4096),
    _case(12, "C2f halves", (32, 128, 80, 80), HALF, 1, (64, 64)),
    _case(13, "ShuffleNet 58 + 58", (64, 116, 28, 28), HALF, 1, (58, 58)),
    _case(14, "7x7 odd inner", (64, 1536, 7, 7), HALF, 1, (384, 384, 768)),
    _case(15, "YOLO head 85", (32, 25200, 85), HALF, 2, (2, 2, 1, 80)),
    _case(16, "YOLOv8 64 + 80", (32, 8400, 144), HALF, 2, (64, 80)),
    _case(17, "RGB u8 NHWC", (32, 2160, 3840, 3), BYTE, 3, (1,) * 3),
    _case(18, "RGBA u8", (32, 2160, 3840, 4), BYTE, 3, (1,) * 4),
    _case(19, "complex64 re/im", (1 << 28, 2), SINGLE, 1, (1, 1)),
    _case(20, "complex128 re/im", (1 << 27, 2), DOUBLE, 1, (1, 1)),
    _case(21, "32 x 1-wide fp32", (1 << 22, 32), SINGLE, 1, (1,) * 32),
    _case(22, "vocabulary, odd offset", (4096, 50257), HALF, 1, (25129, 25128)),
    _case(23, "bytes, misaligned", (65536, 4099), BYTE, 1, (1000, 3099)),
    _case(24, "1000 x 8-wide fp32", (65536, 8000), SINGLE, 1, (8,) * 1000),
    _case(25, "rank 8, axis 4", (4, 3, 8, 5, 6, 7, 16, 33), HALF, 4, (2, 2, 2)),
    _case(26, "transposed input", (8192, 8192), SINGLE, 1, (4096, 4096), strides=(1, 8192)),
    _case(27, "FSDP2, 2 outputs", (8, _FSDP2), HALF, 1, (_FSDP2 // 2,) * 2),
    _case(28, "FSDP2, 128 outputs", (8, _FSDP2), HALF, 1, (_FSDP2 // 128,) * 128),
    _case(29, "FSDP2, 8192 outputs", (8, _FSDP2), HALF, 1, (_FSDP2 // 8192,) * 8192),
    _case(30, "MoE, 64 experts", (sum(_EXPERT_ROWS), 7168), HALF, 0, _EXPERT_ROWS),
    _case(31, "every second byte", (16384, 8192), BYTE, 1, (4096,) * 2, strides=(16384, 2)),
    _case(32, "every second half", (16384, 4096), HALF, 1, (2048,) * 2, strides=(8192, 2)),
    _case(33, "1 wide, 2000 bytes", (16384, 202000), BYTE, 1, (200000, *(1,) * 2000)),
    _case(34, "RGB, odd pitch", (32, 1080, 1920, 3), BYTE, 3, (1,) * 3, strides=_CROPPED),
    _case(35, "QKV, odd phases", (8192, 10240), HALF, 1, (8192, 1024, 1024), misaligned=(2, 6)),
    _case(36, "NCDHW channels", (128, 128, 8, 28, 28), HALF, 1, (48, 80)),
    _case(37, "8 x 301 bytes", (65536, 2408), BYTE, 1, (301,) * 8),
    _case(38, "16 x 101 bytes", (65536, 1616), BYTE, 1, (101,) * 16),
    _case(39, "RGB at odd addresses", (32, 2160, 3840, 3), BYTE, 3, (1,) * 3, misaligned=(1, 0)),
    _case(40, "points, outputs at 4", (1 << 24, 3), SINGLE, 1, (1,) * 3, misaligned=(0, 4)),
    _case(41, "complex64, input at 8", (1 << 26, 2), SINGLE, 1, (1, 1), misaligned=(8, 0)),
    _case(42, "RGBA at odd addresses", (32, 2160, 3840, 4), BYTE, 3, (1,) * 4, misaligned=(1, 0)),
    _case(43, "5 x 1 byte", (1 << 24, 5), BYTE, 1, (1,) * 5),
    _case(44, "8 x 1-wide fp32", (1 << 24, 8), SINGLE, 1, (1,) * 8),
    _case(45, "7 x 3 bytes", (1 << 23, 21), BYTE, 1, (3,) * 7),
    _case(46, "RGB, odd outputs", (32, 2160, 3840, 3), BYTE, 3, (1,) * 3, misaligned=(0, 1)),
    _case(47, "YOLO head 85, at 6", (32, 25200, 85), HALF, 2, (2, 2, 1, 80), misaligned=(0, 6)),
    _case(48, "256 x 1 byte", (1 << 18, 256), BYTE, 1, (1,) * 256),
    _case(49, "qkvz, regrouped", (8192, 16, 768), HALF, 2, (128, 128, 256, 256), joined_at=1),
    _case(50, "every second float", (16384, 4096), SINGLE, 1, (2048,) * 2, strides=(8192, 2)),
    _case(51, "every third float", (16384, 4096), SINGLE, 1, (2048,) * 2, strides=(12288, 3)),
    _case(52, "every fourth half", (16384, 4096), HALF, 1, (2048,) * 2, strides=(16384, 4)),
)

# Harder than these: many outputs of a few bytes, whose rows are in the same banks.
NARROWEST = (
    _case(1, "64 x 1 B", (1 << 20, 64), BYTE, 1, (1,) * 64),
    _case(2, "256 x 1 B", (1 << 18, 256), BYTE, 1, (1,) * 256),
    _case(3, "4000 x 1 B", (1 << 16, 4000), BYTE, 1, (1,) * 4000),
    _case(4, "2000 x 2 B", (1 << 16, 2000), HALF, 1, (1,) * 2000),
    _case(5, "90 x 5 B", (1 << 18, 450), BYTE, 1, (5,) * 90),
    _case(6, "1 and 7 B in turns", (1 << 16, 4000), BYTE, 1, (1, 7) * 500),
)


def scaled(workload: Case, max_bytes: int) -> Case:
    """The workload with fewer rows, so that its input has about `max_bytes` at most.

    Only dimensions before the axis that are outermost in memory shrink, and never below 1, so that
    widths, offsets, strides and alignments stay. If the axis is the first or the outermost,
    nothing can shrink, and the workload is returned unchanged.
    """
    shape = list(workload.shape)
    strides = workload.byte_strides
    for d in range(workload.axis):
        if strides[d] < max(strides[d:]):
            break
        excess = prod(shape) * workload.element_bytes / max_bytes
        if excess > 1:
            shape[d] = max(1, int(shape[d] / excess))
    return replace(workload, shape=tuple(shape))
