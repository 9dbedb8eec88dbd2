"""The page of a rule, in Markdown or plain text: the rule, why, an example, and the fix.

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
from dmlsplit.lint.rules import HRESULTS, numbered
from dmlsplit.lint.target import requirement
from dmlsplit.messages import WIDTH

_INDENT = "    "
_WIDEST = 76  # of a program
_BASES = {
    "documented": "documented",
    "source": "read in the source code of ONNX Runtime",
    "reported": "reported by users",
}
_TEXT_FORM = (
    "The first line is the command; the rest is the model in ONNX's text syntax, which "
    '`onnx.save(onnx.parser.parse_model(text), "model.onnx")` writes to a file.'
)
_RELEASES = (
    "The first DirectML that was widely available with this level, and the first Windows build "
    "whose own DirectML.dll is documented to have it:"
)


class _Markdown:
    def title(self, text: str, level: int) -> str:
        return f"{'#' * level} {text}"

    def paragraph(self, text: str) -> str:
        # The two hyphens of an option would become a dash.
        return re.sub(r"(?<!\S)--[a-z-]+", r"`\g<0>`", text)

    def code(self, language: str, text: str) -> str:
        return f"```{language}\n{text}\n```"

    def quoted(self, text: str) -> str:
        return f"`{text}`"  # one line, which a narrow screen may break

    def link(self, text: str, address: str) -> str:
        return f"[{text}]({address})"

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

    def link(self, text: str, address: str) -> str:
        return f"{text}, {address}"

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
    yield form.paragraph(rule.sentence)
    yield form.title("Why", 2)
    yield form.paragraph(_at_run_time(rule))
    yield form.paragraph(f"Basis: {_basis(rule, form)}")
    is_model, is_error = example.kind == "onnx", rule.severity == "error"
    language = "text" if is_model else "python"
    yield form.title(f"Example: {'refused' if is_error else 'reported'}", 2)
    if is_model:
        yield form.paragraph(_TEXT_FORM)
    yield form.code(language, example.broken)
    yield form.paragraph("dmlsplit reports:")
    yield form.quoted(example.message)
    yield form.title("Fix", 2)
    yield form.paragraph(f"{rule.hint[0].upper()}{rule.hint[1:]}.")
    yield form.title(f"Example: {'accepted' if is_error else 'not reported'}", 2)
    yield form.code(language, example.kept)
    if rule.id in _NEEDS:
        yield form.title("Levels, DirectML and Windows", 2)
        yield form.paragraph(_RELEASES)
        rows = ((what, *requirement(level).cells) for what, level in _NEEDS[rule.id]())
        yield form.table([("", "level", "DirectML", "Windows"), *rows])


def _at_run_time(rule: Rule) -> str:
    """What happens if a program breaks the rule."""
    if rule.hresult is None:
        return rule.consequence
    if rule.basis == "policy" or rule.beyond_c:
        why = rule.beyond_c or "DirectML's documents do not say what happens"
        return f"dmlsplit refuses it with {numbered(rule.hresult)}; {why}."
    return HRESULTS[rule.hresult][1].format(numbered(rule.hresult))


def _basis(rule: Rule, form: _Markdown | _Text) -> str:
    """How the rule is known, with its source."""
    if rule.basis == "policy":
        return f"policy, a choice of {rule.source}."
    return form.link(_BASES[rule.basis], rule.source)


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
            least, greatest = before = counts
            yield f"{'' if least == greatest else f'{least} to '}{greatest} dimensions", level


_Needs = Iterable[tuple[str, FeatureLevel]]  # what needs a level, and the lowest such level
_NEEDS: dict[str, Callable[[], _Needs]] = {
    "DML-LEVEL-DATA-TYPE": _data_types,
    "DML-LEVEL-DIMENSION-COUNT": _dimension_counts,
    "ORT-FEATURE-LEVEL": lambda: [("any split in ONNX Runtime", MINIMUM_LEVEL)],
}


def example_of(rule: Rule) -> Example:
    """The example that a rule gives, or else programs that validate its samples."""
    if rule.example is not None:
        return rule.example
    broken, kept = rule.broken[0], (rule.kept or [Sample("", GOOD)])[0]
    first = validate(broken.desc, broken.level).violations[0]
    return Example("python", _program(broken), _program(kept), first.message)


def _program(sample: Sample) -> str:
    newest = sample.level == Sample._field_defaults["level"]
    level = "" if newest else f', feature_level="{sample.level}"'
    lines = ["import dmlsplit as dml", "", *_assignments(sample.desc)]
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
