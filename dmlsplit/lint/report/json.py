"""The versioned JSON document; report.schema.json describes it."""

import json
from dataclasses import asdict
from itertools import chain
from typing import Any

from dmlsplit import __version__
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.rule import Rule
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.lint.runtimes import version_text
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Assessment, ModelVerdict, Verdict
from dmlsplit.models.site import Unknown

# The most outputs of a descriptor, and the most diagnostics of a verdict, that are listed: a small
# model can ask for very many.
_MAX_LISTED = 256
# Increased when a key changes its meaning or disappears; new keys may come at any time.
SCHEMA = 3


def json_report(assessment: Assessment) -> str:
    """The assessment as JSON."""
    target = assessment.target
    splits = (verdict.diagnostics for verdict in assessment.verdicts)
    models = (model.diagnostics for model in assessment.models)
    violations = chain(assessment.diagnostics, *splits, *models)
    rules = {rule.id: _rule(rule) for rule in (violation.rule for violation in violations)}
    harmed = [verdict for verdict in assessment.verdicts if verdict.defects]
    return json.dumps(
        {
            "schema": SCHEMA,
            "tool": {"name": "dmlsplit", "version": __version__},
            "target": _target(target)
            | {
                "diagnostics": list(map(_diagnostic, assessment.diagnostics)),
            },
            "summary": {str(name): count for name, count in assessment.counts.items()}
            | {"numbers may be wrong": len(harmed)},
            "rules": rules,
            "splits": [_split(verdict, target) for verdict in assessment.verdicts],
            "models": list(map(_model, assessment.models)),
            "unreadable": [{"file": file, "message": why} for file, why in assessment.unreadable],
        },
        indent=2,
    )


def _rule(rule: Rule) -> dict[str, Any]:
    """A rule that something breaks."""
    fields = _fields(rule, "sentence", "basis", "source", "hint")
    return fields | {"hresult": _hresult(rule.hresult)}


def _target(target: Target) -> dict[str, Any]:
    """The target of ONNX models."""
    runtime = target.runtime
    release = target.runtime and target.runtime.release
    return {
        "name": str(target),
        "level": str(target.level),
        "directml": version_text(target.directml) if target.directml else None,
        "runtime": runtime and runtime.name,
        "onnxruntime": version_text(release) if release else None,
    }


def _split(verdict: Verdict, main_target: Target) -> dict[str, Any]:
    """A verdict about a split; its target is given if it is not the main one."""
    minimum = verdict.minimum
    state = verdict.site.state
    optional: dict[str, Any] = {}
    if verdict.target != main_target:
        optional["target"] = str(verdict.target)
    if verdict.site.frozen:
        optional["only_size"] = dict([verdict.site.frozen])
    return _fields(verdict.site, "file", "graph", "node", "index", "operator") | {
        **optional,
        "verdict": str(verdict.outcome),
        "hresult": _hresult(verdict.hresult),
        "descriptors": _descriptors(verdict.descriptor),
        "sizes": verdict.sizes and verdict.sizes._asdict(),
        "missing": dict(state.missing) if isinstance(state, Unknown) else {},
        "equivalents": _descriptors(verdict.equivalent),
        "minimum": asdict(minimum) | {"level": str(minimum.level)} if minimum else None,
        "fix": verdict.fix,
        "fixes": verdict.fixes,
        "notes": verdict.notes,
        "diagnostics": list(map(_diagnostic, verdict.diagnostics[:_MAX_LISTED])),
        "omitted_diagnostics": max(0, len(verdict.diagnostics) - _MAX_LISTED),
    }


def _model(model: ModelVerdict) -> dict[str, Any]:
    """A verdict about a model without a split."""
    return {
        "file": model.file,
        "verdict": str(model.outcome),
        "fixes": model.fixes,
        "diagnostics": list(map(_diagnostic, model.diagnostics)),
    }


def _diagnostic(violation: Violation) -> dict[str, Any]:
    """A violation of a rule."""
    keys = ("severity", "message", "tensor", "field", "found", "allowed", "hint")
    effect = {"effect": violation.effect} if violation.effect else {}
    return {"rule": violation.rule.id} | effect | _fields(violation, *keys)


def _fields(value: object, *names: str) -> dict[str, Any]:
    """Some attributes of a value."""
    return {name: getattr(value, name) for name in names}


def _hresult(number: int | None) -> str | None:
    """An HRESULT as a hexadecimal number."""
    return None if number is None else f"0x{number:08X}"


def _descriptors(desc: SplitOperatorDesc | None) -> list[dict[str, Any]]:
    """A list with the descriptor, or without one an empty list."""
    if desc is None:
        return []
    outputs = list(map(_tensor, desc.output_tensors[:_MAX_LISTED]))
    tensors = {"input_tensor": _tensor(desc.input_tensor), "output_tensors": outputs}
    left = max(0, desc.output_count - _MAX_LISTED)
    return [{"text": str(desc), "axis": desc.axis, **tensors, "omitted_outputs": left}]


def _tensor(tensor: TensorDesc) -> dict[str, Any]:
    """A tensor of a descriptor."""
    keys = ("sizes", "strides", "total_tensor_size_in_bytes")
    return {"data_type": tensor.data_type.name} | _fields(tensor, *keys)
