"""The kit: a folder with the cases, DxDispatch models of them, and the programs that ask."""

from __future__ import annotations

import ast
import errno
import json
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from dmlsplit.conformance.cases import all_cases
from dmlsplit.conformance.dispatch_models import models
from dmlsplit.conformance.records import SCHEMA, cases_text, dispatched_case, json_lines

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
    texts, listed = dispatched_models()
    return {
        "cases.json": cases_text(all_cases()),
        **{f"dxdispatch/{name}": text for name, text in texts.items()},
        "dxdispatch.json": json_lines({"schema": SCHEMA}, "models", listed),
        "probe.py": joined(_source("asking.py"), _source("probe.py")),
        "run_dxdispatch.py": _source("run_dxdispatch.py"),
    }


def dispatched_models() -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the texts of the models by name, and the list of them, as `run_dxdispatch` reads."""
    texts, listed = {}, []
    for name, model, cases in models(all_cases()):
        texts[f"{name}.json"] = json.dumps(model) + "\n"
        listed.append({"model": f"{name}.json", "cases": [dispatched_case(case) for case in cases]})
    return texts, listed


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
