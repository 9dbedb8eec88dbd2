"""SARIF: the standard's own schema, the needs of GitHub's code scanning, and the pages of rules."""

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import Invalid
from dmlsplit.lint.check import assess
from dmlsplit.lint.report import sarif
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.rule_page import rule_page
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Assessment
from tests.support.assessments import NAMES, assessment, harmful
from tests.support.fixtures import Patch
from tests.support.sarif_schema import RAW, SCHEMA, SHA_256, check_log
from tests.support.sites import split_site


def every_rule() -> Assessment:
    """An assessment that names every rule."""
    diagnostics = tuple(Violation(rule, text="a message") for rule in RULES.values())
    return replace(assessment(), diagnostics=diagnostics)


def log_of(findings: Assessment) -> dict[str, Any]:
    """The log, as JSON."""
    log: dict[str, Any] = json.loads(sarif_report(findings))
    return log


def fingerprints_of(findings: Assessment) -> list[dict[str, str]]:
    """The fingerprints of each result."""
    return [result["partialFingerprints"] for result in log_of(findings)["runs"][0]["results"]]


def place_of(result: dict[str, Any]) -> str:
    """The file of a result."""
    uri: str = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    return uri


LOGS = {
    "every verdict": assessment(),
    "every rule": every_rule(),
    "no splits": assess([], resolve_target()),
    "an unusable target": assess([], resolve_target(ort="1.14", directml="1.1.0")),
    **{repr(name[:20]): harmful(name) for name in [*NAMES, "a b\xe9"]},
}


def test_the_schema_is_that_of_the_standard_and_a_log_names_it() -> None:
    assert hashlib.sha256(RAW).hexdigest() == SHA_256
    assert SCHEMA["id"] == log_of(assessment())["$schema"]


@pytest.mark.parametrize("name", LOGS)
def test_a_log_follows_the_standard_and_has_the_fields_that_github_needs(name: str) -> None:
    """Source: GitHub, "SARIF support for code scanning"."""
    log = log_of(LOGS[name])
    check_log(log)
    (run,) = log["runs"]
    for rule in run["tool"]["driver"]["rules"]:
        for key in ("shortDescription", "fullDescription"):
            assert 1 <= len(rule[key]["text"]) <= 1024
        assert len(rule["name"]) <= 255
        assert all(rule["help"][form] for form in ("text", "markdown"))
        assert rule.get("helpUri", "https://").startswith("https://")
    for result in run["results"]:
        assert result["message"]["text"]
        assert {"ruleId", "ruleIndex", "level", "partialFingerprints"} <= result.keys()
        (place,) = (item["physicalLocation"] for item in result["locations"])
        assert re.fullmatch(r"[\w./~%:-]*", place["artifactLocation"]["uri"])
        assert place["region"] == {"startLine": 1}


@pytest.mark.parametrize("name", LOGS)
def test_a_result_names_its_rule_and_has_a_fingerprint_of_its_own_in_its_file(name: str) -> None:
    (run,) = log_of(LOGS[name])["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[item["ruleIndex"]]["id"] == item["ruleId"] for item in run["results"])
    assert len({rule["id"] for rule in rules}) == len(rules)
    fingerprints = [
        (place_of(item), item["partialFingerprints"]["dmlsplitNode/v1"]) for item in run["results"]
    ]
    assert len(set(fingerprints)) == len(fingerprints)


def test_each_finding_has_its_own_fingerprint() -> None:
    """GitHub uses only primaryLocationLineHash, and derives it from the line if it is absent."""
    sites = [split_site(node=name, state=Invalid("wrong")) for name in ("a", "b")]
    first, second = fingerprints_of(assess(sites, resolve_target(ort="")))
    assert first["primaryLocationLineHash"] == first["dmlsplitNode/v1"]
    assert first["primaryLocationLineHash"] != second["primaryLocationLineHash"]


def test_a_defect_of_several_nodes_is_one_finding_with_all_of_them() -> None:
    sites = [split_site(node=name, recombined_by=("Mul",)) for name in ("a", "b")]
    (result,) = log_of(assess(sites, resolve_target(ort="")))["runs"][0]["results"]
    assert result["level"] == "warning"
    names = [location["name"] for location in result["locations"][0]["logicalLocations"]]
    assert names == ["net/a", "net/b"]


def test_fingerprints_stay_when_other_nodes_change() -> None:
    fewer = fingerprints_of(replace(assessment(), verdicts=assessment().verdicts[2:]))
    assert fewer
    assert all(fingerprint in fingerprints_of(assessment()) for fingerprint in fewer)


def test_the_fingerprints_of_a_file_stay_when_a_file_before_it_is_added() -> None:
    """A copy beside a model has the same nodes."""
    original, copy = (split_site(file=name, state=Invalid("no")) for name in ("a", "b"))
    (fingerprint,) = fingerprints_of(assess([original], resolve_target()))
    both = fingerprints_of(assess([copy, original], resolve_target()))
    assert both == [fingerprint, fingerprint]


HOSTILE = "[click](https://example.com) {0} }{ a\\](b) FLOAT[1,2]"


@pytest.mark.parametrize("findings", [harmful(HOSTILE), harmful("{0}"), harmful("[a](b)")])
def test_names_are_text_and_neither_links_nor_placeholders(findings: Assessment) -> None:
    """Read as sections 3.11.5 and 3.11.6 of the standard say."""
    (run,) = log_of(findings)["runs"]
    (invocation,) = run["invocations"]
    entries = [*run["results"], *invocation["toolExecutionNotifications"]]
    for entry in entries:
        text = entry["message"]["text"]
        assert not re.search(r"\{\d+\}", text.replace("{{", "").replace("}}", ""))
        # A link: text up to the first ] that no backslash escapes, and a target.
        assert not re.search(r"\]\(", re.sub(r"\\.", "", text))


def test_a_name_with_a_link_reads_as_before_once_a_viewer_has_removed_the_escapes() -> None:
    notes = log_of(harmful(HOSTILE))["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    text = re.sub(r"\\(.)", r"\1", notes[0]["message"]["text"])
    assert text.replace("{{", "{").replace("}}", "}") == HOSTILE


def test_results_that_github_does_not_accept_are_cut_and_counted(monkeypatch: Patch) -> None:
    """The warnings go first. Source: GitHub, "SARIF results exceed one or more limits"."""
    assert sarif.MAX_RESULTS == 25_000
    monkeypatch.setattr(sarif, "MAX_RESULTS", 20)
    refused = [split_site(index=index, state=Invalid("no")) for index in range(21)]
    accepted = split_site(file="accepted.onnx", warnings=("odd",))
    (run,) = log_of(assess([accepted, *refused], resolve_target()))["runs"]
    assert [place_of(result) for result in run["results"]] == ["m.onnx"] * 20
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("2 results are left out: GitHub accepts 20 per run")


def test_every_rule_carries_its_page() -> None:
    driver = log_of(every_rule())["runs"][0]["tool"]["driver"]
    assert len(json.dumps(driver)) < 200_000  # GitHub accepts 10 MB after gzip
    help_texts = {rule["id"]: rule["help"] for rule in driver["rules"]}
    assert help_texts == {
        name: {"text": f"{rule.sentence} Fix: {rule.hint}", "markdown": rule_page(rule)}
        for name, rule in RULES.items()
    }
