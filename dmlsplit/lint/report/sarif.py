"""SARIF 2.1.0, for code-scanning pages. Source: OASIS, SARIF Version 2.1.0.

GitHub accepts 10 MB after gzip, 25,000 rules and 25,000 results per run (it shows 5,000), names of
255 and descriptions of 1,024 characters; no limit for `help` is stated. Sources: docs.github.com,
"SARIF support for code scanning" and "SARIF results exceed one or more limits".
"""

import hashlib
import json
from collections import Counter
from pathlib import PureWindowsPath
from typing import Any
from urllib.parse import quote

from dmlsplit import __version__
from dmlsplit.directml.rules.rule import Rule
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.report.phrases import address, grouped, headline, with_slashes
from dmlsplit.lint.verdict import Assessment, Verdict
from dmlsplit.messages import printable

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# Code scanning uses only the second. If it is absent, the upload action hashes the text of the line
# (codeql-action, fingerprints.ts), which is line 1 for all nodes of a model.
_FINGERPRINTS = ("dmlsplitNode/v1", "primaryLocationLineHash")


def sarif_report(assessment: Assessment) -> str:
    """A SARIF 2.1.0 log. Models have no lines: a result points at line 1 and names its node."""
    said = [(verdict, *each) for verdict in assessment.verdicts for each in grouped(verdict)]
    rules = {diagnostic.rule.id: diagnostic.rule for _, diagnostic, _ in said}
    rules |= {each.rule.id: each.rule for each in assessment.diagnostics}
    driver = {
        "name": "dmlsplit",
        "version": __version__,
        "rules": [_reporting_descriptor(rule) for rule in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"dmlsplit/{assessment.target.via}/{assessment.target.level}/"},
        "invocations": [_invocation(assessment)],
        "results": _told_apart([_result(*each, list(rules), assessment) for each in said]),
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
                "message": {"text": f"{assessment.target}: {each.message}. Fix: {each.hint}"},
                "descriptor": {"id": each.rule.id},
            }
            for each in assessment.diagnostics
        ],
    }


def _told_apart(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number the fingerprints that results of one rule, node and field share."""
    seen: Counter[str] = Counter()
    for result in results:
        prints = result["partialFingerprints"]
        (value,) = set(prints.values())
        seen[value] += 1
        if seen[value] > 1:
            prints |= dict.fromkeys(prints, f"{value}:{seen[value]}")
    return results


def _result(
    verdict: Verdict,
    diagnostic: Violation,
    others: str,
    rule_ids: list[str],
    assessment: Assessment,
) -> dict[str, Any]:
    site, name = verdict.site, address(verdict.site)
    said = printable(diagnostic.message) + others
    text = f"{name}: {headline(verdict, assessment)}: {said}"
    failed = assessment.fails(verdict) and diagnostic.severity not in ("warning", "note")
    kind = "function" if "." in site.place else "module"
    logical = {"name": name, "fullyQualifiedName": name, "kind": kind}
    identity = f"{site.place}|{site.node}|{site.index}|{diagnostic.rule.id}|{diagnostic.field}"
    return {
        "ruleId": diagnostic.rule.id,
        "ruleIndex": rule_ids.index(diagnostic.rule.id),
        "level": "error" if failed else "warning",
        "message": {"text": f"{text}. Fix: {verdict.fix}" if verdict.fix else text},
        "locations": [_physical(site.file) | {"logicalLocations": [logical]}],
        "partialFingerprints": dict.fromkeys(
            _FINGERPRINTS, hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()
        ),
    }


def _physical(file: str) -> dict[str, Any]:
    path = with_slashes(file)
    windows = PureWindowsPath(path)
    # C:, or //server/share.
    drive = windows.drive.replace("\\", "/") if windows.is_absolute() else ""
    rest = quote(path[len(drive) :], errors="backslashreplace")
    if drive.startswith("//"):
        uri = f"file:{quote(drive)}{rest}"
    elif drive:
        uri = f"file:///{drive}{rest}"
    else:
        uri = f"file://{rest}" if rest.startswith("/") else rest
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}


def _reporting_descriptor(rule: Rule) -> dict[str, Any]:
    # Imported late, so that no other report loads the examples.
    from dmlsplit.lint.report.rule_page import markdown_page, text_page

    described: dict[str, Any] = {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.sentence},
        "fullDescription": {"text": f"{rule.sentence} ({rule.basis}; source: {rule.source})"},
        "help": {"text": text_page(rule), "markdown": markdown_page(rule)},
        "properties": {"tags": ["directml"], "basis": rule.basis},
    }
    if rule.source.startswith("https://"):
        described["helpUri"] = rule.source
    return described
