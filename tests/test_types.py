"""Type checkers on users' code, and on the examples for PyTorch and JAX."""

import doctest
import inspect
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.frontends import dxdispatch, onnx, openvino
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
dml.split(a, {2, 4})  # type: ignore[call-overload]
dml.split(a, {2: 4, 4: 2})  # type: ignore[arg-type]
dml.split(a, "24")  # type: ignore[call-overload]
dml.TensorDesc("INT8", {1, 2})  # type: ignore[arg-type]
dml.split(a, 2, 0, dim=0)  # type: ignore[call-overload]
dml.split(a, 2, dim="0")  # type: ignore[call-overload]
"""
WHAT_PIECES_ARE = """
from typing import Any
from typing_extensions import assert_type
import numpy as np
import numpy.typing as npt
import dmlsplit as dml

floats: npt.NDArray[np.float32] = np.zeros((4, 6), np.float32)
assert_type(dml.split(floats, 2), list[npt.NDArray[np.float32]])
assert_type(dml.split(floats, (2, 4), 1), list[npt.NDArray[np.float32]])
assert_type(dml.split(floats, (2, 4), dim=-1), list[npt.NDArray[np.float32]])
assert_type(dml.split(floats, 1, dim=0, out=[floats.copy()]), list[npt.NDArray[np.float32]])
on_disk: "np.memmap[Any, np.dtype[np.float32]]" = np.memmap("x", np.float32, "w+", shape=(4,))
assert_type(dml.split(on_disk, 2), list["np.memmap[Any, np.dtype[np.float32]]"])
"""
# A checker does not know that a Parameter is a Tensor, unless it is told.
OF_TENSORS = """
from typing_extensions import assert_type
import torch
import dmlsplit as dml

weight = torch.nn.Parameter(torch.zeros(4, 6))
assert_type(dml.split(torch.zeros(6), 2, dim=0), list[torch.Tensor])
pieces: list[torch.Tensor] = dml.split(weight, (2, 4), dim=1)
assert_type(pieces, list[torch.Tensor])
"""
CHECKED = {"sizes": SIZES_THAT_HAVE_AN_ORDER, "pieces": WHAT_PIECES_ARE, "tensors": OF_TENSORS}


def mypy_output(code: str, folder: Path, cache: Path) -> str:
    (folder / "code.py").write_text(code, "utf-8")
    # The cache keeps the types of PyTorch and JAX, which take long to read.
    line = [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={cache}", "code.py"]
    process = ran(*line, cwd=folder, env={"MYPYPATH": str(ROOT)})
    return process.stdout + process.stderr


def pyright_output(code: str, folder: Path) -> str:
    (folder / "code.py").write_text(code, "utf-8")
    settings = {
        "typeCheckingMode": "standard",
        "reportUnnecessaryTypeIgnoreComment": True,
        "extraPaths": [str(ROOT)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return ran(
        sys.executable, "-m", "pyright", "--pythonpath", sys.executable, cwd=folder, env=quiet
    ).stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("script", CHECKED)
def test_type_checkers_accept_the_scripts_of_users(
    checker: str, script: str, tmp_path: Path, kept_files: Path
) -> None:
    code = CHECKED[script]
    if "import torch" in code:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if checker == "mypy":
        assert mypy_output(code, tmp_path, kept_files).startswith("Success")
        return
    if not find_spec("pyright"):
        pytest.skip("pyright is not installed")
    assert pyright_output(code, tmp_path).startswith("0 errors")


@pytest.mark.parametrize(("library", "page"), [("torch", "pytorch.md"), ("jax", "jax.md")])
def test_examples_are_type_checked(
    library: str, page: str, tmp_path: Path, kept_files: Path
) -> None:
    """With the library's own types, without which any code would be right."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    text = (ROOT / "docs" / page).read_text("utf-8")
    code = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    assert "dml.split(" in code
    assert mypy_output(code, tmp_path, kept_files).startswith("Success")
    if library == "torch":
        wrong = "import torch, dmlsplit\nx: int = dmlsplit.split(torch.ones(6), 2)\n"
        assert 'expression has type "list[Tensor]"' in mypy_output(wrong, tmp_path, kept_files)


def test_dir_lists_the_public_names_and_signatures_name_types_without_their_module() -> None:
    assert sorted(dir(dml)) == sorted({*dml.__all__, "__version__"})
    assert str(inspect.signature(dml.split)).startswith(
        "(array: 'AnyArrayT', sizes_or_count: 'SupportsIndex | Integers', axis"
    )
    subjects = dml.split, dml.Device, dml.TensorDesc, dml.SplitOperatorDesc.from_sizes, dml.legalize
    front_ends = onnx.split, openvino.variadic_split, dxdispatch.run
    methods = dml.CompiledOperator.bind, dml.BufferBinding, dml.validate, dml.selftest
    for subject in (*subjects, *front_ends, *methods):
        assert "dmlsplit." not in str(inspect.signature(subject))
