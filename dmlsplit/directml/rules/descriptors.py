"""The rules of descriptors, whose records are in descriptors.yaml.

A sample there changes something in a split of FLOAT32[1,2,6,2] that breaks no rule at any level.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dmlsplit.directml.levels import NEWEST
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.rule import Sample, read_rules
from dmlsplit.directml.tensor import TensorDesc

_Fields = Mapping[str, Any]


def _tensor(total: int | None = None, alignment: int = 0, **fields: Any) -> TensorDesc:
    """FLOAT32[1,2,6,2] with some fields changed."""
    return TensorDesc(
        **{"data_type": "FLOAT32", "sizes": (1, 2, 6, 2), **fields},
        total_tensor_size_in_bytes=total,
        guaranteed_base_offset_alignment=alignment,
    )


def modified_split(
    *,
    axis: int = 2,
    parts: Sequence[int] = (2, 1, 3),
    packed: _Fields | None = None,
    input_tensor: _Fields | None = None,
    first_output: _Fields | None = None,
    output_tensors: Sequence[_Fields] | None = None,
    copy: _Fields | None = None,
) -> SplitOperatorDesc:
    """A split of FLOAT32[1,2,6,2] with some things changed.

    Parameters
    ----------
    packed
        Fields of a tensor that is split into packed `parts`.
    input_tensor, first_output, output_tensors
        Fields of these tensors, which then replace those of the packed split.
    copy
        Fields of an input and of its only output.
    """
    if copy is not None:
        input_tensor = copy
        output_tensors = [copy]
    desc = SplitOperatorDesc.from_sizes(_tensor(**(packed or {})), axis=axis, sizes=parts)
    source = desc.input_tensor
    outputs = list(desc.output_tensors)
    if input_tensor is not None:
        source = _tensor(**input_tensor)
    if first_output is not None:
        outputs[0] = _tensor(**{"sizes": outputs[0].sizes, **first_output})
    if output_tensors is not None:
        outputs = [_tensor(**fields) for fields in output_tensors]
    return SplitOperatorDesc(source, outputs, axis)


def _samples(records: Sequence[_Fields]) -> tuple[Sample, ...]:
    """The samples of a rule; the rest of a record are arguments of `modified_split`."""

    def sample(about: str, name: str = "", level: str = str(NEWEST), **changes: Any) -> Sample:
        return Sample(about, partial(modified_split, **changes), level, name)

    return tuple(sample(**record) for record in records)


DESCRIPTORS = read_rules(Path(__file__).with_suffix(".yaml"), broken=_samples, kept=_samples)
