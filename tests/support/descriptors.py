"""Random descriptors, and a reference that carries them out element by element."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.geometry import SplitGeometry, StridedCopy, packed_byte_strides, split_geometry

DATA_TYPES = "FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8".split()
POISON = 0xA5


@st.composite
def nested_strides(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a permuted tensor with padding and without overlap."""
    order = draw(st.permutations(range(len(sizes))))
    strides = [0] * len(sizes)
    step = 1
    for dimension in order:
        step += draw(st.integers(0, 2))
        strides[dimension] = step
        step *= sizes[dimension]
    return tuple(strides)


@st.composite
def input_strides(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """No strides, nested strides, or arbitrary ones (an input may overlap itself)."""
    kind = draw(st.sampled_from(["packed", "nested", "any"]))
    if kind == "packed":
        return None
    if kind == "nested":
        return draw(nested_strides(sizes))
    return tuple(draw(st.integers(0, 9)) for _ in sizes)


@st.composite
def split_descriptors(draw: st.DrawFn, max_rank: int = 8) -> dml.SplitOperatorDesc:
    """Valid descriptors of every data type and rank, with any strides."""
    rank = draw(st.integers(1, max_rank))
    axis = draw(st.integers(0, rank - 1))
    parts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    most = {1: 40, 2: 12, 3: 6, 4: 4}.get(rank, 3)
    sizes = [draw(st.integers(1, most)) for _ in range(rank)]
    sizes[axis] = sum(parts)
    data_type = draw(st.sampled_from(DATA_TYPES))
    strided = draw(st.booleans())
    outputs = []
    for part in parts:
        shape = (*sizes[:axis], part, *sizes[axis + 1 :])
        strides = draw(nested_strides(shape)) if strided and draw(st.booleans()) else None
        outputs.append(dml.TensorDesc(data_type, shape, strides=strides))
    source = dml.TensorDesc(data_type, sizes, strides=draw(input_strides(tuple(sizes))))
    return dml.SplitOperatorDesc(source, outputs, axis)


def element_offsets(tensor: dml.TensorDesc) -> np.ndarray:
    """Byte offset of every element, in row-major order of the indices."""
    offsets = np.zeros(tensor.sizes, np.int64)
    for dimension, stride in enumerate(tensor.effective_strides):
        shape = [1] * tensor.dimension_count
        shape[dimension] = -1
        steps = np.arange(tensor.sizes[dimension], dtype=np.int64) * stride
        offsets = offsets + steps.reshape(shape)
    return offsets * tensor.element_bytes


@dataclass
class Memory:
    """Buffers of a descriptor: random input, poisoned outputs, guards around each."""

    source: np.ndarray
    targets: list[np.ndarray]
    offset: int = 32

    @classmethod
    def of(cls, desc: dml.SplitOperatorDesc, seed: int = 0) -> "Memory":
        def size(tensor: dml.TensorDesc) -> int:
            return 32 + tensor.total_tensor_size_in_bytes + 32

        random = np.random.default_rng(seed)
        source = random.integers(0, 256, size(desc.input_tensor), dtype=np.uint8)
        targets = [np.full(size(tensor), POISON, np.uint8) for tensor in desc.output_tensors]
        return cls(source, targets)

    @property
    def input_binding(self) -> dml.BufferBinding:
        return dml.BufferBinding(self.source, self.offset)

    @property
    def output_bindings(self) -> list[dml.BufferBinding]:
        return [dml.BufferBinding(target, self.offset) for target in self.targets]


def expected_buffers(desc: dml.SplitOperatorDesc, memory: Memory) -> list[np.ndarray]:
    """The expected bytes of the output buffers afterwards."""
    width = desc.input_tensor.element_bytes
    source = element_offsets(desc.input_tensor)
    starts = itertools.accumulate(desc.split_sizes, initial=0)
    buffers = []
    for tensor, target, start in zip(desc.output_tensors, memory.targets, starts, strict=False):
        whole = [slice(None)] * len(tensor.sizes)
        whole[desc.axis] = slice(start, start + tensor.sizes[desc.axis])
        buffer = target.copy()
        for byte in range(width):
            target_bytes = memory.offset + element_offsets(tensor) + byte
            buffer[target_bytes] = memory.source[memory.offset + source[tuple(whole)] + byte]
        buffers.append(buffer)
    return buffers


def carry_out(piece: StridedCopy, source: np.ndarray, first: int, target: np.ndarray) -> None:
    """Carry out one loop nest by its definition, a run of bytes at a time."""
    steps = np.array([loop[1:] for loop in piece.loops], int).reshape(-1, 2)
    for index in itertools.product(*(range(loop.size) for loop in piece.loops)):
        source_start, target_start = map(int, np.array(index, int) @ steps)
        source_start += first + piece.input_offset
        target[target_start : target_start + piece.run_bytes] = source[
            source_start : source_start + piece.run_bytes
        ]


def packed_split(
    shape: Sequence[int],
    axis: int,
    sizes: Sequence[int],
    element_bytes: int = 1,
    input_strides: Sequence[int] | None = None,
) -> SplitGeometry:
    """The geometry of a tensor, packed unless it has strides, split into packed pieces."""
    strides = (
        packed_byte_strides(tuple(shape), element_bytes) if input_strides is None else input_strides
    )
    return split_geometry(shape, axis, sizes, element_bytes, strides, [None] * len(sizes))
