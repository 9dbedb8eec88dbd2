"""The examples of docs/jax.md are typed as JAX and dmlsplit are."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_examples_pass_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    page = (ROOT / "docs" / "jax.md").read_text("utf-8")
    examples = [one.source for one in doctest.DocTestParser().get_examples(page)]
    (tmp_path / "jax_page.py").write_text("".join(examples))
    options = ["--config-file=", "--strict", "--follow-imports=silent", "--cache-dir=cache"]
    options += ["--allow-untyped-calls"]  # jax.P has no annotations
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "jax_page.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Success")
