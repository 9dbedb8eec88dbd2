"""The real CuPy on a simulated card: its CUDA calls, one by one, without a GPU.

tests/simulated_card replaces CUDA's driver, runtime and compiler with libraries of our own. The
tests here start pytest processes on it, with the cases written for it and with every test that is
marked ``gpu``, unchanged. Tests that cannot run there are listed below, with the reason.
"""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import gpu_planner, l2_policies
from tests.simulated_card import build, host_time
from tests.support.command import ROOT, ran

TESTS = ROOT / "tests"
CASES = sorted((TESTS / "simulated_card").glob("cases_*.py"))
# Collecting the other files would take longer than running these.
GPU = sorted(path for path in TESTS.rglob("test_*.py") if "mark.gpu" in path.read_text())
ON_GPU = ("-m", "gpu and not slow", *map(str, GPU))
TIME_LIMIT_S = 600

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=str(build.missing()))

_TORCH = r"PyTorch (is not installed|sees no CUDA device)"
_JAX = r"JAX (is not installed|runs on cpu, not on the GPU)"
_CUPY = r"it needs a kernel of CuPy's own"


@dataclass(frozen=True)
class Result:
    """One test of another process: the reason why it was skipped or failed, if it did not pass."""

    name: str
    skipped: str | None
    failed: str | None


