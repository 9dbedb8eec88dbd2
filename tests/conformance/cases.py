"""The kit for Windows: a folder with the probe, and with cases that the rules' records make."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.tensor import DIMENSION_COUNT_MAX, TensorDataType, TensorDesc
from tests.conformance.probe import SCHEMA

# The rules that no case breaks, and the reasons.
NOT_ASKED = {
    **{rule.id: rule.impossible_in_c for rule in RULES.values() if rule.impossible_in_c},
    **{rule.id: "the probe binds nothing" for rule in RULES.values() if rule.example},
}
# Operators with tensors of this size are created but not compiled, because DirectML might allocate
# the tensors.
_HUGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Case:
    """One split that DirectML is asked to accept."""

    id: str
    about: str
    desc: SplitOperatorDesc


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, in a fixed order."""
    return (*_table(), *_rules())


def _table() -> Iterator[Case]:
    """Every data type at every dimension count, including those that no level accepts."""
    for kind in TensorDataType:
        # UNKNOWN gets a size, because without one it would break a second rule.
        total = 64 if kind is TensorDataType.UNKNOWN else None
        for rank in range(DIMENSION_COUNT_MAX + 2):
            # The last dimension, 4, is split into 1 and 3. Without dimensions, the split is a copy.
            front = (*(1,) * (rank - 2), *(2,) * (rank > 1))
            shapes = [(*front, last) for last in (4, 1, 3)] if rank else [(), ()]
            x, *outputs = (TensorDesc(kind, s, total_tensor_size_in_bytes=total) for s in shapes)
            desc = SplitOperatorDesc(x, outputs, max(rank - 1, 0))
            yield Case(f"table-{kind.name}-{rank}", f"{kind.name} with {rank} dimensions", desc)


def _rules() -> Iterator[Case]:
    """A case for each way to break a rule that C can break, and for each value at a limit."""
    # The cases of `_table` cover the rules about levels.
    names = [name for name in RULES if name not in NOT_ASKED and "DML-LEVEL-" not in name]
    for rule in map(RULES.__getitem__, names):
        for sample in rule.broken:
            name = "-".join(filter(None, ("rule", rule.id[4:], sample.name)))
            yield Case(name, sample.about, sample.desc)
        for sample in rule.kept:
            if sample.name:
                yield Case(f"limit-{sample.name}", sample.about, sample.desc)


def write_kit(folder: Path) -> None:
    """Write the kit to a new folder; it does not say which cases DirectML should accept."""
    folder.mkdir()
    cases = list(map(_record, all_cases()))
    case_file = {"schema": SCHEMA, "levels": list(map(int, FeatureLevel)), "cases": cases}
    probe = Path(__file__).with_name("probe.py").read_text("utf-8")
    for name, text in (("cases.json", json.dumps(case_file, indent=1)), ("probe.py", probe)):
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _record(case: Case) -> dict[str, Any]:
    tensors = (case.desc.input_tensor, *case.desc.output_tensors)
    largest = max(max(t.total_tensor_size_in_bytes, t.minimum_size_in_bytes) for t in tensors)
    last = "create" if largest >= _HUGE_BYTES else "compile"
    return {"id": case.id, "about": case.about, "last_stage": last, "desc": descriptor(case.desc)}


def descriptor(desc: SplitOperatorDesc) -> dict[str, Any]:
    """The contents of ``desc`` in the form of `read_descriptor`, with every field."""
    return {
        "InputTensor": _tensor(desc.input_tensor),
        "OutputCount": desc.output_count,
        "OutputTensors": list(map(_tensor, desc.output_tensors)),
        "Axis": desc.axis,
    }


def _tensor(tensor: TensorDesc) -> dict[str, Any]:
    strides = {} if tensor.strides is None else {"Strides": list(tensor.strides)}
    return {
        "DataType": tensor.data_type.name,
        "Flags": tensor.flags.name,
        "DimensionCount": tensor.dimension_count,
        "Sizes": list(tensor.sizes),
        **strides,
        "TotalTensorSizeInBytes": tensor.total_tensor_size_in_bytes,
        "GuaranteedBaseOffsetAlignment": tensor.guaranteed_base_offset_alignment,
    }
