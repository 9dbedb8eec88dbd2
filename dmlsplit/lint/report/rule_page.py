"""The page of a rule, in Markdown or plain text: a fault and its fix, the rule, and examples.

SARIF carries it as `help`, ``dmlsplit explain RULE-ID`` prints it, and the manual includes it.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

from dmlsplit.directml.levels import FeatureLevel, capability_table
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.descriptors import GOOD
from dmlsplit.directml.rules.rule import Example, Rule, Sample
from dmlsplit.directml.tensor import TensorDataType, TensorDesc
from dmlsplit.directml.validation import validate
from dmlsplit.lint.onnxruntime import MINIMUM_LEVEL
from dmlsplit.lint.report.phrases import HRESULTS, numbered
from dmlsplit.lint.target import requirement
from dmlsplit.messages import WIDTH

_INDENT = "    "
_BASES = {
    "documented": "documented",
    "debug-layer": "known from DirectML's debug layer or its developers only",
    "policy": "policy, a choice of dmlsplit",
}
_TEXT_FORM = (
    "After the command comes the model, in ONNX's text form. "
    '`onnx.save(onnx.parser.parse_model(text), "model.onnx")` writes it to a file.'
)
_RELEASES = (
    "The first releases that accept it: the first widely available DirectML with the level, and "
    "the first Windows build whose own DirectML.dll is documented to have it."
)


class _Markdown:
    def title(self, text: str, level: int) -> str:
        return f"{'#' * level} {text}"

    def paragraph(self, text: str) -> str:
        """Mark links, and command options: their two hyphens would become a dash."""
        if text.startswith("https://"):
            return f"<{text}>"
        return re.sub(r"(?<!\S)--[a-z-]+", r"`\g<0>`", text)

    def code(self, language: str, text: str) -> str:
        return f"```{language}\n{text}\n```"

    def quoted(self, text: str) -> str:
        """One line, which a narrow screen may break."""
        return f"`{text}`"

    def fields(self, pairs: dict[str, str]) -> str:
        return "\n".join(f"- **{name}**: {self.paragraph(text)}" for name, text in pairs.items())

    def table(self, rows: Sequence[tuple[str, ...]]) -> str:
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


class _Text:
    def title(self, text: str, level: int) -> str:
        return f"{text}\n{'=-'[level - 1] * len(text)}"

    def paragraph(self, text: str, indent: str = "") -> str:
        return textwrap.fill(
            text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )

    def code(self, language: str, text: str) -> str:
        return textwrap.indent(text, _INDENT)

    def quoted(self, text: str) -> str:
        return textwrap.fill(text, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)

    def fields(self, pairs: dict[str, str]) -> str:
        lines = (self.paragraph(f"{name}: {text}", _INDENT) for name, text in pairs.items())
        return "\n".join(lines)

    def table(self, rows: Sequence[tuple[str, ...]]) -> str:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (map(str.ljust, row, widths) for row in rows)
        return "\n".join("  ".join(line).rstrip() for line in lines)


def markdown_page(rule: Rule) -> str:
    """The page of a rule in Markdown, with one first-level heading."""
    return "\n\n".join(_blocks(rule, _Markdown())) + "\n"


def text_page(rule: Rule) -> str:
    """The page of a rule as text, at most 80 columns wide except for links."""
    return "\n\n".join(_blocks(rule, _Text())) + "\n"


def _blocks(rule: Rule, form: _Markdown | _Text) -> Iterator[str]:
    example = example_of(rule)
    yield form.title(rule.id, 1)
    yield form.paragraph("What dmlsplit reports, for the first example below:")
    yield form.quoted(example.said)
    told = {"Fix": rule.hint, "Rule": rule.sentence, "At run time": _at_run_time(rule)}
    yield form.fields({**told, "Basis": _BASES[rule.basis], "Source": rule.source})
    # Only an error changes the verdict.
    names = ("Refused", "Accepted") if rule.severity == "error" else ("Reported", "Not reported")
    language = "text" if example.kind == "onnx" else "python"
    yield form.title(names[0], 2)
    if example.kind == "onnx":
        yield form.paragraph(_TEXT_FORM)
    yield form.code(language, example.broken)
    yield form.title(names[1], 2)
    yield form.code(language, example.kept)
    if rule.id in _NEEDS:
        yield form.title("Levels, DirectML and Windows", 2)
        yield form.paragraph(_RELEASES)
        rows = ((what, *requirement(level).cells) for what, level in _NEEDS[rule.id]())
        yield form.table([("", "level", "DirectML", "Windows"), *rows])


def _at_run_time(rule: Rule) -> str:
    if rule.hresult is None:
        return "no call of DirectML fails"
    if rule.basis == "policy" or rule.beyond_c:
        why = rule.beyond_c or "DirectML's documents say nothing"
        return f"{numbered(rule.hresult)} from dmlsplit; {why}"
    return numbered(rule.hresult) + HRESULTS[rule.hresult][1]


def _data_types() -> Iterator[tuple[str, FeatureLevel]]:
    known: set[TensorDataType] = set()
    for level, row in capability_table().items():
        if added := row.input_tensor.data_types - known:
            yield ", ".join(kind.name for kind in sorted(added)), level
        known |= added


def _dimension_counts() -> Iterator[tuple[str, FeatureLevel]]:
    before = (0, 0)
    for level, row in capability_table().items():
        counts = row.input_tensor.minimum_dimensions, row.input_tensor.maximum_dimensions
        if counts != before:
            least, most = before = counts
            yield f"{least} dimensions" if least == most else f"{least} to {most} dimensions", level


# The needs of each rule that depends on the level: what, and its lowest level.
_NEEDS: dict[str, Callable[[], Iterable[tuple[str, FeatureLevel]]]] = {
    "DML-LEVEL-DATA-TYPE": _data_types,
    "DML-LEVEL-DIMENSION-COUNT": _dimension_counts,
    "ORT-FEATURE-LEVEL": lambda: [("any split in ONNX Runtime", MINIMUM_LEVEL)],
}


_WIDEST = 76
_NEWEST = Sample._field_defaults["level"]


def example_of(rule: Rule) -> Example:
    """The example that a rule gives, or else programs that validate its samples."""
    if rule.example is not None:
        return rule.example
    broken, kept = rule.broken[0], (rule.kept or [Sample("", GOOD)])[0]
    first = validate(broken.desc, broken.level).violations[0]
    return Example("python", _program(broken), _program(kept), first.message)


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
