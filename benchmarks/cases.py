"""What is split in the CPU and latency benchmarks, as data. GPU workloads: workloads.py."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import gcd, prod
from typing import Any

import numpy as np

from dmlsplit.geometry import SplitGeometry, packed_byte_strides, split_geometry

CASES = "case"
NARROW = "narrow"
ROW_WIDTH = "row width"
SIZE = "size"
CHANNELS = "channels"
OUTPUTS = "outputs"
CALLERS = "callers"
NEW = "new outputs"  # of PyTorch
STEP = "step"
SWEEP = "sweep"

SECTOR = 32  # bytes that a GPU reads at once, at least


@dataclass(frozen=True, slots=True)
class Case:
    """One split.

    Attributes
    ----------
    name
        Unique in its run.
    kind
        `CASES`, or the sweep that it belongs to.
    shape, dtype, axis, sizes
        The problem; `dtype` as NumPy writes it.
    at
        The value on the sweep's axis: bytes of a row, total bytes, number of outputs or callers. Of
        a workload, its number.
    strides
        Byte strides of the input, not negative; None for a packed one.
    misaligned
        How many bytes after a multiple of 16 the input starts, and each output.
    joined_at
        None if every output is packed in memory of its own. Otherwise the outputs are views of one
        packed tensor, which has one piece after the other for each index of the first `joined_at`
        dimensions: with 0, they follow one another; with 1, they are the columns of each row.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    axis: int
    sizes: tuple[int, ...]
    at: float = 0.0
    strides: tuple[int, ...] | None = None
    misaligned: tuple[int, int] = (0, 0)
    joined_at: int | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.dtype).itemsize

    @property
    def total_bytes(self) -> int:
        """Bytes of the input's elements, which are the bytes of all outputs."""
        return prod(self.shape) * self.element_bytes

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """Byte strides of the input, packed or not."""
        return self.strides or packed_byte_strides(self.shape, self.element_bytes)

    @property
    def span_bytes(self) -> int:
        """Bytes from the input's first element to the end of its last one in memory."""
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.byte_strides, strict=True))
        return reach + self.element_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes that must be read: a gap shorter than a sector of memory is read as well."""
        run, count = self.element_bytes, 1
        for stride, size in sorted(zip(self.byte_strides, self.shape, strict=True)):
            if stride - run < SECTOR:
                run += (size - 1) * stride
            else:
                count *= size
        return run * count

    @property
    def moved_bytes(self) -> int:
        """Half of the bytes that must be read and written: the length of a copy of equal work."""
        return (self.read_bytes + self.total_bytes) // 2

    @property
    def alignments(self) -> tuple[int, int]:
        """The largest powers of two, up to 16, that divide the addresses of input and outputs."""
        src, dst = self.misaligned
        return gcd(16, src), gcd(16, dst, *self.output_starts)

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        """Shape of each output."""
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        return [(*before, size, *after) for size in self.sizes]

    @property
    def output_strides(self) -> list[tuple[int, ...] | None]:
        """Byte strides of each output; None if it is packed."""
        if self.joined_at is None:
            return [None] * len(self.sizes)
        at, width = self.joined_at, self.element_bytes
        outer = packed_byte_strides(self.shape, width)[:at]
        return [(*outer, *packed_byte_strides(shape[at:], width)) for shape in self.output_shapes]

    @property
    def cuts(self) -> list[int]:
        """Elements before each output in a row of the tensor that joins them, and in the row."""
        step = prod(self.shape[self.joined_at :]) // self.shape[self.axis]
        return [step * end for end in accumulate(self.sizes, initial=0)]

    @property
    def output_starts(self) -> list[int]:
        """Bytes before each output in its memory."""
        joined = self.joined_at is not None
        return [joined * cut * self.element_bytes for cut in self.cuts[:-1]]

    def parts(self, joined: Any) -> list[Any]:
        """The outputs as views of the tensor that joins them, an array of any library."""
        rows = joined.reshape(*self.shape[: self.joined_at], -1)
        return [
            rows[..., first:last].reshape(shape)
            for (first, last), shape in zip(pairwise(self.cuts), self.output_shapes, strict=True)
        ]

    @property
    def geometry(self) -> SplitGeometry:
        """The geometry of the split."""
        split = self.shape, self.axis, self.sizes, self.element_bytes
        return split_geometry(*split, self.byte_strides, self.output_strides)


def cpu_cases(quick: bool) -> list[Case]:
    """Cases (a) to (g), and the sweeps unless `quick`."""
    cases = [
        Case("a: 4 pieces of 64 MiB", CASES, (64, 1024, 1024), "f4", 0, (16,) * 4),
        Case("b: QKV rows of 4+4+8 KiB", CASES, (4096, 4096), "f4", 1, (1024, 1024, 2048)),
        Case("c: 1+3 columns", CASES, (1 << 22, 4), "f4", 1, (1, 3)),
        Case("d: RGB planes", CASES, (3840 * 2160, 3), "u1", 1, (1, 1, 1)),
        Case("e: channel halves", CASES, (32, 256, 56, 56), "f4", 1, (128, 128)),
        Case("f: 256 pieces of 64 B rows", CASES, (2048, 4096), "f4", 1, (16,) * 256),
        Case("g: tiny", CASES, (6, 2), "f4", 0, (2, 1, 3)),
    ]
    if quick:
        return cases
    sweeps = (
        narrow(), row_widths(), total_sizes(), channels(), output_counts(), callers(),
        new_outputs(), steps(),
    )  # fmt: skip
    return cases + [case for sweep in sweeps for case in sweep]


def narrow() -> list[Case]:
    """Pieces of 1 to 12 bytes, up to 16 of them; 1 and 25 MiB in total."""
    forms = [
        ("RGB", "u1", (1, 1, 1)),
        ("RGBA", "u1", (1,) * 4),
        ("pairs of bytes", "u1", (1, 1)),
        ("RGB of 16 bits", "u2", (1, 1, 1)),
        ("pairs of floats", "f4", (1, 1)),
        ("xyz", "f4", (1, 1, 1)),
        ("4 floats", "f4", (1,) * 4),
        ("1 + 3 floats", "f4", (1, 3)),
        ("pairs of doubles", "f8", (1, 1)),
        *((f"{count} bytes", "u1", (1,) * count) for count in (5, 8, 16)),
        ("7 x 3 bytes", "u1", (3,) * 7),
        ("16 x 5 bytes", "u1", (5,) * 16),
    ]
    cases = []
    for mib in (1, 25):
        for name, dtype, sizes in forms:
            rows = (mib << 20) // (np.dtype(dtype).itemsize * sum(sizes))
            cases.append(
                Case(f"{name}, {mib} MiB", NARROW, (rows, sum(sizes)), dtype, 1, sizes, mib << 20)
            )
    return cases


def row_widths(total: int = 1 << 25) -> list[Case]:
    """Two equal outputs with rows of 1 byte to 64 KiB; 32 MiB in total."""
    cases = []
    for width in [1, 2, 4, 8, 12, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536]:
        dtype = {1: "u1", 2: "i2"}.get(width, "f4")
        columns = width // np.dtype(dtype).itemsize
        shape = (total // (2 * width), 2 * columns)
        name = f"2 x {width} B rows"
        cases.append(Case(name, ROW_WIDTH, shape, dtype, 1, (columns, columns), width))
    return cases


def total_sizes() -> list[Case]:
    """Rows of 1+1+2 KiB; 4 KiB to 256 MiB in total."""
    return [
        Case(f"{rows * 4} KiB", SIZE, (rows, 1024), "f4", 1, (256, 256, 512), rows * 4096)
        for rows in (1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
    ]


def channels() -> list[Case]:
    """Two halves of 256 channels of 28 x 28 floats, as feature maps have them; 0.8 to 63 MiB."""
    image = 256 * 28 * 28 * 4
    return [
        Case(f"{n} x 256 channels", CHANNELS, (n, 256, 28, 28), "f4", 1, (128, 128), n * image)
        for n in (1, 2, 5, 10, 20, 41, 82)
    ]


def new_outputs() -> list[Case]:
    """Rows of 1+1+2 KiB, 64 KiB to 32 MiB in total, into new tensors."""
    return [
        Case(f"{kib} KiB, new", NEW, (kib // 4, 1024), "f4", 1, (256, 256, 512), kib << 10)
        for kib in (64, 512, 1000, 1100, 2048, 4096, 8192, 16384, 32768)
    ]


def steps() -> list[Case]:
    """Rows of 1+1+2 KiB; 16 KiB to 57 MiB in total, each about a fifth more than the one before."""
    counts = dict.fromkeys(round(4 * 1.2**step) for step in range(46))
    return [
        Case(f"step to {4 * n} KiB", STEP, (n, 1024), "f4", 1, (256, 256, 512), n << 12)
        for n in counts
    ]


def output_counts(total: int = 1 << 24) -> list[Case]:
    """2 to 4,096 outputs with rows of 64 bytes; 16 MiB in total."""
    return [
        Case(f"{n} outputs", OUTPUTS, (total // (64 * n), 16 * n), "f4", 1, (16,) * n, n)
        for n in (2, 8, 32, 128, 512, 1024, 4096)
    ]


def callers() -> list[Case]:
    """1 to 4 threads that each split their own 1 or 64 MiB at once, in rows of 1+1+2 KiB."""
    return [
        Case(f"{mib} MiB, {n} at once", CALLERS, (mib * 256, 1024), "f4", 1, (256, 256, 512), n)
        for mib in (1, 64)
        for n in (1, 2, 4)
    ]


def latency_cases() -> list[Case]:
    """1 to 4,096 outputs of 64 bytes each, equal and unequal: too small for bytes to matter."""
    equal = [
        Case(f"{n} equal", OUTPUTS, (n * 16,), "f4", 0, (16,) * n, n)
        for n in (1, 2, 3, 8, 32, 128, 512, 1024, 4096)
    ]
    uneven = [
        Case(f"{n} unequal", "unequal outputs", (n * 16,), "f4", 0, (15, 17) * (n // 2), n)
        for n in (2, 8, 32, 128, 512)
    ]
    return equal + uneven
