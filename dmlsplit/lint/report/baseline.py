"""The findings that are known: a file by which only new ones fail."""

import json
from collections.abc import Iterator
from pathlib import Path

from dmlsplit.errors import (
    InvalidArgumentError,
    one_line,
    path_in_errors,
    unreadable_file_error,
)
from dmlsplit.files.kinds import check_size
from dmlsplit.lint.report.findings import Finding, findings, with_slashes
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import printable

SCHEMA = 1
MAX_BYTES = 64 << 20  # some 200,000 findings
_FIX = "name another file; if it does not exist, it is written"


def baseline_json(assessment: Assessment) -> str:
    """The failed findings, with the fingerprints that SARIF has too."""
    entries = [
        {
            "file": with_slashes(finding.file),
            "rule": violation.rule.id,
            "subject": printable(finding.subject),
            "fingerprint": fingerprint,
        }
        for finding in failed(assessment)
        for fingerprint, violation in finding.deciding
    ]
    return json.dumps({"schema": SCHEMA, "findings": entries}, indent=2)


def failed(assessment: Assessment) -> Iterator[Finding]:
    """The findings about splits and models that fail, and are not in the baseline."""
    return (
        finding
        for finding in findings(assessment)
        if finding.status == "failed" and finding.diagnostics
    )


def failing_count(assessment: Assessment) -> int:
    """How many rules that a node breaks fail, without those that the baseline has."""
    return sum(
        (with_slashes(finding.file), fingerprint) not in assessment.baseline
        for finding in failed(assessment)
        for fingerprint, _ in finding.deciding
    )


def read_baseline(path: Path) -> frozenset[tuple[str, str]]:
    """Files and fingerprints of a baseline.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be read or is not a baseline.
    """
    with path_in_errors(path):
        try:
            check_size(path, MAX_BYTES, _FIX)
            content = path.read_bytes()
        except OSError as error:
            raise unreadable_file_error(error) from None
        try:
            document = json.loads(content)
        except (ValueError, RecursionError) as error:
            problem = one_line(error, with_path=False)
            raise InvalidArgumentError(f"is not JSON: {problem}. Fix: {_FIX}") from None
        match document:
            case {"schema": schema, "findings": [*entries]}:
                if schema == SCHEMA and all(map(_is_entry, entries)):
                    return frozenset((entry["file"], entry["fingerprint"]) for entry in entries)
        raise InvalidArgumentError(f"is not a baseline of schema {SCHEMA}. Fix: {_FIX}")


def _is_entry(entry: object) -> bool:
    """Whether a value is an entry of a baseline."""
    match entry:
        case {"file": str(), "fingerprint": str()}:
            return True
    return False
