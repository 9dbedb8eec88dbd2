"""A comparison as text."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from dmlsplit.messages import counted, omitted_line, printable, wrapped
from tests.conformance.cases import QUESTIONS, Question
from tests.conformance.check import APART, KINDS, Comparison, Difference
from tests.conformance.observation import Observation

_MAX_NAMED = 4  # cases of each answer in a text


def text_report(comparison: Comparison) -> str:
    """The comparison as text."""
    lines = [wrapped(line, "") for line in _head(comparison)]
    for title, found in _groups(comparison):
        lines += ["", wrapped(title, "")]
        lines += [wrapped(f"{each.case}: {_said(each)}", "  ") for each in found]
    lines += ["", "answers to the open questions:"]
    for number, (question, answer) in enumerate(_answers(comparison.observation), 1):
        lines += [wrapped(f"{number}. {question.text}", "  "), wrapped(answer, "     ")]
    return "\n".join(lines)


def _head(comparison: Comparison) -> Iterator[str]:
    seen = comparison.observation
    name = "A STAND-IN, not DirectML," if seen.stand_in else "DirectML"
    verdict = "agrees with the rules" if comparison.agrees else "differs from the rules"
    yield printable(f"{name} {seen.version} {verdict}")
    debug = "with" if seen.debug else "without"
    yield printable(
        f"level {seen.level}, on {seen.adapter}, {seen.system}, {seen.date}, {debug} the debug "
        f"layers; SHA-256 {seen.sha256}"
    )
    outcomes = _outcomes(seen)
    parts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    yield f"{counted(outcomes.total(), 'case')}: {parts}"
    ran = sum(answer.dispatched is not None for answer in seen.answers)
    yield (
        f"{counted(ran, 'model')} run by DxDispatch" if ran else "bytes and bindings: not observed"
    )
    if comparison.not_asked:
        yield f"{counted(len(comparison.not_asked), 'case')} of today's kit not observed"


def _outcomes(seen: Observation) -> Counter[str]:
    return Counter(answer.outcome.verdict for answer in seen.answers if answer.outcome)


def _groups(comparison: Comparison) -> Iterator[tuple[str, list[Difference]]]:
    for kind, about in KINDS.items():
        found = [each for each in comparison.differences if each.kind == kind]
        if found:
            apart = " (does not count)" if kind in APART else ""
            yield f"{kind}: {counted(len(found), 'difference')}{apart}: {about}", found


def _said(each: Difference) -> str:
    rules = f" ({', '.join(each.rules)})" if each.rules else ""
    return printable(f"expected {each.expected}{rules}; observed {each.observed}")


def _answers(seen: Observation) -> Iterator[tuple[Question, str]]:
    outcomes = {}
    for answer in seen.answers:
        by_run = f"{answer.dispatched.verdict} by DxDispatch" if answer.dispatched else ""
        outcomes[answer.case.id] = str(answer.outcome or by_run)
    for question in QUESTIONS:
        names = defaultdict(list)
        for case in question.cases:
            names[outcomes.get(case, "not observed")].append(case)
        found = [f"{outcome}: {_shown(cases)}" for outcome, cases in names.items()]
        yield question, "; ".join(found) if question.patterns else _level_answer(seen)


def _shown(cases: Sequence[str]) -> str:
    return ", ".join([*cases[:_MAX_NAMED], *omitted_line(len(cases), _MAX_NAMED)])


def _level_answer(seen: Observation) -> str:
    got = sorted({said.rpartition(", ")[2] for _, said in seen.levels if ", " in said})
    return f"such a device has {', '.join(got)}" if got else "not observed"
