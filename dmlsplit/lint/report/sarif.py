"""SARIF 2.1.0, for code-scanning pages. Source: OASIS, SARIF Version 2.1.0.

GitHub accepts 10 MB after gzip, 25,000 rules and 25,000 results per run (it shows 5,000), names of
255 and descriptions of 1,024 characters; no limit for `help` is stated. Sources: docs.github.com,
"SARIF support for code scanning" and "SARIF results exceed one or more limits".
"""

import hashlib
import json
import re
from collections import Counter
from pathlib import PureWindowsPath
from typing import Any
from urllib.parse import quote

from dmlsplit import __version__
from dmlsplit.directml.rules.rule import Rule
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.report.findings import Finding, address, findings, with_slashes
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import printable

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# Code scanning uses only the second. If it is absent, the upload action hashes the text of the line
# (codeql-action, fingerprints.ts), which is line 1 for all nodes of a model.
_FINGERPRINTS = ("dmlsplitNode/v1", "primaryLocationLineHash")


def sarif_report(assessment: Assessment) -> str:
    """A SARIF 2.1.0 log. Models have no lines: a result points at line 1 and names its node."""
    about_splits = [finding for finding in findings(assessment) if finding.sites]
    reasons = [(finding, *reason) for finding in about_splits for reason in finding.diagnostics]
    rules = {violation.rule.id: violation.rule for _, violation, _ in reasons}
    rules |= {violation.rule.id: violation.rule for violation in assessment.diagnostics}
    driver = {
        "name": "dmlsplit",
        "version": __version__,
        "rules": [_reporting_descriptor(rule) for rule in rules.values()],
    }
    seen: Counter[str] = Counter()  # fingerprints: results of one rule, node and field share them
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"dmlsplit/{assessment.target.via}/{assessment.target.level}/"},
        "invocations": [_invocation(assessment)],
        "results": [_result(*reason, list(rules), seen) for reason in reasons],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _invocation(assessment: Assessment) -> dict[str, Any]:
    return {
        "executionSuccessful": not assessment.unreadable,
        "toolExecutionNotifications": [
            {"level": "error", "message": {"text": printable(text)}, "locations": [_physical(file)]}
            for file, text in assessment.unreadable
        ],
        "toolConfigurationNotifications": [
            {
                "level": "error",
                "message": {"text": f"{assessment.target}: {fault.message}. Fix: {fault.hint}"},
                "descriptor": {"id": fault.rule.id},
            }
            for fault in assessment.diagnostics
        ],
    }


def _result(
    finding: Finding, violation: Violation, others: str, rule_ids: list[str], seen: Counter[str]
) -> dict[str, Any]:
    failed = finding.status == "failed" and violation.severity not in ("warning", "note")
    name = address(finding.sites[0])
    text = f"{name}: {finding.headline}: {printable(violation.message)}{others}"
    identity = "{0.graph}|{0.node}|{0.index}".format(finding.sites[0])
    if violation.severity == "defect":  # one result for all splits of the file
        text = "; ".join([finding.headline, *map(str.strip, finding.details[:-1])])
        identity = ""
    identity += f"|{violation.rule.id}|{violation.field}"
    fingerprint = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()
    seen[fingerprint] += 1
    if seen[fingerprint] > 1:
        fingerprint += f":{seen[fingerprint]}"
    logical = {"logicalLocations": list(map(_logical, finding.sites))}
    return {
        "ruleId": violation.rule.id,
        "ruleIndex": rule_ids.index(violation.rule.id),
        "level": "error" if failed else "note" if finding.status == "note" else "warning",
        "message": {"text": f"{text}. Fix: {finding.fix}" if finding.fix else text},
        # GitHub refuses a result without a file.
        "locations": [_physical(finding.file or name) | logical],
        "partialFingerprints": dict.fromkeys(_FINGERPRINTS, fingerprint),
    }


def _logical(site: SplitSite) -> dict[str, str]:
    name, kind = address(site), "function" if "." in site.graph else "module"
    return {"name": name, "fullyQualifiedName": name, "kind": kind}


def _physical(file: str) -> dict[str, Any]:
    # File names on Linux and macOS contain only U+DC80 to U+DCFF, which stand for raw bytes.
    path = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", with_slashes(file))
    windows = PureWindowsPath(path)
    # C:, or //server/share.
    drive = windows.drive.replace("\\", "/") if windows.is_absolute() else ""
    rest = quote(path[len(drive) :].encode("utf-8", "surrogateescape"))
    root = "file:" + (quote(drive) if drive.startswith("//") else f"//{drive and '/'}{drive}")
    uri = root + rest if drive or rest.startswith("/") else rest
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}


def _reporting_descriptor(rule: Rule) -> dict[str, Any]:
    # Imported late, so that no other report loads the examples.
    from dmlsplit.lint.rule_page import rule_page

    described: dict[str, Any] = {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.sentence},
        "fullDescription": {"text": f"{rule.sentence} ({rule.basis}; source: {rule.source})"},
        "help": {"text": f"{rule.sentence} Fix: {rule.hint}", "markdown": rule_page(rule)},
        "properties": {"tags": ["directml"], "basis": rule.basis},
    }
    if rule.source.startswith("https://"):
        described["helpUri"] = rule.source
    return described
