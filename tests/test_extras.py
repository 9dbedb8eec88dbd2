"""The extras `cuda12` and `cuda13` install what is called of CUDA, and no more."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.command import ROOT, ran

# Without NumPy. CUDA 12's CuPy has code for twice as many cards, and its NVRTC is larger.
MOST_BYTES = {"cuda12": 240 * 10**6, "cuda13": 150 * 10**6}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# In processes of their own, because a test must not connect.
OPEN = "import sys, urllib.request as web\n"
REACH = OPEN + "web.urlopen('https://pypi.org/simple/cuda-toolkit/', timeout=20)"
SIZES = OPEN + (
    "for url in sys.argv[1:]:\n"
    "    print(web.urlopen(web.Request(url, method='HEAD'), timeout=60).headers['Content-Length'])"
)


@pytest.mark.slow
@pytest.mark.parametrize("extra", MOST_BYTES)
def test_an_extra_is_small(extra: str, tmp_path: Path) -> None:
    reached = ran(sys.executable, "-c", REACH)
    if reached.returncode:
        pytest.skip(f"the package index cannot be reached: {reached.stderr.splitlines()[-1]}")
    assert ran(sys.executable, "-m", "venv", str(tmp_path / "venv")).returncode == 0
    python, report = tmp_path / "venv" / "bin" / "python", tmp_path / "report.json"
    line = "-m pip install -q --dry-run --ignore-installed --only-binary :all: --report".split()
    done = ran(str(python), *line, str(report), *EXTRAS[extra], timeout=300)
    assert done.returncode == 0, done.stderr
    installed = json.loads(report.read_text())["install"]
    urls = {one["metadata"]["name"]: one["download_info"]["url"] for one in installed}
    urls.pop("numpy")
    assert len(urls) == 5, urls
    sizes = [int(size) for size in ran(sys.executable, "-c", SIZES, *urls.values()).stdout.split()]
    assert len(sizes) == len(urls)
    assert 50 * 10**6 < sum(sizes) <= MOST_BYTES[extra], dict(zip(urls, sizes, strict=True))
