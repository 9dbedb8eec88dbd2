"""The published package: sdist -> wheel -> an installation elsewhere, and imports of commands."""

import email
import re
import shutil
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import TensorProto
from packaging.requirements import Requirement

import dmlsplit as dml
from tests.support.command import ROOT, ran
from tests.support.models import single

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
HOME = PROJECT["urls"]["Repository"]


def build(kind: str, source: Path, folder: Path) -> Path:
    # Calls the build backend without isolation, so that nothing is downloaded.
    code = f"import sys, hatchling.build as b; print(b.build_{kind}(sys.argv[1]))"
    done = ran(sys.executable, "-c", code, str(folder), cwd=source, check=True)
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("dist")
    archive = build("sdist", ROOT, folder)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel, built from the sdist, as a package index would serve it."""
    return build("wheel", sdist, sdist.parent)


def test_the_sdist_is_the_repository(sdist: Path) -> None:
    names = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    wanted = """
        .ci/run .github/workflows/tests.yml .pre-commit-hooks.yaml action.yml benchmarks/__main__.py
        cuda/common.cuh docs/ci.md feature_levels.yaml tests/test_package.py
    """
    assert set(wanted.split()) <= names
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = ran("git", "ls-files", "-z", cwd=ROOT, check=True).stdout
        assert {name for name in listed.split("\0") if name and (ROOT / name).exists()} <= names
    assert not [name for name in names if re.search(r"__pycache__|_cache/|\.pyc$|\.venv", name)]


def test_the_wheel_carries_table_kernels_and_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kernels = {f"dmlsplit/cuda/{p.name}" for p in (ROOT / "cuda").glob("*.cu*")}
    assert kernels
    assert {"dmlsplit/feature_levels.yaml", "dmlsplit/py.typed", *kernels} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"dmlsplit"}


def test_the_metadata_of_the_wheel_agrees_with_the_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(files.read(name))
    assert metadata["Version"] == dml.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("Classifier") == PROJECT["classifiers"]
    # `test` is for README's command, which must work with any version of pip.
    extras = "cuda12 cuda13 onnx openvino jax torch dask fast completion test"
    assert sorted(metadata.get_all("Provides-Extra")) == sorted(extras.split())
    assert not {"docs", "bench", "mutants", "frameworks"} & set(PROJECT["optional-dependencies"])


def test_libraries_with_experimental_interfaces_have_an_upper_bound() -> None:
    """`.ci/run` and CONTRIBUTING.md use the versions of the dependency group."""
    extras, groups = PROJECT["optional-dependencies"], PYPROJECT["dependency-groups"]
    assert extras["jax"] == ["jax>=0.10,<0.11"]
    for name in ("jax", "torch"):
        (tried,) = (one for one in groups["frameworks"] if one.startswith(f"{name}=="))
        assert Requirement(extras[name][0]).specifier.contains(tried.partition("==")[2])


def test_an_installation_elsewhere_runs(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    (python,) = [*tmp_path.glob("env/bin/python"), *tmp_path.glob("env/Scripts/python.exe")]
    (site,) = tmp_path.glob("env/[Ll]ib/**/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies come from the environment that runs the tests.
    import numpy

    (site / "borrowed.pth").write_text(str(Path(numpy.__file__).parent.parent))
    code = (
        "import dmlsplit as dml, numpy as np, pathlib, sys\n"
        "from dmlsplit.directml.levels import capability_table\n"
        "from dmlsplit.resources import kernel_source\n"
        f"assert pathlib.Path(dml.__file__).is_relative_to({str(site)!r}), dml.__file__\n"
        "assert len(capability_table()) == 15\n"
        "for name in sys.argv[1:]: assert kernel_source(name)\n"
        "print(dml.split(np.arange(3), (1, 2))[1].tolist())\n"
    )
    kernels = [path.name for path in (ROOT / "cuda").glob("*.cu*")]
    done = ran(str(python), "-c", code, *kernels, cwd=tmp_path, env={"PYTHONPATH": ""})
    assert done.stdout == "[1, 2]\n", done.stderr


def test_the_examples_and_the_changelog_name_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## \[{re.escape(dml.__version__)}\]", text, re.MULTILINE)
    slug = HOME.removeprefix("https://github.com/")
    manual = (ROOT / "docs" / "ci.md").read_text("utf-8")
    used = re.findall(rf"(?:{slug}@v|^    rev: v)(\S+)", manual, re.MULTILINE)
    assert len(used) == 3
    assert set(used) == {dml.__version__}


def test_every_address_is_that_of_the_project() -> None:
    owner, _, name = HOME.removeprefix("https://github.com/").partition("/")
    raw = HOME.replace("github.com", "raw.githubusercontent.com")
    pages = f"https://{owner}.github.io/{name}/"
    allowed = (HOME, f"{raw}/main/", pages, "https://pypi.org/project/dmlsplit/")
    files = "*.md", "docs/**/*.md", "action.yml", ".github/**/*.yml", "CITATION.cff"
    texts = [page.read_text("utf-8") for pattern in files for page in ROOT.glob(pattern)]
    text = "\n".join([*texts, *PROJECT["urls"].values()])
    found = re.findall(r"https?://[^\s)>\"'`]*dmlsplit[^\s)>\"'`]*", text, re.IGNORECASE)
    assert len(found) > 4
    assert not [address for address in found if not address.startswith(allowed)]


def test_the_citation_names_this_version_and_project() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (cited["cff-version"], cited["title"], cited["license"]) == ("1.2.0", "dmlsplit", "MIT")
    assert cited["version"] == dml.__version__
    assert cited["repository-code"] == HOME
    assert cited["url"] == PROJECT["urls"]["Documentation"]
    assert cited["message"]
    assert all(author["name"] for author in cited["authors"])


COMPATIBILITY = dict(
    re.findall(
        r"^\| ([\w, -]+?) +\| (.*?) \|",
        (ROOT / "docs" / "compatibility.md").read_text("utf-8"),
        re.MULTILINE,
    )
)
# Names on the page about compatibility, and those of the packages.
PACKAGES = {
    "NumPy": "numpy",
    "PyYAML": "pyyaml",
    "CuPy, for CUDA 12": "cupy-cuda12x",
    "CuPy, for CUDA 13": "cupy-cuda13x",
    "PyTorch": "torch",
    "JAX": "jax",
    "OpenVINO": "openvino",
    "Dask": "dask",
}


def test_the_page_about_compatibility_agrees_with_pyproject() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = [*PROJECT["dependencies"]]
    declared += (one for name, given in extras.items() if name != "test" for one in given)
    needed = {found.name: found.specifier for found in map(Requirement, declared)}
    named = {PACKAGES.get(name, name): text for name, text in COMPATIBILITY.items()}
    assert set(named) - {"Python"} == set(needed) - {"distributed"}  # listed as Dask
    for name, specifier in needed.items():
        bounds = {one.operator: one.version for one in specifier}
        below = f", below {bounds['<']}" if "<" in bounds else ""
        said = named["dask" if name == "distributed" else name]
        assert said == f"{bounds['>=']} or newer{below}", name
    pythons = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert named["Python"] == f"{pythons[0]} to {pythons[-1]}"


# ---- light -------------------------------------------------------------------------------------

_FLAGS = "--data-type FLOAT32 --sizes 6 --axis 0 --split 2,4"


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("--help", ""),
        ("--version", ""),
        ("validate --help", ""),
        ("levels", "yaml"),
        (f"validate {_FLAGS}", "yaml"),
        ("validate m.onnx --windows 19041 --format sarif", "numpy yaml"),
        ("validate m.json", "numpy yaml"),
    ],
)
def test_a_command_imports_what_it_needs(command: str, needed: str, tmp_path: Path) -> None:
    """Installed packages are checked, because CI jobs fetch `validate` in every run."""
    onnx.save(single(TensorProto.INT64, (6,), (2, 4), 0), tmp_path / "m.onnx")
    (tmp_path / "m.json").write_bytes((ROOT / "tests/data/dispatch.json").read_bytes())
    code = (
        "import sys\nfrom dmlsplit.cli import main\nbefore = set(sys.modules)\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "packages = {name for name in new if not name.startswith(('_', 'cython_runtime'))}\n"
        "print(*sorted(packages - set(sys.stdlib_module_names) - {'dmlsplit'}), file=sys.stderr)\n"
    )
    done = ran(sys.executable, "-c", code, *command.split(), cwd=tmp_path)
    assert done.stderr.splitlines()[-1].split() == needed.split(), done.stderr
