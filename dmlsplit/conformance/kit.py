"""The kit: a folder with the cases, DxDispatch models of them, and the probe that asks."""

import errno
import json
import shutil
import tempfile
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from dmlsplit.conformance.byte_cases import is_small, output_hashes
from dmlsplit.conformance.case import Case, by_level
from dmlsplit.conformance.cases import QUESTIONS, all_cases
from dmlsplit.conformance.models import desc_json, model
from dmlsplit.conformance.probe import SCHEMA, json_lines
from dmlsplit.conformance.rule_cases import NOT_ASKED
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.rules import RULES

# A tensor of this size and more is created, but not compiled: DirectML might allocate it.
_HUGE_BYTES = 1 << 30


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
    models = {case.id: model(case) for case in all_cases() if is_small(case.desc)}
    return {
        "cases.json": _cases_text(),
        **{f"dxdispatch/{name}.json": json.dumps(each) + "\n" for name, each in models.items()},
        "probe.py": files("dmlsplit.conformance").joinpath("probe.py").read_text("utf-8"),
    }


def _cases_text() -> str:
    from dmlsplit import __version__

    used = {rule for case in all_cases() for _, now in by_level(case) for rule in now.rules}
    return json_lines(
        {
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
            "cases": [_record(case) for case in all_cases()],
        }
    )


def _record(case: Case) -> dict[str, Any]:
    placement = {} if case.placement is None else {"placement": asdict(case.placement)}
    hashes = {"output_sha256": output_hashes(case)} if case.id.startswith("bytes-") else {}
    return {
        "id": case.id,
        "about": case.about,
        "values": case.values,
        **placement,
        "last_stage": _last_stage(case),
        "desc": desc_json(case.desc),
        "expected": [
            {
                "from": str(level),
                **asdict(now),
                "hresult": f"0x{now.hresult:08X}",
                "policy": now.policy,
            }
            for level, now in by_level(case)
        ],
        **hashes,
    }


def _last_stage(case: Case) -> str:
    if case.placement is not None:
        return "bind"
    tensors = (case.desc.input_tensor, *case.desc.output_tensors)
    largest = max(max(t.total_tensor_size_in_bytes, t.minimum_size_in_bytes) for t in tensors)
    return "create" if largest >= _HUGE_BYTES else "compile"
