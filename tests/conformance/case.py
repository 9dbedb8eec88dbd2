"""A case: a descriptor, sometimes with bindings, and its expected outcome at a level."""

from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dmlsplit.binding import BindingTable, BufferBinding
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.tensor import TensorDataType
from dmlsplit.directml.validation import report_at
from dmlsplit.errors import DeviceRemovedError, InvalidArgumentError

S_OK = 0
_MAX_BYTES = 1 << 15  # for all tensors together; larger cases have no model to dispatch
Values = Literal["numbers", "bits"]
# Floats whose bits arithmetic may change: a signalling NaN, a NaN with a payload, the smallest
# denormal, -0.0 and -infinity.
SPECIAL = {
    TensorDataType.FLOAT16: (0x7D01, 0xFE55, 0x0001, 0x8000, 0xFC00),
    TensorDataType.FLOAT32: (0x7F800001, 0xFFC12345, 0x00000001, 0x80000000, 0xFF800000),
    TensorDataType.FLOAT64: (0x7FF << 52 | 1, 0xFFF8 << 48 | 0x12345, 1, 1 << 63, 0xFFF << 52),
}


@dataclass(frozen=True, slots=True)
class Placed:
    """The start of a tensor: the number of its buffer, and the offset in bytes."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """The sizes of a case's buffers in bytes, and the places of the tensors in them."""

    buffers: tuple[int, ...]
    input_tensor: Placed
    output_tensors: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One split that DirectML is asked to accept."""

    id: str  # also a file name
    about: str
    desc: SplitOperatorDesc
    values: Values = "numbers"  # the input's elements: ordinary numbers, or any bits
    placement: Placement | None = None  # only for cases about bindings


@dataclass(frozen=True, slots=True)
class Outcome:
    """The observed or expected result of a case."""

    verdict: str  # accepted or refused; without an answer crashed, hung, or removed (the device)
    stage: str = ""  # the call that refuses it: create, compile or bind; "done" if none does
    hresult: int = S_OK
    rules: tuple[str, ...] = ()  # the broken rules, if this is an expected outcome

    @property
    def policy(self) -> bool:
        """Whether dmlsplit itself chose all the rules that refuse the case."""
        return bool(self.rules) and all(RULES[name].basis == "policy" for name in self.rules)

    def __str__(self) -> str:
        if self.verdict == "refused":
            return f"refused at {self.stage} with 0x{self.hresult:08X}"
        return self.verdict if self.hresult == S_OK else f"{self.verdict} with 0x{self.hresult:08X}"


def expected(case: Case, level: FeatureLevel) -> Outcome:
    """The outcome of a case according to the rules of a level."""
    rules = report_at(case.desc, level).rule_ids
    if rules:
        return Outcome("refused", "create", InvalidArgumentError.hresult, rules)
    rules = _broken_bindings(case.desc, case.placement) if case.placement else ()
    if rules:
        # Source: Microsoft, "DirectML error handling and device removal".
        return Outcome("refused", "bind", DeviceRemovedError.hresult, rules)
    return Outcome("accepted", "done")


def _broken_bindings(desc: SplitOperatorDesc, placement: Placement) -> tuple[str, ...]:
    buffers = [np.empty(size, np.uint8) for size in placement.buffers]
    bound, *outputs = (
        BufferBinding(buffers[each.buffer], each.offset)
        for each in (placement.input_tensor, *placement.output_tensors)
    )
    try:
        BindingTable(desc, "cpu").bind(bound, outputs)
    except InvalidArgumentError as error:
        return error.report.rule_ids if error.report else ()
    return ()


def is_small(desc: SplitOperatorDesc) -> bool:
    """Whether the tensors of a descriptor are small enough to dispatch."""
    tensors = (desc.input_tensor, *desc.output_tensors)
    return sum(tensor.total_tensor_size_in_bytes for tensor in tensors) <= _MAX_BYTES


def input_bytes(case: Case) -> bytes:
    """The contents of the input, TotalTensorSizeInBytes long and always the same."""
    tensor = case.desc.input_tensor
    total, kind, width = tensor.total_tensor_size_in_bytes, tensor.data_type, tensor.element_bytes
    if kind in SPECIAL and case.values == "numbers":
        numbers = (np.arange(total // width) % 1021 - 510 + 0.25).astype(f"<{kind.numpy_name}")
        return numbers.tobytes().ljust(total, b"\0")
    special = SPECIAL.get(kind, ()) if case.values == "bits" else ()
    blocks = [bits.to_bytes(width, "little") for bits in special]
    blocks += [sha256(f"{kind.name} {index}".encode()).digest() for index in range(total // 32 + 1)]
    return b"".join(blocks)[:total]


def output_hashes(case: Case) -> tuple[str, ...]:
    """The SHA-256 of each output's elements, in row-major order.

    The gaps between elements are left out, because DirectML may write there.
    """
    desc = case.desc
    width, tensor = desc.input_tensor.element_bytes, desc.input_tensor
    elements = np.frombuffer(input_bytes(case), f"V{width}", tensor.last_element_index + 1)
    strides = [step * width for step in tensor.effective_strides]
    whole = as_strided(elements, tensor.sizes, strides, writeable=False)
    parts = np.split(whole, list(accumulate(desc.split_sizes))[:-1], axis=desc.axis)
    return tuple(sha256(part.tobytes()).hexdigest() for part in parts)
