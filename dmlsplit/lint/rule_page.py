"""The page of a rule, in Markdown: the rule, its source, an example and the fix.

SARIF carries it as `help`, ``dmlsplit explain RULE-ID`` prints it, and the site has it.
"""

import re
from collections.abc import Iterator

from dmlsplit.directml.levels import NEWEST
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.descriptors import modified_split
from dmlsplit.directml.rules.rule import Example, Rule, Sample
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.directml.validation import minimum_feature_level, validate
from dmlsplit.lint.rules import HRESULTS, hresult_text

# A program that names no level runs at this one.
_NEWEST = str(NEWEST)
# The most characters of a line of a program.
_LINE_WIDTH = 76
# Names in Python, and options, whose two hyphens would become a dash outside of code.
_CODE = re.compile(r"(?<!\S)(--[a-z-]+|dml\.\w+)")
_BASES = {
    "documented": "Source: [{}]({}).",
    "source": "Source: [the code of ONNX Runtime, {}]({}).",
    "reported": "Reported by users: [{}]({}).",
}
_SEVERITIES = {
    "warning": "A warning: it changes neither the verdict nor the exit status.",
    "note": "A note, not an error.",
    "defect": "A known defect: it changes the exit status only with `--fail-on defect`.",
}
# Data types by the names that they have in ONNX's text syntax, if these are others.
_ONNX_TYPES = {TensorDataType.FLOAT32: "float", TensorDataType.FLOAT64: "double"}


def rule_page(rule: Rule) -> str:
    """The page of a rule, with one first-level heading and a line for each paragraph."""
    return "\n\n".join(_paragraphs(rule)) + "\n"


def _paragraphs(rule: Rule) -> Iterator[str]:
    """The paragraphs of a page."""
    example = example_of(rule)
    fence = "```text" if example.kind == "onnx" else "```python"
    yield f"# {rule.id}"
    yield _with_code(" ".join([rule.sentence, *_scope_notes(rule)]))
    yield f"{_with_code(_run_time_effect(rule))} {_basis_sentence(rule)}"
    yield f"{'Rejected' if rule.severity == 'error' else 'Reported'}:"
    yield f"{fence}\n{example.broken}\n```"
    yield f"`{example.message}`"
    yield f"**Fix:** {_with_code(rule.hint)}."
    if "level" in rule.fixable_by:
        yield "`dmlsplit levels` lists the levels, with the DirectML and Windows that have them."
    if {"level", "model"} <= set(rule.fixable_by):
        command = example.broken.splitlines()[0].removeprefix("# ")
        yield "Where standard nodes can replace the Split, this rewrites the model:"
        yield f"```text\n{command} --write-fixed fixed.onnx\n```"
    yield "Use instead:"
    yield f"{fence}\n{example.kept}\n```"
    if example.kind == "onnx":
        yield (
            '`onnx.save(onnx.parser.parse_model(text), "model.onnx")` writes such a model to a '
            "file; its first line is the command."
        )


def _scope_notes(rule: Rule) -> Iterator[str]:
    """What a report of the rule changes, and where the rule applies."""
    if rule.severity in _SEVERITIES:
        yield _SEVERITIES[rule.severity]
    if rule.id.startswith("ORT-"):
        yield "It is about ONNX Runtime and Windows ML (`--ort`, `--winml`)."


def _with_code(text: str) -> str:
    """A sentence whose options and names are marked as code."""
    return _CODE.sub(r"`\g<0>`", text)


def _run_time_effect(rule: Rule) -> str:
    """What happens if a program breaks the rule."""
    if rule.hresult is None:
        return rule.consequence
    refusal = f"dmlsplit reports {hresult_text(rule.hresult)}."
    if rule.impossible_in_c:
        return f"{refusal} DirectML cannot meet this case: {rule.impossible_in_c}."
    if rule.basis == "policy":
        return f"{refusal} DirectML's documents do not say what DirectML does."
    return HRESULTS[rule.hresult][1].format(hresult_text(rule.hresult))


def _basis_sentence(rule: Rule) -> str:
    """How the rule is known, with its source."""
    if rule.basis == "policy":
        _, _, why = rule.source.partition("; ")
        return f"The rule is a choice of dmlsplit (a policy): {why}."
    return _BASES[rule.basis].format(_source_name(rule.source), rule.source)


def _source_name(url: str) -> str:
    """A source by its publisher and its name, such as ``Microsoft, DML_TENSOR_FLAGS``."""
    page, _, _ = url.partition("#")
    _, _, last = page.rpartition("/")
    if "learn.microsoft.com" in url:
        name = re.sub(r"^(ns|ne|nf)-directml-", "", last)
        return f"Microsoft, {name.upper() if name.startswith('dml_') else name}"
    if "/issues/" in url or "/pull/" in url:
        return f"onnxruntime {last}"
    if "github.com" in url:
        return last
    publisher = "ONNX Runtime" if "onnxruntime.ai" in url else "ONNX"
    _, _, operator = last.removesuffix(".html").rpartition("__")
    return f"{publisher}, {operator}"


