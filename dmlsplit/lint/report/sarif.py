"""SARIF 2.1.0, for code-scanning pages. Source: OASIS, SARIF Version 2.1.0.

GitHub accepts 10 MB after gzip, 25,000 rules and 25,000 results per run (it shows 5,000), names of
255 and descriptions of 1,024 characters; no limit for `help` is stated. Sources: docs.github.com,
"SARIF support for code scanning" and "SARIF results exceed one or more limits".

The text of a message may have links, ``[text](target)``, and placeholders, ``{0}`` (sections 3.11.5
and 3.11.6). A model chooses its names, so both are escaped.
"""

import json
import re
from collections.abc import Iterator
from pathlib import PureWindowsPath
from typing import Any, NamedTuple
from urllib.parse import quote

from dmlsplit import __version__
from dmlsplit.directml.rules.rule import Rule
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.report.findings import (
    SEVERITY_ORDER,
    Finding,
    Severity,
    address,
    findings,
    severities,
    with_slashes,
)
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import printable
from dmlsplit.models.site import SplitSite

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
# Code scanning uses only the second. If it is absent, the upload action hashes the text of the line
# (codeql-action, fingerprints.ts), which is line 1 for all nodes of a model.
_FINGERPRINT_KEYS = ("dmlsplitNode/v1", "primaryLocationLineHash")
# GitHub refuses a run with more results.
MAX_RESULTS = 25_000


class _Diagnostic(NamedTuple):
    """A rule that a finding names, which becomes a result of the log."""

    finding: Finding
    fingerprint: str
    level: Severity
    violation: Violation
    others: str  # ends the message: in how many other tensors the rule is broken in the same way


def sarif_report(assessment: Assessment) -> str:
    """A SARIF 2.1.0 log. Models have no lines: a result points at line 1 and names its node."""
    all_diagnostics = list(_diagnostics(assessment))
    diagnostics = _worst_diagnostics(all_diagnostics)
    violations = [*(entry.violation for entry in diagnostics), *assessment.diagnostics]
    rules = {violation.rule.id: violation.rule for violation in violations}
    positions = {rule: position for position, rule in enumerate(rules)}
    driver = {
        "name": "dmlsplit",
        "version": __version__,
        "rules": [_reporting_descriptor(rule) for rule in rules.values()],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": _analysis_id(assessment.target)},
        "invocations": [_invocation(assessment, len(all_diagnostics) - len(diagnostics))],
        "results": [_result(entry, positions[entry.violation.rule.id]) for entry in diagnostics],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _diagnostics(assessment: Assessment) -> Iterator[_Diagnostic]:
    """The diagnostics of all findings; a finding without any has no result."""
    for finding in findings(assessment):
        if finding.diagnostics:
            columns = finding.fingerprints, severities(finding), finding.diagnostics
            for fingerprint, level, diagnostic in zip(*columns, strict=True):
                yield _Diagnostic(finding, fingerprint, level, *diagnostic)


def _worst_diagnostics(diagnostics: list[_Diagnostic]) -> list[_Diagnostic]:
    """As many diagnostics as a run may have. If some are left out, errors stay longest."""
    if len(diagnostics) <= MAX_RESULTS:
        return diagnostics
    by_level = sorted(diagnostics, key=lambda entry: SEVERITY_ORDER.index(entry.level))
    return by_level[:MAX_RESULTS]


def _analysis_id(target: Target) -> str:
    """The id of the analysis: on GitHub, a run replaces the results of earlier ones of its id."""
    program = target.runtime.name if target.runtime else "directml"
    return f"dmlsplit/{re.sub(r'[^a-z0-9.]+', '-', program.lower())}/{target.level}/"


def _message(text: str) -> dict[str, str]:
    """A message whose text has neither links nor placeholders."""
    text = text.replace("{", "{{").replace("}", "}}")
    # Without these two characters there is no link, and descriptors stay unchanged.
    return {"text": re.sub(r"[\\\[\]]", r"\\\g<0>", text) if "](" in text else text}


def _invocation(assessment: Assessment, omitted: int) -> dict[str, Any]:
    """What the run could not read, has left out, or finds wrong with the target."""
    unread = [
        {
            "level": "error",
            "message": _message(printable(text)),
            "locations": [_physical_location(file)],
        }
        for file, text in assessment.unreadable
    ]
    text = f"{omitted:,} results are left out: GitHub accepts {MAX_RESULTS:,} per run. "
    text += "Fix: validate fewer files in one run, or use --format json"
    cut = [{"level": "warning", "message": _message(text)}] if omitted else []
    return {
        "executionSuccessful": not assessment.unreadable,
        "toolExecutionNotifications": [*unread, *cut],
        "toolConfigurationNotifications": [
            {
                "level": "error",
                "message": _message(f"{assessment.target}: {fault.message}. Fix: {fault.hint}"),
                "descriptor": {"id": fault.rule.id},
            }
            for fault in assessment.diagnostics
        ],
    }


def _result(diagnostic: _Diagnostic, rule_index: int) -> dict[str, Any]:
    """The result of a diagnostic, whose rule is at `rule_index` among those of the run."""
    finding, fingerprint, level, violation, others = diagnostic
    # A model without a split has no node.
    name = address(finding.sites[0]) if finding.sites else finding.subject
    if violation.severity == "defect":  # one result for all splits of the file
        *places, _fix = finding.details
        text = "; ".join([finding.headline, *map(str.strip, places)])
    else:
        text = f"{name}: {finding.headline}: {printable(violation.message)}{others}"
    logical_locations = list(map(_logical_location, finding.sites))
    logical = {"logicalLocations": logical_locations} if logical_locations else {}
    return {
        "ruleId": violation.rule.id,
        "ruleIndex": rule_index,
        "level": level,
        "message": _message(f"{text}. Fix: {finding.fix}" if finding.fix else text),
        # GitHub refuses a result without a file.
        "locations": [_physical_location(finding.file or name) | logical],
        "partialFingerprints": dict.fromkeys(_FINGERPRINT_KEYS, fingerprint),
    }


def _logical_location(site: SplitSite) -> dict[str, str]:
    """The node of a split, in the terms of SARIF."""
    name = address(site)
    kind = "function" if "." in site.graph else "module"
    return {"name": name, "fullyQualifiedName": name, "kind": kind}


def _physical_location(file: str) -> dict[str, Any]:
    """The first line of a file, which stands for all of it."""
    # File names on Linux and macOS contain only U+DC80 to U+DCFF, which stand for raw bytes.
    path = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", with_slashes(file))
    windows = PureWindowsPath(path)
    # An absolute path of Windows begins with a drive, such as C:, or with a //server/share.
    drive = windows.drive.replace("\\", "/") if windows.is_absolute() else ""
    rest = quote(path[len(drive) :].encode("utf-8", "surrogateescape"))
    root = "file:" + (quote(drive) if drive.startswith("//") else f"//{drive and '/'}{drive}")
    uri = root + rest if drive or rest.startswith("/") else rest
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}}


def _reporting_descriptor(rule: Rule) -> dict[str, Any]:
    """SARIF's description of a rule."""
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
