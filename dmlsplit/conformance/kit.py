"""The kit: a folder with the cases, DxDispatch models of them, and the programs that ask."""

from __future__ import annotations

import ast
import errno
import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from dmlsplit.conformance.byte_cases import output_hashes
from dmlsplit.conformance.case import Case, Expected, by_level
from dmlsplit.conformance.cases import QUESTIONS, all_cases
from dmlsplit.conformance.desc_json import desc_json
from dmlsplit.conformance.dispatch_models import models, output_file
from dmlsplit.conformance.rule_cases import NOT_ASKED
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.tensor import TensorDesc

SCHEMA = 1

# A tensor of this size and more is created, but not compiled: DirectML might allocate it.
_HUGE_BYTES = 1 << 30
_JOINED = {"__future__", "dmlsplit.conformance.asking"}


def write_kit(folder: Path) -> int:
    """Write the kit into a folder that does not exist yet or is empty; return how many files.

    Raises
    ------
    OSError
        If there is anything in the folder, or it cannot be written. Then nothing is.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(errno.EEXIST, "is not an empty folder; name a new one", str(folder))
    if not folder.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder.parent))
    texts = kit()
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as name:
        whole = Path(name, "kit")
        (whole / "dxdispatch").mkdir(parents=True)
        for path, text in texts.items():
            (whole / path).write_text(text, encoding="utf-8", newline="\n")
        if folder.exists():
            folder.rmdir()
        shutil.move(whole, folder)
    return len(texts)


def kit() -> dict[str, str]:
    """Return the files of the kit by their paths; the same every time."""
    texts = {"cases.json": cases_text(all_cases())}
    listed = []
    for name, model, cases in models(all_cases()):
        texts[f"dxdispatch/{name}.json"] = json.dumps(model) + "\n"
        listed.append({"model": f"{name}.json", "cases": [_dispatched(case) for case in cases]})
    texts["dxdispatch.json"] = _lines({"schema": SCHEMA}, "models", listed)
    texts["probe.py"] = joined(_source("asking.py"), _source("probe.py"))
    texts["run_dxdispatch.py"] = _source("run_dxdispatch.py")
    return texts


def _source(name: str) -> str:
    return files("dmlsplit.conformance").joinpath(name).read_text("utf-8")


def joined(first: str, second: str) -> str:
    """Return two programs as one: the second follows, without what it imports from the first."""
    tree = ast.parse(second)
    lines = second.splitlines()
    for node in tree.body:
        is_import = isinstance(node, ast.ImportFrom) and node.module in _JOINED
        if is_import or node is tree.body[0]:  # which is the docstring
            assert node.end_lineno
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    rest = "\n".join(lines).strip()
    return f"{first}\n\n{rest}\n"


def probed_cases(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Return the cases that a probe asks, those without bindings, as it reads them."""
    return [_record(case) for case in cases if case.placement is None]


def dispatched_models() -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the texts of the models by name, and the list of them, as `run_dxdispatch` reads."""
    texts = kit()
    models_ = {
        name.partition("/")[2]: text
        for name, text in texts.items()
        if name.startswith("dxdispatch/")
    }
    listed: list[dict[str, Any]] = json.loads(texts["dxdispatch.json"])["models"]
    return models_, listed


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
    return _lines(head, "cases", [_record(case) | _verdicts(case) for case in cases])


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


def _dispatched(case: Case) -> dict[str, Any]:
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


def _lines(head: dict[str, Any], name: str, entries: list[dict[str, Any]]) -> str:
    """Return JSON with a list at its end, one entry a line."""
    start = json.dumps(head, indent=1).removesuffix("\n}")
    body = ",\n".join(json.dumps(entry) for entry in entries)
    return f'{start},\n "{name}": [\n{body}\n ]\n}}\n'
