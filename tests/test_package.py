"""The published package: sdist -> wheel -> an installation elsewhere, and imports of commands."""

import email
import json
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
from tests.support.models import one_split

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
HOME = PROJECT["urls"]["Repository"]


def build(kind: str, source: Path, folder: Path, compiler: str = "cc") -> Path:
    # Calls the build backend without isolation, so that nothing is downloaded.
    code = f"import sys, hatchling.build as b; print(b.build_{kind}(sys.argv[1]))"
    command = sys.executable, "-c", code, str(folder)
    process = ran(*command, cwd=source, check=True, env={"CC": compiler})
    return folder / process.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("dist")
    archive = build("sdist", ROOT, folder)
    with tarfile.open(archive) as files:
        # Python 3.11.3 and older have no filters.
        files.extraction_filter = getattr(tarfile, "data_filter", None)
        files.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel, built from the sdist, as a package index would serve it."""
    return build("wheel", sdist, sdist.parent)


def test_the_sdist_has_every_file_of_the_repository_and_no_caches(sdist: Path) -> None:
    names = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    assert {".ci/run", "cuda/common.cuh", "docs/ci.md", "feature_levels.yaml"} <= names
    if (ROOT / ".git").exists() and shutil.which("git"):
        tracked_files = ran("git", "ls-files", "-z", cwd=ROOT, check=True).stdout
        assert {
            name for name in tracked_files.split("\0") if name and (ROOT / name).exists()
        } <= names
    assert not [name for name in names if re.search(r"__pycache__|_cache/|\.pyc$|\.venv", name)]


def test_the_wheel_carries_table_rules_kernels_and_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kernels = {f"dmlsplit/cuda/{p.name}" for p in (ROOT / "cuda").glob("*.cu*")}
    assert kernels
    rules = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("dmlsplit/**/*.yaml")}
    assert len(rules) == 4, "three of rules, one of runtimes"
    assert {"dmlsplit/feature_levels.yaml", "dmlsplit/py.typed", *kernels, *rules} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"dmlsplit"}


ENGINE = "dmlsplit/backends/cpu/"


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_without_a_compiler_the_wheel_suits_every_system(
    compiler: str, sdist: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(sdist, tmp_path / "source")
    (folder / ENGINE / "copy.so.0").write_text("of another source")
    built_wheel = build("wheel", folder, tmp_path, compiler)
    assert built_wheel.name.endswith("-py3-none-any.whl")
    names = {name for name in zipfile.ZipFile(built_wheel).namelist() if name.startswith(ENGINE)}
    assert {ENGINE + "copy.c", ENGINE + "assignments.py"} <= names
    assert not [name for name in names if re.search(r"build\.py|\.so", name)]


@pytest.mark.compiler
@pytest.mark.skipif(sys.platform == "win32", reason="the library needs POSIX threads")
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_with_a_compiler_the_wheel_has_the_library(kind: str, sdist: Path, tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    folder = shutil.copytree(sdist, tmp_path / "source")
    distribution = build(kind, folder, tmp_path)
    if kind == "wheel":
        assert re.search(r"-py3-none-(linux|macosx)_\w+\.whl$", distribution.name)
        zipfile.ZipFile(distribution).extractall(folder := tmp_path / "installed")
    code = "from dmlsplit.backends.cpu import native; print(native.library().path)"
    process = ran(sys.executable, "-c", code, cwd=folder, env={"PYTHONPATH": str(folder)})
    assert Path(process.stdout.strip()).parent == folder / ENGINE, process.stderr


def test_the_metadata_of_the_wheel_agrees_with_the_project(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        (name,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(files.read(name))
    assert metadata["Version"] == dml.__version__
    assert metadata["Author"] == PROJECT["authors"][0]["name"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("Classifier") == PROJECT["classifiers"]
    # `test` is for README's command, which must work with any version of pip.
    extras = "cuda12 cuda13 onnx openvino jax torch dask test"
    assert sorted(metadata.get_all("Provides-Extra")) == sorted(extras.split())
    assert not {"docs", "bench", "mutants", "frameworks"} & set(EXTRAS)


def test_the_wheel_runs_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    (python,) = [*tmp_path.glob("env/bin/python"), *tmp_path.glob("env/Scripts/python.exe")]
    (site,) = tmp_path.glob("env/[Ll]ib/**/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies come from the environment that runs the tests.
    import numpy

    (site / "borrowed.pth").write_text(str(Path(numpy.__file__).parent.parent))
    code = (
        "import dmlsplit as dml, numpy as np, pathlib, sys\n"
        "from dmlsplit.directml.levels import support_table\n"
        "from dmlsplit.resources import kernel_source\n"
        f"assert pathlib.Path(dml.__file__).is_relative_to({str(site)!r}), dml.__file__\n"
        f"assert len(support_table()) == {len(dml.FeatureLevel)}\n"
        "for name in sys.argv[1:]: assert kernel_source(name)\n"
        "print(dml.split(np.arange(3), (1, 2))[1].tolist())\n"
    )
    kernels = [path.name for path in (ROOT / "cuda").glob("*.cu*")]
    process = ran(str(python), "-c", code, *kernels, cwd=tmp_path, env={"PYTHONPATH": ""})
    assert process.stdout == "[1, 2]\n", process.stderr


def test_the_examples_and_the_changelog_name_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(
        rf"^## \[{re.escape(dml.__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE
    )
    slug = HOME.removeprefix("https://github.com/")
    manual = (ROOT / "docs" / "ci.md").read_text("utf-8")
    versions = re.findall(rf"(?:{slug}@|^    rev: )(\S+)", manual, re.MULTILINE)
    assert len(versions) == 3, "two jobs that use the action, and a pre-commit hook"
    is_released = "<!-- unreleased" not in (ROOT / "README.md").read_text("utf-8")
    assert set(versions) == {f"v{dml.__version__}" if is_released else "main"}


def test_the_citation_names_this_version_and_project() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (cited["cff-version"], cited["title"], cited["license"]) == ("1.2.0", "dmlsplit", "MIT")
    assert cited["version"] == dml.__version__
    assert cited["repository-code"] == HOME
    assert cited["url"] == PROJECT["urls"]["Documentation"]
    assert cited["message"]
    assert all(author["name"] for author in cited["authors"])


def test_the_recipe_for_conda_forge_agrees_with_the_project() -> None:
    recipe = yaml.safe_load((ROOT / "docs" / "project" / "conda-forge.yaml").read_text("utf-8"))
    run_requirements = {f"python {PROJECT['requires-python']}"}
    run_requirements |= {
        f"{requirement.name} {requirement.specifier}"
        for requirement in map(Requirement, PROJECT["dependencies"])
    }
    assert set(recipe["requirements"]["run"]) == run_requirements
    assert set(PYPROJECT["build-system"]["requires"]) <= {
        requirement.replace(" ", "") for requirement in recipe["requirements"]["host"]
    }
    (script,) = recipe["build"]["python"]["entry_points"]
    assert dict([script.split(" = ")]) == PROJECT["scripts"]
    assert recipe["context"]["version"] == dml.__version__
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert recipe["about"]["homepage"] == PROJECT["urls"]["Documentation"]


COMPATIBILITY = dict(
    re.findall(
        r"^\| ([\w, -]+?) +\| (.*?) \|",
        (ROOT / "docs" / "compatibility.md").read_text("utf-8"),
        re.MULTILINE,
    )
)
# Names on the page about compatibility, and those of the packages.
PACKAGES = {
    **{name: name.lower() for name in "NumPy PyYAML JAX OpenVINO Dask".split()},
    **{f"CuPy, for CUDA {major}": f"cupy-cuda{major}x" for major in (12, 13)},
    "PyTorch": "torch",
}


def test_the_page_about_compatibility_agrees_with_pyproject() -> None:
    requirements = [*PROJECT["dependencies"]]
    requirements += (
        specifier_part
        for name, extra_requirements in EXTRAS.items()
        if name != "test"
        for specifier_part in extra_requirements
    )
    specifiers = {
        requirement.name: requirement.specifier for requirement in map(Requirement, requirements)
    }
    # It has the major version of CuPy, and a test with the package index resolves it:
    # test_a_cuda_extra_installs_five_packages_within_its_limit.
    del specifiers["cuda-toolkit"]
    stated_versions = {PACKAGES.get(name, name): text for name, text in COMPATIBILITY.items()}
    assert set(stated_versions) - {"Python"} == set(specifiers) - {"distributed"}  # listed as Dask
    for name, specifier in specifiers.items():
        bounds = {specifier_part.operator: specifier_part.version for specifier_part in specifier}
        below = f", below {bounds['<']}" if "<" in bounds else ""
        stated_version = stated_versions["dask" if name == "distributed" else name]
        assert stated_version == f"{bounds['>=']} or newer{below}", name
    oldest = PROJECT["requires-python"].removeprefix(">=")
    newest = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: 3." in c][-1]
    assert stated_versions["Python"] == f"{oldest} to {newest}"
    for page in ("README.md", "CONTRIBUTING.md", "docs/index.md"):
        assert f"Python {oldest} " in (ROOT / page).read_text("utf-8")


# ---- the extras `cuda12` and `cuda13` install what is called of CUDA, and no more ---------------

# Without NumPy. CUDA 12's CuPy has code for twice as many cards, and its NVRTC is larger.
MAX_BYTES = {"cuda12": 240 * 10**6, "cuda13": 150 * 10**6}
# In processes of their own, because a test must not connect.
OPEN = "import sys, urllib.request as web\n"
REACH = OPEN + "web.urlopen('https://pypi.org/simple/cuda-toolkit/', timeout=20)"
SIZES = OPEN + (
    "for url in sys.argv[1:]:\n"
    "    print(web.urlopen(web.Request(url, method='HEAD'), timeout=60).headers['Content-Length'])"
)


@pytest.mark.slow
@pytest.mark.parametrize("extra", MAX_BYTES)
def test_a_cuda_extra_installs_five_packages_within_its_limit(extra: str, tmp_path: Path) -> None:
    reached = ran(sys.executable, "-c", REACH)
    if reached.returncode:
        pytest.skip(f"the package index cannot be reached: {reached.stderr.splitlines()[-1]}")
    assert ran(sys.executable, "-m", "venv", str(tmp_path / "venv")).returncode == 0
    python, report = tmp_path / "venv" / "bin" / "python", tmp_path / "report.json"
    line = "-m pip install -q --dry-run --ignore-installed --only-binary :all: --report".split()
    process = ran(str(python), *line, str(report), *EXTRAS[extra], timeout=300)
    assert process.returncode == 0, process.stderr
    packages = json.loads(report.read_text())["install"]
    urls = {package["metadata"]["name"]: package["download_info"]["url"] for package in packages}
    urls.pop("numpy")
    assert len(urls) == 5, urls
    sizes = [int(size) for size in ran(sys.executable, "-c", SIZES, *urls.values()).stdout.split()]
    assert len(sizes) == len(urls)
    assert 50 * 10**6 < sum(sizes) <= MAX_BYTES[extra], dict(zip(urls, sizes, strict=True))


# ---- light -------------------------------------------------------------------------------------

_FLAGS = "--data-type FLOAT32 --sizes 6 --axis 0 --split 2,4"


@pytest.mark.parametrize(
    ("command", "package_names"),
    [
        ("--help", ""),
        ("--version", ""),
        ("validate --help", ""),
        ("levels", "yaml"),
        (f"validate {_FLAGS}", "yaml"),
        ("validate m.onnx --windows 19041 --format sarif", "yaml"),
        ("validate dispatch.json cut.xml", "yaml"),
    ],
)
def test_validate_and_levels_import_no_package_but_yaml(
    command: str, package_names: str, tmp_path: Path
) -> None:
    """Installed packages are checked, because CI jobs fetch `validate` in every run."""
    onnx.save(one_split(TensorProto.INT64, (6,), sizes=(2, 4), axis=0), tmp_path / "m.onnx")
    for name in ("dispatch.json", "cut.xml", "cut.bin"):
        shutil.copy(ROOT / "tests" / "data" / name, tmp_path)
    code = (
        "import sys\nfrom dmlsplit.cli import main\nbefore = set(sys.modules)\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "packages = {name for name in new if not name.startswith(('_', 'cython_runtime'))}\n"
        "print(*sorted(packages - set(sys.stdlib_module_names) - {'dmlsplit'}), file=sys.stderr)\n"
    )
    process = ran(sys.executable, "-c", code, *command.split(), cwd=tmp_path)
    assert process.stderr.splitlines()[-1].split() == package_names.split(), process.stderr
