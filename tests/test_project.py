"""The project as a whole: style, types, imports, documentation, start-up."""

import inspect
import os
import subprocess
import sys
import time
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import dmlsplit as dml

ROOT = Path(__file__).parent.parent
CODE = [ROOT / "dmlsplit", ROOT / "benchmarks", ROOT / "tests"]


def run(*line: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *line],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize(
    "check",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=["lint", "format", "types"],
)
def test_the_code_is_clean(check: list[str]) -> None:
    done = run("-m", *check)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "cupy onnx yaml tqdm pynvml dask openvino torch matplotlib".split()
    done = run("-c", f"import sys, dmlsplit; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def seconds(*line: str) -> float:
    start = time.perf_counter()
    assert run(*line).returncode == 0
    return time.perf_counter() - start


def test_levels_starts_in_little_more_than_numpy_takes() -> None:
    """A ratio of whole commands in turns, the best of each: not a timing of this machine."""
    levels = numpy = float("inf")
    for turn in range(20):
        levels = min(levels, seconds("-m", "dmlsplit", "levels"))
        numpy = min(numpy, seconds("-c", "import numpy"))
        if turn >= 3 and levels < 2.5 * numpy:
            break
    assert levels < 2.5 * numpy


def test_every_public_name_is_documented_and_annotated() -> None:
    assert sorted(dml.__all__) == dml.__all__
    for name in dml.__all__:
        value = getattr(dml, name)
        assert inspect.getdoc(value), name
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            assert signature.return_annotation is not inspect.Signature.empty, name


def test_docstring_examples_work() -> None:
    import doctest
    import importlib

    for name in ("dmlsplit", "dmlsplit.directml.operator", "dmlsplit.eager"):
        results = doctest.testmod(importlib.import_module(name))
        assert results.attempted > 0
        assert results.failed == 0


def test_cuda_is_no_package() -> None:
    """An __init__.py there would hide NVIDIA's own `cuda` package, which CuPy needs."""
    assert not (ROOT / "cuda" / "__init__.py").exists()


def test_imports_go_one_way() -> None:
    """The contracts of [tool.importlinter] in pyproject.toml; a file in no layer breaks them."""
    done = run("-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])")
    assert done.returncode == 0, done.stdout + done.stderr


# A dask.array is split block by block with dml.split itself, and dask is optional.
LAZY = ("dmlsplit.eager", "dmlsplit.storage.dask_arrays")


@pytest.mark.parametrize("package", ["dmlsplit", "benchmarks"])
def test_no_file_imports_itself_through_others(package: str) -> None:
    """Imports for annotations count as well."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    if package == "dmlsplit":
        imports[LAZY[0]].remove(LAZY[1])
    # static_order raises a CycleError that names the files of a circle.
    assert len(list(TopologicalSorter(imports).static_order())) == len(imports)


def test_only_the_driver_touches_cupy() -> None:
    for path in (ROOT / "dmlsplit").rglob("*.py"):
        if path.name != "driver.py":
            assert "import cupy" not in path.read_text(), path


def test_only_one_room_opens_nvml() -> None:
    for path in [*(ROOT / "dmlsplit").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        if path.name != "nvml.py":
            assert "nvmlInit" not in path.read_text(), path