def example_of(rule: Rule) -> Example:
    """The example that a rule gives, or else one made of its samples.

    It is a model if a level of DirectML rejects what models have, and a program otherwise.
    """
    if rule.example is not None:
        return rule.example
    broken, *_ = rule.broken
    kept, *_ = rule.kept or [Sample("", modified_split, _NEWEST)]
    first, *_ = validate(broken.desc, broken.level).violations
    if "level" in rule.fixable_by:
        accepted = _model_text(broken.desc, str(minimum_feature_level(broken.desc)))
        return Example("onnx", _model_text(broken.desc, broken.level), accepted, first.message)
    return Example("python", _program_text(broken), _program_text(kept), first.message)


def _model_text(desc: SplitOperatorDesc, level: str) -> str:
    """A model with one Split, as text, below the command that validates it."""
    names = "abcdefgh"[: desc.output_count]
    outputs = zip(names, desc.output_tensors, strict=True)
    results = ", ".join(f"{_type_text(tensor)} {name}" for name, tensor in outputs)
    sizes = ", ".join(map(str, desc.split_sizes))
    return (
        f"# dmlsplit validate model.onnx --feature-level {level}\n"
        '<ir_version: 10, opset_import: ["" : 18]>\n'
        f"net ({_type_text(desc.input_tensor)} x)\n"
        f"    => ({results}) {{\n"
        f"  sizes = Constant <value = int64[{desc.output_count}] {{{sizes}}}> ()\n"
        f"  {', '.join(names)} = Split <axis = {desc.axis}> (x, sizes)\n"
        "}"
    )


def _type_text(tensor: TensorDesc) -> str:
    """The type of a tensor in ONNX's text syntax."""
    name = _ONNX_TYPES.get(tensor.data_type, tensor.data_type.name.lower())
    return f"{name}[{','.join(map(str, tensor.sizes))}]"


def _program_text(sample: Sample) -> str:
    """A program that validates the descriptor of a sample."""
    level = "" if sample.level == _NEWEST else f', feature_level="{sample.level}"'
    about = [f"# {sample.about}"] if sample.about else []
    lines = ["import dmlsplit as dml", "", *about, *_descriptor_statements(sample.desc)]
    return "\n".join([*lines, f"print(dml.validate(desc{level}))"])


def _descriptor_statements(desc: SplitOperatorDesc) -> Iterator[str]:
    """Python statements that make a descriptor."""
    x = desc.input_tensor
    axis = desc.axis
    sizes = desc.split_sizes
    yield _tensor_statement("x", x)
    if sizes and desc == SplitOperatorDesc.from_sizes(x, axis=axis, sizes=sizes):
        yield _call_statement("desc", "SplitOperatorDesc.from_sizes", f"x, {axis=}, {sizes=}")
        return
    outputs = {f"y{i}": tensor for i, tensor in enumerate(desc.output_tensors)}
    yield from (_tensor_statement(name, tensor) for name, tensor in outputs.items() if tensor != x)
    names = ("x" if tensor == x else name for name, tensor in outputs.items())
    yield _call_statement("desc", "SplitOperatorDesc", f"x, [{', '.join(names)}], {axis=}")


def _tensor_statement(name: str, tensor: TensorDesc) -> str:
    """A Python statement that makes a tensor, with those fields that are not the default."""
    fields = {field: getattr(tensor, field) for field in tensor.__slots__}
    plain = TensorDesc(data_type := fields.pop("data_type"), sizes := fields.pop("sizes"))
    fields["flags"] = f'"{tensor.flags.name}"' if tensor.flags else plain.flags
    if tensor.total_tensor_size_in_bytes == tensor.minimum_size_in_bytes:
        del fields["total_tensor_size_in_bytes"]
    changed = {name: value for name, value in fields.items() if value != getattr(plain, name)}
    more = (f", {field}={value}" for field, value in changed.items())
    return _call_statement(name, "TensorDesc", f'"{data_type.name}", {sizes}{"".join(more)}')


def _call_statement(name: str, function: str, arguments: str) -> str:
    """A Python statement that calls a function of dmlsplit."""
    line = f"dml.{function}({arguments})"
    # All names count as long as the longest one, so that equal calls are broken alike.
    fits = len("desc = ") + len(line) <= _LINE_WIDTH
    return f"{name} = " + (line if fits else f"dml.{function}(\n    {arguments}\n)")
