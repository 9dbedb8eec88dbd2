"""The examples for PyTorch have the types that they use: a type checker reads them."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
ROOT = Path(__file__).parent.parent.parent
OPTIONS = (
    "--strict",
    "--config-file=",
    "--follow-imports=silent",
    "--ignore-missing-imports",
    "--allow-untyped-calls",  # some of torch's own
)


def checked(code: str, folder: Path, builds: Path) -> subprocess.CompletedProcess[str]:
    (folder / "examples.py").write_text(code, "utf-8")
    # PyTorch's own types are read once.
    line = [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={builds}", "examples.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_examples_for_torch_are_type_checked(tmp_path: Path, builds: Path) -> None:
    page = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
    code = "".join(example.source for example in doctest.DocTestParser().get_examples(page))
    assert "dml.split(" in code
    done = checked(code, tmp_path, builds)
    assert done.returncode == 0, done.stdout + done.stderr
    # The types of torch and of dmlsplit are known to the checker, so that it can say no.
    wrong = "import torch, dmlsplit\nx: int = dmlsplit.split(torch.ones(6), 2)\n"
    done = checked(wrong, tmp_path, builds)
    assert 'expression has type "list[Tensor]"' in done.stdout, done.stdout + done.stderr
