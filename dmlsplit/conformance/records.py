"""The cases as JSON: what a probe asks, what `run_dxdispatch` keeps, and what is expected."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dmlsplit.conformance.byte_cases import output_hashes
from dmlsplit.conformance.case import Case, Expected, by_level
from dmlsplit.conformance.cases import QUESTIONS
from dmlsplit.conformance.desc_json import desc_json
from dmlsplit.conformance.dispatch_models import output_file
from dmlsplit.conformance.rule_cases import NOT_ASKED
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.tensor import TensorDesc

SCHEMA = 1

# A tensor of this size and more is created, but not compiled: DirectML might allocate it.
_HUGE_BYTES = 1 << 30


def cases_text(cases: Iterable[Case]) -> str:
    """Return ``cases.json``: every case in a line, with what is expected from which level on."""
    from dmlsplit import __version__

    cases = tuple(cases)
    used = {rule for case in cases for _, now in by_level(case) for rule in now.rules}
    head = {
        "schema": SCHEMA,
        "tool": {"name": "dmlsplit", "version": __version__},
        "levels": {str(level): int(level) for level in FeatureLevel},
        "rules": {
            name: {"sentence": rule.sentence, "basis": rule.basis, "source": rule.source}
            for name, rule in RULES.items()
            if name in used
        },
        "not_asked": NOT_ASKED,
        "questions": [{"text": q.text, "cases": list(q.cases)} for q in QUESTIONS],
    }
    return json_lines(head, "cases", [_record(case) | _verdicts(case) for case in cases])


def _record(case: Case) -> dict[str, Any]:
    tensors = (case.desc.input_tensor, *case.desc.output_tensors)
    last = "create" if any(map(_is_huge, tensors)) else "compile"
    if case.placement is not None:
        last = "bind"
    return {
        "id": case.id,
        "about": case.about,
        "values": case.values,
        "last_stage": last,
        "desc": desc_json(case.desc),
    }


def _is_huge(tensor: TensorDesc) -> bool:
    return max(tensor.total_tensor_size_in_bytes, tensor.minimum_size_in_bytes) >= _HUGE_BYTES


def _verdicts(case: Case) -> dict[str, Any]:
    verdicts = [_verdict(level, now) for level, now in by_level(case)]
    more: dict[str, Any] = {"expected": verdicts}
    if case.id.startswith("bytes-"):
        more["output_sha256"] = output_hashes(case)
    return more


def _verdict(level: FeatureLevel, now: Expected) -> dict[str, Any]:
    return {
        "from": str(level),
        "verdict": "accepted" if now.accepted else "refused",
        "stage": now.stage,
        "hresult": f"0x{now.hresult:08X}",
        "rules": now.rules,
        "policy": now.policy,
    }


def dispatched_case(case: Case) -> dict[str, Any]:
    """Return a case as `run_dxdispatch` reads it."""
    desc = desc_json(case.desc)
    outputs = [output_file(case, index) for index in range(case.desc.output_count)]
    kept = case.placement is None and case.id.startswith("bytes-")
    where = {} if case.placement is None else {"placement": asdict(case.placement)}
    return {
        "id": case.id,
        "values": case.values,
        **where,
        "desc": desc,
        "outputs": outputs if kept else [],
        "element_bytes": case.desc.input_tensor.element_bytes,
        "strides": [tensor.effective_strides for tensor in case.desc.output_tensors],
    }


def probed_cases(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Return the cases that a probe asks, those without bindings, as it reads them."""
    return [_record(case) for case in cases if case.placement is None]


def json_lines(head: dict[str, Any], name: str, entries: list[dict[str, Any]]) -> str:
    """Return JSON with a list at its end, one entry a line."""
    start = json.dumps(head, indent=1).removesuffix("\n}")
    body = ",\n".join(json.dumps(entry) for entry in entries)
    return f'{start},\n "{name}": [\n{body}\n ]\n}}\n'
