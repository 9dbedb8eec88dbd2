"""sdist -> wheel -> an installation elsewhere that has the kernels and the table."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist as an index would serve it."""
    folder = tmp_path_factory.mktemp("dist")

    def build(kind: str, source: Path) -> Path:
        # The build backend itself: no isolation, so that nothing is fetched for it.
        code = f"import sys, hatchling.build as b; print(b.build_{kind}(sys.argv[1]))"
        line = [sys.executable, "-c", code, str(folder)]
        name = subprocess.run(line, cwd=source, check=True, capture_output=True, text=True).stdout
        return folder / name.split()[-1]

    sdist = build("sdist", ROOT)
    subprocess.run(["tar", "xzf", str(sdist), "-C", str(folder)], check=True)
    return build("wheel", folder / sdist.name.removesuffix(".tar.gz"))


def test_the_wheel_carries_table_kernels_and_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kernels = {f"dmlsplit/cuda/{p.name}" for p in (ROOT / "cuda").glob("*.cu*")}
    assert kernels
    assert {"dmlsplit/feature_levels.yaml", "dmlsplit/py.typed", *kernels} <= names
    assert not any(name.startswith(("cuda/", "tests/", "benchmarks/")) for name in names)


def test_an_installation_elsewhere_runs(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies come from the environment that runs the tests.
    import numpy

    (site / "borrowed.pth").write_text(str(Path(numpy.__file__).parent.parent))
    code = (
        "import dmlsplit as dml, numpy as np, pathlib, sys\n"
        "from dmlsplit.directml.level_table import capability_table\n"
        "from dmlsplit.resources import kernel_source\n"
        f"assert pathlib.Path(dml.__file__).is_relative_to({str(site)!r}), dml.__file__\n"
        "assert len(capability_table()) == 15\n"
        "for name in sys.argv[1:]: assert kernel_source(name)\n"
        "print(dml.split(np.arange(3), (1, 2))[1].tolist())\n"
    )
    kernels = [path.name for path in (ROOT / "cuda").glob("*.cu*")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(tmp_path / "env" / "bin" / "python"), "-c", code, *kernels],
        cwd=tmp_path, capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.stdout == "[1, 2]\n", done.stderr
