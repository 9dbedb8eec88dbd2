"""The project as a whole: style, types, imports, documentation, start-up."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest

import dmlsplit as dml
from tests.support.command import ROOT, ran
from tests.support.each import each

LIBRARY = sorted((ROOT / "dmlsplit").rglob("*.py"))
# Modules that import optional libraries.
NEEDS = {
    "dmlsplit.execution.torch": "torch",
    "dmlsplit.execution.torch_fast_path": "torch",
    "dmlsplit.execution.torch_operators": "torch",
    "dmlsplit.frameworks.torch": "torch",
    "dmlsplit.execution.jax": "jax",
    "dmlsplit.arrays.torch_private": "torch",
}
MODULES = [
    module.name
    for module in pkgutil.walk_packages(dml.__path__, "dmlsplit.")
    if not module.name.endswith("__main__") and find_spec(NEEDS.get(module.name, "dmlsplit"))
]


def run(*line: str) -> "subprocess.CompletedProcess[str]":
    return ran(sys.executable, *line, cwd=ROOT)


def test_splitting_a_numpy_array_imports_no_slow_library() -> None:
    heavy = "cupy onnx yaml tqdm pynvml dask openvino torch jax matplotlib".split()
    code = "import sys, numpy, dmlsplit; dmlsplit.split(numpy.arange(4), 2)"
    process = run("-c", f"{code}; print([m for m in {heavy} if m in sys.modules])")
    assert process.stdout == "[]\n", process.stderr


def processor_seconds(*line: str) -> float:
    """The processor time of a command, which other programs do not lengthen."""
    resource = pytest.importorskip("resource", reason="Windows does not count it for children")

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    assert run(*line).returncode == 0
    return used() - before


@pytest.mark.parametrize("line", ["levels", "validate tests/data/dml_split.json"])
def test_a_command_takes_less_than_twice_the_time_of_importing_numpy(line: str) -> None:
    """The ratio of the minima of two commands, run alternately, does not depend on this machine."""
    command = numpy = float("inf")
    for attempt in range(20):
        command = min(command, processor_seconds("-m", "dmlsplit", *line.split()))
        numpy = min(numpy, processor_seconds("-c", "import numpy"))
        if attempt >= 3 and command < 2 * numpy:
            break
    assert command < 2 * numpy


@each(module=MODULES)
def test_no_module_is_shadowed_by_an_attribute_of_its_package(module: str) -> None:
    """`import a.b as c` gives the attribute b of a, which must be the module."""
    package, _, name = module.rpartition(".")
    imported_module = importlib.import_module(module)
    assert getattr(sys.modules[package], name) is imported_module


EXAMPLES = [name for name in MODULES if ">>>" in inspect.getsource(importlib.import_module(name))]


@pytest.mark.parametrize("module", ["dmlsplit", *EXAMPLES])
def test_docstring_examples_work(module: str, here: Path) -> None:
    shutil.copytree(ROOT / "tests" / "data", here / "tests/data")
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


FRONT_ENDS = [
    importlib.import_module(f"dmlsplit.frontends.{name}")
    for name in ("onnx", "openvino", "dxdispatch")
]
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (dml, importlib.import_module("dmlsplit.frontends"), *FRONT_ENDS)
    for name in module.__all__
}


@each(name=PUBLIC)
def test_a_public_name_has_an_example_and_says_what_else_to_see(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    sections = re.findall(r"^([A-Z][A-Za-z ]+)\n-+$", text, re.MULTILINE)
    assert {"See Also", "Examples"} <= {*sections}
    assert ">>> " in text.rpartition("\nExamples\n")[2]
    # numpydoc's
    order = ["Parameters", "Attributes", "Returns", "Raises", "See Also", "Notes", "Examples"]
    assert sections == [section for section in order if section in sections]


_FILE = re.compile(r"(?<![\w./])((?:[\w-]+/)*[\w-]+\.py)\b")


def test_docstrings_of_files_name_files_that_exist() -> None:
    """A name without a folder is that of a file beside it."""
    for path in LIBRARY:
        for name in _FILE.findall(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""):
            nearby = (path.parent / name, ROOT / "dmlsplit" / name, ROOT / name)
            assert any(map(Path.is_file, nearby)), f"{path} names {name}"


def test_cuda_is_not_a_package() -> None:
    """An __init__.py there would hide NVIDIA's own `cuda` package, which CuPy needs."""
    assert not (ROOT / "cuda" / "__init__.py").exists()


def test_imports_keep_the_contracts_of_import_linter() -> None:
    """The contracts of [tool.importlinter] in pyproject.toml; a file in no layer breaks them."""
    process = run("-c", "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])")
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize("package", ["dmlsplit", "benchmarks"])
def test_imports_have_no_cycles(package: str) -> None:
    """Imports for annotations count too."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # static_order raises a CycleError that names the files of a cycle.
    assert len(list(TopologicalSorter(imports).static_order())) == len(imports)


def test_benchmarks_import_no_tests() -> None:
    sources = {path.name: path.read_text() for path in ROOT.glob("benchmarks/**/*.py")}
    pattern = re.compile(r"^\s*(from|import) tests\b", re.MULTILINE)
    assert sources
    assert [name for name, source in sources.items() if pattern.search(source)] == []


def test_only_one_module_imports_each_library_of_the_gpu() -> None:
    def touching(pattern: str, paths: list[Path]) -> set[str]:
        return {path.name for path in paths if re.search(pattern, path.read_text())}

    assert touching(r"import cupy\b", LIBRARY) == {"cupy_driver.py"}
    assert touching("nvmlInit", [*LIBRARY, *ROOT.glob("benchmarks/**/*.py")]) == {"nvml.py"}


_TEXT = r"(?:str\(error\)|error\.(?:args\[0\]|message))"
_METHODS = "count|endswith|find|partition|removeprefix|rpartition|startswith"
SEARCHED_ERROR = re.compile(
    rf"(?: in|[!=]=|\bre\..*) {_TEXT}|{_TEXT}(?: in | [!=]= |\.(?:{_METHODS})\(|\.split\([^)])"
)


def test_code_never_reads_the_text_of_an_error() -> None:
    """Code reads an error's fields, never its text."""
    assert all(map(SEARCHED_ERROR.search, ("'b' in str(error)", "error.args[0].find('b')")))
    places_by_file = {path.name: SEARCHED_ERROR.findall(path.read_text()) for path in LIBRARY}
    assert {name for name, places in places_by_file.items() if places} == set()


# Names that files of several rooms have, because their role in them is the same.
ROLES = {
    *("__init__", "__main__"),
    *("engine", "lowering", "scanner"),  # of a device, of a format
    *("onnx", "openvino", "torch"),  # public names, and the code
    "levels",  # a command has the name of its subject
}


def test_files_of_one_name_have_one_role() -> None:
    counts = Counter(path.stem for path in LIBRARY)
    assert {name for name, count in counts.items() if count > 1} <= ROLES


def test_test_files_have_at_most_500_lines() -> None:
    test_files = (ROOT / "tests").rglob("*.py")
    long = {path.name for path in test_files if len(path.read_text().splitlines()) > 500}
    assert long == set()


def test_the_decorator_each_names_the_cases_that_fail() -> None:
    @each(number=range(4), word=["a", "b"])
    def check(number: int, word: str, limit: int) -> None:
        assert number < limit or word == "a"

    check(limit=4)
    with pytest.raises(ExceptionGroup, match=r"^2 of 8 cases failed: ") as failure:
        check(limit=2)
    for number in (2, 3):
        assert f"{{'number': {number}, 'word': 'b'}}" in failure.value.message
