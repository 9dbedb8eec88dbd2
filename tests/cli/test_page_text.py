"""Pages in Markdown become text for a terminal: programs stay unchanged, marks disappear."""

import re

import pytest

from dmlsplit.cli import main
from dmlsplit.cli.page_text import page_text
from dmlsplit.lint.hresult_page import hresult_page
from dmlsplit.lint.rule_page import example_of, rule_page
from dmlsplit.lint.rules import HRESULTS, RULES
from dmlsplit.messages import wrapped_at
from tests.support.each import each
from tests.support.fixtures import Capsys

PAGES = {name: rule_page(rule) for name, rule in RULES.items()}
PAGES |= {f"{number:08X}": hresult_page(number) for number in HRESULTS}


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# DML-RULE", "DML-RULE"),
        ("## Next", "Next"),
        ("**Fix:** give `axis`.", "Fix: give axis."),
        ("Use `dmlsplit levels` first.", "Use 'dmlsplit levels' first."),
        ("`axis is 4; it must be 3`", "axis is 4; it must be 3"),
        ("Source: [a page](https://a.b/c).", "Source: a page (https://a.b/c)."),
        ("```python\nx = `1`  # **2**\n\n```\nend", "    x = `1`  # **2**\n\nend"),
        ("- one two", "- one two"),
    ],
)
def test_each_mark_of_markdown_has_a_form_as_text(markdown: str, text: str) -> None:
    assert page_text(markdown) == text


def test_prose_is_wrapped_and_the_lines_of_a_list_are_indented() -> None:
    with wrapped_at(20):
        assert page_text("- one two three four five") == "- one two three four\n  five"
        code = "```text\n" + "word " * 9 + "end\n```"
        assert page_text(code) == "    " + "word " * 9 + "end"


def test_headings_and_strong_words_are_bold_on_a_terminal() -> None:
    text = page_text("# Title\n\n**Fix:** do it", is_bold=True)
    assert text == "\x1b[1mTitle\x1b[0m\n\n\x1b[1mFix:\x1b[0m do it"


@each(name=PAGES)
def test_no_page_shows_marks_of_markdown(name: str) -> None:
    text = page_text(PAGES[name])
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert not re.search(r"`|\*\*|^#|\]\(", prose, re.MULTILINE)
    assert all(len(line) <= 80 for line in prose.splitlines() if "://" not in line)


@each(name=RULES)
def test_the_examples_of_a_rule_stay_whole(name: str) -> None:
    text, example = page_text(PAGES[name]), example_of(RULES[name])
    for program in (example.broken, example.kept):
        assert all(f"    {line}".rstrip() in text.splitlines() for line in program.splitlines())


def test_explain_prints_the_page_of_a_rule_as_text(capsys: Capsys) -> None:
    assert main(["explain", "DML-SPLIT-AXIS-RANGE"]) == 0
    assert capsys.readouterr().out.startswith("DML-SPLIT-AXIS-RANGE\n\nAxis must be below")
