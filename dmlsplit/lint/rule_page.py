"""The page of a rule, in Markdown: the rule, what happens, an example, and the fix.

SARIF carries it as `help`, ``dmlsplit explain RULE-ID`` prints it, and the manual includes it.
"""

import re
from collections.abc import Iterator

from dmlsplit.directml.levels import NEWEST
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.descriptors import modified_split
from dmlsplit.directml.rules.rule import Example, Rule, Sample
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.directml.validation import validate
from dmlsplit.lint.rules import HRESULTS, hresult_text

_NEWEST = str(NEWEST)  # the level of programs that name none
_WIDEST = 76  # of a program
# Names in Python, and options, whose two hyphens would become a dash outside of code.
_CODE = re.compile(r"(?<!\S)(--[a-z-]+|dml\.\w+)")
_BASES = {
    "documented": "This rule is [documented]({}).",
    "source": "This rule comes from the [source code of ONNX Runtime]({}).",
    "reported": "Users have [reported]({}) this behaviour.",
}
_SEVERITIES = {
    "warning": "This is a warning: it changes neither the verdict nor the exit status.",
    "note": "This is a note, not an error.",
    "defect": "This is a known defect: it changes the exit status only with `--fail-on defect`.",
}
_TEXT_FORM = (
    "The first line is the command; the rest is the model in ONNX's text syntax, which "
    '`onnx.save(onnx.parser.parse_model(text), "model.onnx")` writes to a file.'
)


def rule_page(rule: Rule) -> str:
    """The page of a rule, with one first-level heading and a line for each paragraph."""
    return "\n\n".join(_blocks(rule)) + "\n"


def _blocks(rule: Rule) -> Iterator[str]:
    example = example_of(rule)
    is_model, is_error = example.kind == "onnx", rule.severity == "error"
    fence = "```text" if is_model else "```python"
    yield f"# {rule.id}"
    yield _with_code(rule.sentence)
    yield from _scope_notes(rule)
    yield "## What happens"
    yield _with_code(_at_run_time(rule))
    yield "## How it is known"
    yield _basis(rule)
    yield f"## Example: {'refused' if is_error else 'reported'}"
    if is_model:
        yield _TEXT_FORM
    yield f"{fence}\n{example.broken}\n```"
    yield "dmlsplit reports:"
    yield f"`{example.message}`"
    yield "## Fix"
    yield _with_code(f"{rule.hint[0].upper()}{rule.hint[1:]}.")
    if "level" in rule.fixable_by:
        yield (
            "`dmlsplit levels` lists what each level accepts, and the first DirectML version and "
            "Windows build that have it."
        )
    yield f"## Example: {'accepted' if is_error else 'not reported'}"
    yield f"{fence}\n{example.kept}\n```"


def _scope_notes(rule: Rule) -> Iterator[str]:
    """What a report of the rule changes, and where the rule applies."""
    notes = [_SEVERITIES[rule.severity]] if rule.severity in _SEVERITIES else []
    if rule.id.startswith("ORT-"):
        notes.append("It is about ONNX Runtime and Windows ML (`--ort`, `--winml`).")
    if notes:
        yield " ".join(notes)


def _with_code(text: str) -> str:
    """A sentence whose options and names are marked as code."""
    return _CODE.sub(r"`\g<0>`", text)


def _at_run_time(rule: Rule) -> str:
    """What happens if a program breaks the rule."""
    if rule.hresult is None:
        return rule.consequence
    refusal = f"dmlsplit reports {hresult_text(rule.hresult)}."
    if rule.impossible_in_c:
        return f"{refusal} DirectML cannot meet this case: {rule.impossible_in_c}."
    if rule.basis == "policy":
        return f"{refusal} DirectML's documents do not say what DirectML does."
    return HRESULTS[rule.hresult][1].format(hresult_text(rule.hresult))


def _basis(rule: Rule) -> str:
    """How the rule is known, with its source."""
    if rule.basis == "policy":
        _, _, why = rule.source.partition("; ")
        return f"This rule is a choice of dmlsplit (a policy): {why}."
    return _BASES[rule.basis].format(rule.source)


def example_of(rule: Rule) -> Example:
    """The example that a rule gives, or else programs that validate its samples."""
    if rule.example is not None:
        return rule.example
    broken, kept = rule.broken[0], (rule.kept or [Sample("", modified_split, _NEWEST)])[0]
    first = validate(broken.desc, broken.level).violations[0]
    return Example("python", _program(broken), _program(kept), first.message)


def _program(sample: Sample) -> str:
    level = "" if sample.level == _NEWEST else f', feature_level="{sample.level}"'
    about = [f"# {sample.about}"] if sample.about else []
    lines = ["import dmlsplit as dml", "", *about, *_assignments(sample.desc)]
    return "\n".join([*lines, f"print(dml.validate(desc{level}))"])


def _assignments(desc: SplitOperatorDesc) -> Iterator[str]:
    """Python statements that make a descriptor."""
    x, axis, sizes = desc.input_tensor, desc.axis, desc.split_sizes
    yield _tensor("x", x)
    if sizes and desc == SplitOperatorDesc.from_sizes(x, axis=axis, sizes=sizes):
        yield _assignment("desc", "SplitOperatorDesc.from_sizes", f"x, {axis=}, {sizes=}")
        return
    outputs = {f"y{i}": tensor for i, tensor in enumerate(desc.output_tensors)}
    yield from (_tensor(name, tensor) for name, tensor in outputs.items() if tensor != x)
    names = ("x" if tensor == x else name for name, tensor in outputs.items())
    yield _assignment("desc", "SplitOperatorDesc", f"x, [{', '.join(names)}], {axis=}")


def _tensor(name: str, tensor: TensorDesc) -> str:
    fields = {field: getattr(tensor, field) for field in tensor.__slots__}
    plain = TensorDesc(kind := fields.pop("data_type"), sizes := fields.pop("sizes"))
    fields["flags"] = f'"{tensor.flags.name}"' if tensor.flags else plain.flags
    if tensor.total_tensor_size_in_bytes == tensor.minimum_size_in_bytes:
        del fields["total_tensor_size_in_bytes"]
    changed = {name: value for name, value in fields.items() if value != getattr(plain, name)}
    more = (f", {field}={value}" for field, value in changed.items())
    return _assignment(name, "TensorDesc", f'"{kind.name}", {sizes}{"".join(more)}')


def _assignment(name: str, function: str, arguments: str) -> str:
    line = f"dml.{function}({arguments})"
    fits = len("desc = ") + len(line) <= _WIDEST
    return f"{name} = " + (line if fits else f"dml.{function}(\n    {arguments}\n)")
