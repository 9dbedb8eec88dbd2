"""Fingerprints of findings: the same in each run, while other nodes and files come and go."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from dmlsplit.lint.report.findings import Finding

# The fingerprint of a rule that a finding names, in a file.
Place = tuple[str, str]


def fingerprinted(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[str]]]:
    """Each finding with the fingerprint of each of its diagnostics, unique within their file."""
    seen: Counter[Place] = Counter()  # results of one rule, node and field share a fingerprint
    for finding in findings:
        fingerprints = []
        for identity in _identities(finding):
            fingerprint = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()
            seen[finding.file, fingerprint] += 1
            number = seen[finding.file, fingerprint]
            fingerprints.append(fingerprint if number == 1 else f"{fingerprint}:{number}")
        yield finding, fingerprints


def _identities(finding: Finding) -> Iterator[str]:
    for violation, _ in finding.diagnostics:
        # One defect is found once for all splits of a file.
        node = "" if violation.severity == "defect" else "{0.graph}|{0.node}|{0.index}"
        yield f"{node.format(*finding.sites[:1])}|{violation.rule.id}|{violation.field}"
