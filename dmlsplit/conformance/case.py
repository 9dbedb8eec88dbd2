"""A case: a descriptor, perhaps with bindings, and what DirectML should say of it at each level."""

from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Literal

import numpy as np

from dmlsplit.binding import BindingTable, BufferBinding
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.validation import validate
from dmlsplit.errors import DeviceRemovedError, InvalidArgumentError

S_OK = 0

Values = Literal["numbers", "bits"]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a tensor begins: the number of a buffer, and an offset in bytes."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """The buffers of a case, by their size in bytes, and the tensors in them."""

    buffers: tuple[int, ...]
    input_tensor: Placed
    output_tensors: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One question to DirectML."""

    id: str  # also the name of a file
    about: str  # in a sentence
    desc: SplitOperatorDesc
    values: Values = "numbers"  # of the input: ordinary numbers, or any bits
    placement: Placement | None = None  # given if the case is about bindings


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a case, or should by the rules."""

    verdict: str  # accepted or refused; crashed, hung or removed (the device) if there is none
    stage: str = ""  # the call that refuses it: create, compile or bind; done if none does
    hresult: int = S_OK
    rules: tuple[str, ...] = ()  # that it breaks, of what is expected

    @property
    def policy(self) -> bool:
        """Whether it is refused by rules only that are choices of dmlsplit."""
        return bool(self.rules) and all(RULES[name].basis == "policy" for name in self.rules)

    def __str__(self) -> str:
        if self.verdict == "refused":
            return f"refused at {self.stage} with 0x{self.hresult:08X}"
        return self.verdict if self.hresult == S_OK else f"{self.verdict} with 0x{self.hresult:08X}"


def expected(case: Case, level: FeatureLevel) -> Outcome:
    """Judge a case by the rules of a level."""
    rules = validate(case.desc, level).rule_ids
    if rules:
        return Outcome("refused", "create", InvalidArgumentError.hresult, rules)
    rules = _broken_bindings(case.desc, case.placement) if case.placement else ()
    if rules:
        # Microsoft, "DirectML error handling and device removal": that is how it shows.
        return Outcome("refused", "bind", DeviceRemovedError.hresult, rules)
    return Outcome("accepted", "done")


@cache
def by_level(case: Case) -> tuple[tuple[FeatureLevel, Outcome], ...]:
    """Return each level at which the expected outcome changes, the lowest level first."""
    levels = ((level, expected(case, level)) for level in FeatureLevel)
    return tuple(next(same) for _, same in groupby(levels, key=lambda each: each[1]))


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
