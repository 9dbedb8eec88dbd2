"""The last lines of the text: what became of the splits and models, and how much was found."""

from collections import Counter
from collections.abc import Iterator, Sequence

from dmlsplit.lint.report.finding_groups import FindingGroup
from dmlsplit.lint.report.findings import SEVERITY_ORDER, severities
from dmlsplit.lint.verdict import Assessment, Outcome, Verdict
from dmlsplit.messages import counted, unbroken

# How a line goes on after the number of splits with an outcome: if it is 1, and if it is larger.
_SPLIT_ENDINGS = {
    Outcome.NOT_LOADED: ("in a model that does not load", "in models that do not load"),
    Outcome.UNWRITTEN: ("whose outputs are not written", "whose outputs are not written"),
    Outcome.FAILS: (str(Outcome.FAILS), "fail when they run"),
    Outcome.ON_CPU: (str(Outcome.ON_CPU), "run on the CPU"),
    Outcome.RUNS: (str(Outcome.RUNS), "run on DirectML"),
    Outcome.RUNS_FOR_EVERY_SIZE: (
        str(Outcome.RUNS_FOR_EVERY_SIZE),
        "run on DirectML at any size",
    ),
    Outcome.NEVER_RUNS: (str(Outcome.NEVER_RUNS), "never run"),
}
# How a line goes on after the number of models whose worst outcome is this one.
_MODEL_ENDINGS = {
    Outcome.NOT_LOADED: "not loaded",
    Outcome.UNWRITTEN: "with outputs that are not written",
    Outcome.FAILS: "failing when they run",
    Outcome.ON_CPU: "with splits on the CPU",
    Outcome.RUNS: "with all splits on DirectML",
    Outcome.RUNS_FOR_EVERY_SIZE: "with all splits on DirectML",
    Outcome.FOLDED: "with all splits constant-folded",
    Outcome.NEVER_RUNS: "whose splits never run",
}


def totals(assessment: Assessment, groups: Sequence[FindingGroup]) -> Iterator[str]:
    """The unwrapped lines; the last one counts the findings, and splits with wrong numbers."""
    if assessment.unreadable:
        yield f"not checked: {counted(len(assessment.unreadable), 'path')}"
    lines = list(_target_lines(assessment))
    lines += _model_lines(assessment)
    if not (lines or assessment.unreadable):
        lines = ["no splits found"]
    summary = f"Found {', '.join(_severity_counts(groups))}" if groups else ""
    # The lines of a single target leave room for the findings at the end of the last one.
    if 0 < len(lines) <= 2:
        summary = ". ".join(filter(None, (lines.pop(), summary)))
    yield from lines
    if last := "; ".join(filter(None, (summary, _wrong_numbers_text(assessment)))):
        yield last


def _severity_counts(groups: Sequence[FindingGroup]) -> Iterator[str]:
    """How many findings there are of each severity: a rule that a node breaks is one, as in SARIF.

    A known defect is one for all splits of a file.
    """
    counts = Counter(
        severity
        for group in groups
        for finding in group.findings
        for severity in severities(finding)
    )
    for severity in SEVERITY_ORDER:
        if count := counts[severity]:
            yield counted(count, severity)


def _target_lines(assessment: Assessment) -> Iterator[str]:
    """For each target: its name, and how many splits have each outcome."""
    for target in assessment.targets if assessment.verdicts else ():
        verdicts = [verdict for verdict in assessment.verdicts if verdict.target == target]
        remark = " (DirectML called directly)" if target != assessment.target else ""
        yield from _lines_of_target(verdicts, remark)


def _lines_of_target(verdicts: Sequence[Verdict], remark: str) -> Iterator[str]:
    """The target on a line of its own, then the number of its splits with each outcome."""
    files = {verdict.site.file for verdict in verdicts if verdict.site.file}
    where = f" in {counted(len(files), 'file')}" if files else ""
    counts = Counter(verdict.outcome for verdict in verdicts)
    yield f"{counted(len(verdicts), 'split')}{where} {verdicts[0].target.where}{remark}:"
    texts = []
    for outcome in Outcome:
        if count := counts[outcome]:
            of_one, of_several = _SPLIT_ENDINGS.get(outcome, (outcome, outcome))
            texts.append(unbroken(f"{count} {of_one if count == 1 else of_several}"))
    yield f"  {'; '.join(texts)}"


def _model_lines(assessment: Assessment) -> Iterator[str]:
    """What becomes of models, each named after its worst split, unless one with splits is all."""
    order = list(Outcome)
    worst = dict[str, Outcome]()
    for verdict in assessment.verdicts:
        outcome = verdict.outcome
        file = verdict.site.file
        worst[file] = min(worst.get(file, outcome), outcome, key=order.index)
    worst |= {model.file: model.outcome for model in assessment.models}
    if len(worst) > 1 or assessment.models:
        counts = Counter(_MODEL_ENDINGS.get(outcome, str(outcome)) for outcome in worst.values())
        outcomes = "; ".join(unbroken(f"{count} {text}") for text, count in counts.items())
        yield f"{counted(len(worst), 'model')}: {outcomes}"


def _wrong_numbers_text(assessment: Assessment) -> str:
    """How many splits a defect may affect, and which defects."""
    harmed = [verdict for verdict in assessment.verdicts if verdict.defects]
    if not harmed:
        return ""
    rules = dict.fromkeys(defect.rule.id for verdict in harmed for defect in verdict.defects)
    count = counted(len(harmed), "split")
    return f"the numbers of {count} may be wrong ({', '.join(rules)})"
