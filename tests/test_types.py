"""What a type checker says of users' code, and of the examples for PyTorch and JAX."""

import doctest
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT, ran

# Some functions of PyTorch and JAX themselves are untyped.
OPTIONS = (
    "--strict --config-file= --follow-imports=silent --ignore-missing-imports --allow-untyped-calls"
).split()
SIZES_THAT_HAVE_AN_ORDER = """
import numpy as np
import dmlsplit as dml
a = np.arange(6)
dml.split(a, [2, 4])
dml.split(a, (2, 4))
dml.split(a, np.array([2, 4]))
dml.split(a, range(1, 4))
dml.split(a, (n for n in (2, 4)))
dml.split(a, {"q": 2, "k": 4}.values())
dml.split(a, np.int64(2))
dml.TensorDesc("INT8", [1, 2], strides=iter([2, 1]))
dml.split(a, {2, 4})  # type: ignore[arg-type]
dml.split(a, {2: 4, 4: 2})  # type: ignore[arg-type]
dml.split(a, "24")  # type: ignore[arg-type]
dml.TensorDesc("INT8", {1, 2})  # type: ignore[arg-type]
"""


def said(code: str, folder: Path, cache: Path) -> str:
    (folder / "code.py").write_text(code, "utf-8")
    # The types of PyTorch and JAX are read once.
    line = [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={cache}", "code.py"]
    done = ran(*line, cwd=folder, env={"MYPYPATH": str(ROOT)})
    return done.stdout + done.stderr


def test_the_types_know_what_has_an_order(tmp_path: Path) -> None:
    assert said(SIZES_THAT_HAVE_AN_ORDER, tmp_path, tmp_path).startswith("Success")


@pytest.mark.parametrize(("library", "page"), [("torch", "pytorch.md"), ("jax", "jax.md")])
def test_examples_are_type_checked(library: str, page: str, tmp_path: Path, builds: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    text = (ROOT / "docs" / page).read_text("utf-8")
    code = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    assert "dml.split(" in code
    assert said(code, tmp_path, builds).startswith("Success")


def test_the_types_of_torch_are_known_to_the_checker(tmp_path: Path, builds: Path) -> None:
    """So that it can say no."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    wrong = "import torch, dmlsplit\nx: int = dmlsplit.split(torch.ones(6), 2)\n"
    assert 'expression has type "list[Tensor]"' in said(wrong, tmp_path, builds)
