"""Accepted splits whose bytes are compared, the bytes of their inputs, and those expected."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dmlsplit.conformance.case import Case, Values
from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDataType, TensorDesc

# Above this, for all tensors together, a case is not dispatched: its bytes are in no file.
_MOST_BYTES = 1 << 15

# Floats whose bits arithmetic would change: NaNs, signalling and with payload, the least denormal,
# the zero with a sign, an infinity.
_SPECIAL = {
    TensorDataType.FLOAT16: (0x7D01, 0xFE55, 0x0001, 0x8000, 0xFC00),
    TensorDataType.FLOAT32: (0x7F800001, 0xFFC12345, 0x00000001, 0x80000000, 0xFF800000),
    TensorDataType.FLOAT64: (0x7FF << 52 | 1, 0xFFF8 << 48 | 0x12345, 1, 1 << 63, 0xFFF << 52),
}


def byte_cases() -> Iterator[Case]:
    """Yield the cases: types, ranks, axes, layouts, numbers of outputs."""
    rows = capability_table().values()
    for kind in sorted({kind for row in rows for kind in row.input_tensor.data_types}):
        yield _case(f"type-{kind.name}", f"{kind.name} numbers", _split((2, 3, 7, 5), 2, kind))
    for kind in _SPECIAL:
        about = f"{kind.name} of any bits: NaNs with payloads, denormals, both zeros"
        yield _case(f"bits-{kind.name}", about, _split((2, 3, 7, 5), 2, kind), "bits")
    for rank in range(1, 9):
        for axis in range(rank):
            least = 2 if rank < 6 else 1  # so that the bytes stay few
            shape = tuple(7 if at == axis else least + at % 2 for at in range(rank))
            about = f"axis {axis} of {rank} dimensions"
            yield _case(f"axis-{rank}-{axis}", about, _split(shape, axis))
    for name, about, desc in _layouts():
        yield _case(name, about, desc)


def _case(name: str, about: str, desc: SplitOperatorDesc, values: Values = "numbers") -> Case:
    return Case(f"bytes-{name}", about, desc, values)


def _split(
    shape: tuple[int, ...],
    axis: int,
    kind: TensorDataType = TensorDataType.FLOAT32,
    sizes: tuple[int, ...] = (2, 1, 4),
    **fields: Any,
) -> SplitOperatorDesc:
    x = TensorDesc(kind, shape, **fields)
    return SplitOperatorDesc.from_sizes(x, axis=axis, sizes=sizes)


def _layouts() -> Iterator[tuple[str, str, SplitOperatorDesc]]:
    half = TensorDataType.FLOAT16
    yield "one-output", "a copy", _split((2, 3, 7, 5), 2, sizes=(7,))
    yield (
        "outputs-100",
        "100 outputs of one element per row",
        _split((1, 1, 3, 100), 3, half, (1,) * 100),
    )
    yield "odd-bytes", "FLOAT16 rows of 2, 6 and 10 bytes", _split((1, 3, 5, 9), 3, half, (1, 3, 5))
    yield "long-rows", "rows of 2048 bytes", _split((1, 1, 4, 512), 3, sizes=(200, 1, 311))
    yield (
        "broadcast",
        "an input that repeats its rows",
        _split((2, 3, 7, 5), 2, strides=(0, 0, 5, 1)),
    )
    yield "nhwc", "an input in NHWC order", _split((1, 7, 4, 5), 1, strides=(140, 1, 35, 7))
    x = TensorDesc("FLOAT32", (2, 3, 7, 5))
    for name, about, strides in (
        ("padded", "outputs with gaps between rows", (96, 32, 8, 1)),
        ("permuted", "outputs in another order of dimensions", (1, 2, 6, 24)),
    ):
        outputs = [TensorDesc("FLOAT32", (2, 3, part, 5), strides=strides) for part in (2, 1, 4)]
        yield f"{name}-outputs", about, SplitOperatorDesc(x, outputs, 2)


def is_small(desc: SplitOperatorDesc) -> bool:
    """Return whether the tensors of a descriptor are small enough to be dispatched."""
    tensors = (desc.input_tensor, *desc.output_tensors)
    return sum(tensor.total_tensor_size_in_bytes for tensor in tensors) <= _MOST_BYTES


def input_bytes(case: Case) -> bytes:
    """Return the whole buffer of the input, TotalTensorSizeInBytes long; the same every time."""
    tensor = case.desc.input_tensor
    total = tensor.total_tensor_size_in_bytes
    kind = tensor.data_type
    width = tensor.element_bytes
    if kind in _SPECIAL and case.values == "numbers":
        numbers = (np.arange(total // width) % 1021 - 510 + 0.25).astype(f"<{kind.numpy_name}")
        return numbers.tobytes().ljust(total, b"\0")
    blocks = [sha256(f"{kind.name} {index}".encode()).digest() for index in range(total // 32 + 1)]
    if case.values == "bits":
        blocks.insert(
            0, b"".join(bits.to_bytes(width, "little") for bits in _SPECIAL.get(kind, ()))
        )
    return b"".join(blocks)[:total]


def output_hashes(case: Case) -> tuple[str, ...]:
    """Return the SHA-256 of each output's elements, packed in row-major order.

    What lies between the elements of a strided output does not count: DirectML may write it.
    """
    desc = case.desc
    width, tensor = desc.input_tensor.element_bytes, desc.input_tensor
    elements = np.frombuffer(input_bytes(case), f"V{width}", tensor.last_element_index + 1)
    strides = [step * width for step in tensor.effective_strides]
    whole = as_strided(elements, tensor.sizes, strides, writeable=False)
    parts = np.split(whole, list(accumulate(desc.split_sizes))[:-1], axis=desc.axis)
    return tuple(sha256(part.tobytes()).hexdigest() for part in parts)
