"""The versioned JSON document; report.schema.json describes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Rule
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.lint.verdict import Assessment, Verdict

# Raised when a key changes its meaning or is removed; new keys may be added at any time.
SCHEMA = 1


def json_report(assessment: Assessment, colour: bool = False) -> str:
    """Return the assessment as JSON; report.schema.json describes it."""
    from dmlsplit import __version__

    target = assessment.target
    rules = {each.rule.id: each.rule for v in assessment.verdicts for each in v.diagnostics}
    return json.dumps(
        {
            "schema": SCHEMA,
            "tool": {"name": "dmlsplit", "version": __version__},
            "target": {"asked": target.asked, "level": str(target.level), "via": target.via},
            "summary": {str(name): count for name, count in assessment.counts.items()},
            "rules": {name: _rule(rule) for name, rule in rules.items()},
            "splits": [_split(verdict) for verdict in assessment.verdicts],
            "unreadable": [
                {"file": file, "message": message} for file, message in assessment.unreadable
            ],
        },
        indent=2,
    )


def _split(verdict: Verdict) -> dict[str, Any]:
    site, least = verdict.site, verdict.minimum
    return {
        "file": site.file,
        "place": site.place,
        "node": site.node,
        "index": site.index,
        "operator": site.operator,
        "verdict": str(verdict.outcome),
        "descriptors": [_descriptor(desc) for desc in verdict.descriptors],
        "legalized": [_descriptor(desc) for desc in verdict.legalized],
        "minimum": least and asdict(least) | {"level": str(least.level)},
        "fix": verdict.fix,
        "remarks": [asdict(each) | {"rule": each.rule.id} for each in verdict.diagnostics],
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
        "sizes": tensor.sizes,
        "strides": tensor.strides,
        "total_tensor_size_in_bytes": tensor.total_tensor_size_in_bytes,
    }


def _rule(rule: Rule) -> dict[str, str]:
    return {key: text for key, text in asdict(rule).items() if key != "id"}
