"""What a type checker says of users' code."""

import sys
from pathlib import Path

from tests.support.command import ROOT, ran

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


def test_the_types_know_what_has_an_order(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text(SIZES_THAT_HAVE_AN_ORDER)
    options = "--strict --config-file= --follow-imports=silent --cache-dir=cache".split()
    line = [sys.executable, "-m", "mypy", *options, "sizes.py"]
    done = ran(*line, cwd=tmp_path, env={"MYPYPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
