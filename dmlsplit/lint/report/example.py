"""The example on a rule's page: the one that it gives, or programs that validate its samples."""

from collections.abc import Iterator

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.rule import Example, Rule, Sample
from dmlsplit.directml.rules.samples import GOOD
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.directml.validation import validate

_WIDEST = 76
_NEWEST = Sample._field_defaults["level"]


def example_of(rule: Rule) -> Example:
    """What breaks a rule, what keeps it, and what is reported of the former."""
    if rule.example is not None:
        return rule.example
    broken, kept = rule.broken[0], (rule.kept or [Sample("", "", GOOD)])[0]
    (said, *_) = validate(broken.desc, broken.level).violations
    return Example("python", _program(broken), _program(kept), said.said)


def _program(sample: Sample) -> str:
    at = "" if sample.level == _NEWEST else f', feature_level="{sample.level}"'
    lines = [*_assignments(sample.desc), f"print(dml.validate(desc{at}))"]
    return "\n".join(["import dmlsplit as dml", "", *lines])


def _assignments(desc: SplitOperatorDesc) -> Iterator[str]:
    """Python statements that make a descriptor."""
    x, outputs, sizes = desc.input_tensor, desc.output_tensors, desc.split_sizes
    yield f"x = {_call('TensorDesc', _fields(x))}"
    if sizes and desc == SplitOperatorDesc.from_sizes(x, axis=desc.axis, sizes=sizes):
        called, given = "SplitOperatorDesc.from_sizes", [f"axis={desc.axis}", f"sizes={sizes}"]
        yield f"desc = {_call(called, ['x', *given])}"
        return
    names = ["x" if tensor == x else f"y{at}" for at, tensor in enumerate(outputs)]
    for name, tensor in zip(names, outputs, strict=True):
        if name != "x":
            yield f"{name} = {_call('TensorDesc', _fields(tensor))}"
    listed = ["x", f"[{', '.join(names)}]", f"axis={desc.axis}"]
    yield f"desc = {_call('SplitOperatorDesc', listed)}"


def _fields(tensor: TensorDesc) -> Iterator[str]:
    yield f'"{tensor.data_type.name}"'
    yield str(tensor.sizes)
    if tensor.strides is not None:
        yield f"strides={tensor.strides}"
    if tensor.flags:
        yield f'flags="{tensor.flags.name}"'
    if tensor.total_tensor_size_in_bytes != tensor.minimum_size_in_bytes:
        yield f"total_tensor_size_in_bytes={tensor.total_tensor_size_in_bytes}"
    if tensor.guaranteed_base_offset_alignment:
        yield f"guaranteed_base_offset_alignment={tensor.guaranteed_base_offset_alignment}"


def _call(name: str, arguments: Iterator[str] | list[str]) -> str:
    given = ", ".join(arguments)
    line = f"dml.{name}({given})"
    return line if len(line) <= _WIDEST - len("desc = ") else f"dml.{name}(\n    {given}\n)"