@dataclass(frozen=True)
class Card:
    """The built card, the folders its processes write to, and their options."""

    libraries: build.Libraries
    builds: Path
    folder: Path
    options: tuple[str, ...]

    def run(self, *line: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run Python on the card."""
        variables = self.libraries.environment | environment
        return ran(sys.executable, *line, cwd=ROOT, env=variables, timeout=TIME_LIMIT_S)

    def tests(self, name: str, *arguments: str, **environment: str) -> list[Result]:
        """Run pytest on the card and return the result of each test."""
        report = self.folder / f"{name}.xml"
        line = ["-m", "pytest", "-p", "tests.simulated_card.plugin", "--tb=short"]
        line += ["-p", "no:cacheprovider", f"--builds={self.builds}", f"--junitxml={report}"]
        process = self.run(*line, *self.options, *arguments, **environment)
        assert process.returncode in (0, 1), process.stdout[-4000:] + process.stderr[-4000:]
        return [_result(case) for case in ET.parse(report).iter("testcase")]


def _result(case: ET.Element) -> Result:
    wrong = [part for part in case if part.tag in ("failure", "error")]
    skipped = case.find("skipped")
    return Result(
        f"{case.get('classname', '').removeprefix('tests.')}.{case.get('name')}",
        None if skipped is None else skipped.get("message", ""),
        wrong[0].text if wrong else None,
    )


Runs = Callable[[str], list[Result]]


@pytest.fixture(scope="module")
def card(
    builds: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Card:
    options = ("--slow",) if pytestconfig.getoption("--exhaustive") else ()
    return Card(build.build(builds), builds, tmp_path_factory.mktemp("card"), options)


@pytest.fixture(scope="module")
def runs(card: Card) -> Runs:
    """Both processes at once, because without a cache most of their time goes to g++.

    The real NVRTC compiles only the sources of the cases, because it takes as long again.
    """
    pool = ThreadPoolExecutor(2)
    futures: dict[str, Future[list[Result]]] = {
        "gpu": pool.submit(card.tests, "gpu", *ON_GPU, CARD_NVRTC=""),
        "cases": pool.submit(card.tests, "cases", *map(str, CASES)),
    }
    return lambda name: futures[name].result()


def _functions(path: Path) -> list[str]:
    """The tests of a file."""
    names = re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    return [f"simulated_card.{path.stem}.{name}" for name in names]


@pytest.mark.parametrize(
    "name", [name for path in CASES for name in _functions(path)], ids=lambda name: name[15:]
)
def test_a_case_passes_on_the_simulated_card(name: str, runs: Runs) -> None:
    results = [result for result in runs("cases") if result.name.partition("[")[0] == name]
    assert results
    for result in results:
        assert not result.failed, f"{result.name}\n{result.failed}"
        assert result.skipped is None, result.name


def _names(result: Result) -> tuple[str, str]:
    """The name of a test without its parameters, and that of its file."""
    name = result.name.partition("[")[0]
    return name, name.rpartition(".")[0]


# Tests marked gpu, and files of them, that only a real card can run.
NOT_RUN = {
    "execution.test_torch_gpu": _TORCH,
    "execution.test_jax_gpu": _JAX,
    "test_gpu.test_over_2_to_the_31_elements_are_split": r"needs 14 GB of device memory, 2\.1 GB",
    "test_gpu.test_torch_tensors_come_back_as_torch_tensors": _TORCH,
    "test_gpu.test_torchs_current_stream_is_used": _TORCH,
    "test_gpu.test_an_operator_allocates_torch_outputs_for_the_given_stream": _TORCH,
    "test_gpu.test_an_operator_takes_torch_tensors": _TORCH,
    "execution.test_dask.test_pieces_of_blocks_on_a_gpu_stay_on_the_gpu": _CUPY,
    "execution.test_onnx_backend.test_official_vectors_are_reproduced_bit_by_bit": _CUPY,
}


def _check_gpu_tests(results: list[Result]) -> None:
    for result in results:
        assert not result.failed, f"{result.name}\n{result.failed}"
    skipped = [result for result in results if result.skipped is not None]
    for result in skipped:
        reasons = [NOT_RUN[name] for name in _names(result) if name in NOT_RUN]
        assert any(re.search(reason, result.skipped or "") for reason in reasons), (
            f"{result.name}: {result.skipped}"
        )
    # Each listed test exists; a machine with more software may run it.
    assert set(NOT_RUN) <= {name for result in results for name in _names(result)}
    assert len(results) - len(skipped) > 70


def test_the_gpu_tests_pass_on_the_simulated_card(runs: Runs) -> None:
    _check_gpu_tests(runs("gpu"))


@pytest.mark.slow
def test_the_gpu_tests_pass_with_exact_memory_and_early_streams(card: Card) -> None:
    """Each array has its own allocation; other streams run before the work that is waited for."""
    exact = card.tests("exact", *ON_GPU, CARD_EXACT="1", CARD_OTHERS_FIRST="1", CARD_NVRTC="")
    _check_gpu_tests(exact)


def test_the_host_benchmark_measures_every_call_and_judges_every_bar(card: Card) -> None:
    """The figures are not checked."""
    path = card.folder / "dispatch.json"
    line = ["-m", host_time.MODULE, "--rounds", "1", "-o", str(path)]
    process = card.run(*line, CARD_NVRTC="", **{host_time.INSIDE: "1"})
    assert process.returncode in (0, 1), process.stderr[-4000:]
    assert process.stdout.count("\nbar: ") == len(host_time.BARS)
    rows = json.loads(path.read_text())["rows"]
    for case in host_time.CASES:
        least = {row["peer"]: row["seconds"]["least"] for row in rows if row["case"] == case}
        assert {"split", "split into", "call", "op dispatch", "bind"} <= set(least)
        assert min(least.values()) > 0


@pytest.mark.exhaustive
def test_the_self_test_passes_no_wrong_kernel(card: Card) -> None:
    """Those that it passed once run with the other cases; here are some thirty more."""
    path = str(TESTS / "simulated_card" / "cases_wrong_kernels.py")
    results = card.tests("wrong", path, CARD_NVRTC="", CARD_WRONG="wrong_kernels.txt")
    assert len(results) >= 30
    for result in results:
        assert not result.failed, f"{result.name}\n{result.failed}"


# The command line, and how many rows it measures: two peers of 44 workloads; 14 cases of one peer
# on the processor and two on the card.
REHEARSALS = {
    "gpu": (("gpu", "--quick", "--rounds", "1", "--minutes", "30"), 88),
    "host": (("host", "--only", "equal", "--quick", "--rounds", "1"), 42),
}
# Peers of the benchmarks that run on the card; every other row carries its message.
RUNNING = {"dmlsplit", "dmlsplit (cuda)", "memcpy", "CuPy per output (cuda)"}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("gpu", marks=pytest.mark.slow),
        pytest.param("host", marks=pytest.mark.exhaustive),
    ],
)
def test_the_benchmark_program_runs_to_its_end(command: str, card: Card) -> None:
    """The figures are not checked, because they are those of this machine's processor."""
    path = card.folder / f"{command}.json"
    arguments, row_count = REHEARSALS[command]
    line = ["-m", "tests.simulated_card.rehearsal", *arguments, "-o", str(path)]
    process = card.run(*line, CARD_NVRTC="")
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    run_record = json.loads(path.read_text())
    assert run_record["after"] is not None
    rows = [row for row in run_record["rows"] if row["peer"] in RUNNING]
    wrong = [row for row in rows if row["status"] != "ok"]
    assert all("Out of memory" in row["message"] for row in wrong), wrong
    assert len(rows) - len(wrong) == row_count
    assert all(row["message"] for row in run_record["rows"] if row["status"] == "failed")


@pytest.mark.exhaustive
def test_both_forms_of_every_threshold_run_on_the_card(card: Card) -> None:
    """Every cell is exact in both forms. The card does not have the L2 policies, which are PTX."""
    process = card.run("-m", "tests.simulated_card.rehearsal", "gpu", "--planner", CARD_NVRTC="")
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    lines = process.stdout.splitlines()
    cells = [line for line in lines if " x L2 " not in line]
    assert len(cells) == sum(len(list(threshold.cells())) for threshold in gpu_planner.THRESHOLDS)
    assert not [line for line in cells if "failed" in line]
    policies = [line for line in lines if " x L2 " in line]
    assert len(policies) == len(l2_policies.SHARES) * len(l2_policies.POLICIES)
