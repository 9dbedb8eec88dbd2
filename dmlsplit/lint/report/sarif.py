"""SARIF 2.1.0, for code-scanning pages. Source: OASIS, SARIF Version 2.1.0."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from dmlsplit.directml.rules import Rule
from dmlsplit.lint.judge import Assessment, Diagnostic, Verdict
from dmlsplit.lint.report.phrases import address, grouped, headline, sentence
from dmlsplit.messages import printable

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif_report(assessment: Assessment) -> str:
    """Return a SARIF 2.1.0 log, as code-scanning pages take it.

    Models have no lines, so that a result points at line 1 of its file and carries the
    place of the node as a logical location.
    """
    from dmlsplit import __version__

    rules: dict[str, Rule] = {}
    results = []
    for verdict in assessment.verdicts:
        for diagnostic, count in grouped(verdict.diagnostics):
            rules.setdefault(diagnostic.rule.id, diagnostic.rule)
            number = list(rules).index(diagnostic.rule.id)
            results.append(_result(verdict, diagnostic, count, number, assessment))
    driver = {
        "name": "dmlsplit",
        "version": __version__,
        "rules": [_reporting_descriptor(rule) for rule in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"dmlsplit/{assessment.target.via}/{assessment.target.level}/"},
        "invocations": [
            {
                "executionSuccessful": not assessment.unreadable,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": printable(message)},
                        "locations": [_physical(file)],
                    }
                    for file, message in assessment.unreadable
                ],
            }
        ],
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(
    verdict: Verdict, diagnostic: Diagnostic, count: int, number: int, assessment: Assessment
) -> dict[str, Any]:
    site = verdict.site
    text = f"{address(site)}: {headline(verdict, assessment)}: {sentence(diagnostic, count)}"
    level = (
        "warning"
        if diagnostic.severity == "warning"
        else ("error" if assessment.fails(verdict) else "warning")
    )
    kind = "function" if "." in site.place else "module"
    identity = f"{site.place}|{site.node}|{site.index}|{diagnostic.rule.id}|{diagnostic.field}"
    logical = {"name": address(site), "fullyQualifiedName": address(site), "kind": kind}
    return {
        "ruleId": diagnostic.rule.id,
        "ruleIndex": number,
        "level": level,
        "message": {"text": f"{text}. Fix: {verdict.fix}" if verdict.fix else text},
        "locations": [_physical(site.file) | {"logicalLocations": [logical]}],
        "partialFingerprints": {
            "dmlsplitNode/v1": hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()
        },
    }


def _physical(file: str) -> dict[str, Any]:
    path = quote(file.replace("\\", "/").removeprefix("./"), errors="backslashreplace")
    uri = f"file://{path}" if path.startswith("/") else path
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}


def _reporting_descriptor(rule: Rule) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.sentence},
        "fullDescription": {"text": f"{rule.sentence} ({rule.basis}; source: {rule.source})"},
        "help": {"text": f"{rule.hint[0].upper()}{rule.hint[1:]}."},
        "properties": {"tags": ["directml"], "basis": rule.basis},
    }
    if rule.source.startswith("https://"):
        described["helpUri"] = rule.source
    return described
