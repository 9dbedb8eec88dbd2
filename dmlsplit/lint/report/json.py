"""The versioned JSON document; report.schema.json describes it."""

from __future__ import annotations

import json
from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Rule
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.lint.judge import Assessment, Diagnostic, Verdict
from dmlsplit.lint.target import Requirement

# Raised when a key changes its meaning or goes; new keys may come at any time.
SCHEMA = 1


def json_report(assessment: Assessment) -> str:
    """Return the assessment as JSON; report.schema.json describes it."""
    from dmlsplit import __version__

    target = assessment.target
    return json.dumps(
        {
            "schema": SCHEMA,
            "tool": {"name": "dmlsplit", "version": __version__},
            "target": {"asked": target.asked, "level": str(target.level), "via": target.via},
            "summary": {str(name): count for name, count in assessment.counts.items()},
            "rules": {rule.id: _rule(rule) for rule in _rules(assessment)},
            "splits": [_split(verdict) for verdict in assessment.verdicts],
            "unreadable": [
                {"file": file, "message": message} for file, message in assessment.unreadable
            ],
        },
        indent=2,
    )


def _split(verdict: Verdict) -> dict[str, Any]:
    site = verdict.site
    return {
        "file": site.file,
        "place": site.place,
        "node": site.node,
        "index": site.index,
        "operator": site.operator,
        "verdict": str(verdict.outcome),
        "descriptors": [_descriptor(desc) for desc in verdict.descriptors],
        "legalized": [_descriptor(desc) for desc in verdict.legalized],
        "minimum": requirement_record(verdict.minimum),
        "fix": verdict.fix,
        "remarks": [_diagnostic(diagnostic) for diagnostic in verdict.diagnostics],
    }


def _descriptor(desc: SplitOperatorDesc) -> dict[str, Any]:
    return {
        "text": str(desc),
        "axis": desc.axis,
        "input_tensor": _tensor(desc.input_tensor),
        "output_tensors": [_tensor(tensor) for tensor in desc.output_tensors],
    }


def _tensor(tensor: TensorDesc) -> dict[str, Any]:
    return {
        "data_type": tensor.data_type.name,
        "sizes": list(tensor.sizes),
        "strides": None if tensor.strides is None else list(tensor.strides),
        "total_tensor_size_in_bytes": tensor.total_tensor_size_in_bytes,
    }


def requirement_record(minimum: Requirement | None) -> dict[str, Any] | None:
    """Return the least that accepts a split, ready for JSON."""
    if minimum is None:
        return None
    build = minimum.windows and {"build": minimum.windows.build, "name": minimum.windows.name}
    return {"level": str(minimum.level), "directml": minimum.directml, "windows": build}


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "rule": diagnostic.rule.id,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "tensor": diagnostic.tensor,
        "field": diagnostic.field,
        "found": diagnostic.found,
        "allowed": diagnostic.allowed,
    }


def _rules(assessment: Assessment) -> dict[Rule, None]:
    diagnostics = (
        diagnostic for verdict in assessment.verdicts for diagnostic in verdict.diagnostics
    )
    return dict.fromkeys(diagnostic.rule for diagnostic in diagnostics)


def _rule(rule: Rule) -> dict[str, str]:
    return {
        "sentence": rule.sentence,
        "basis": rule.basis,
        "source": rule.source,
        "hint": rule.hint,
    }
