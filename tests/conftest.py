"""Options and settings of the whole suite, and the folder for compiled files."""

import gc
import os
import signal
import socket
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.errors import UnsupportedError
from tests.support import builds as kept
from tests.support.case_ids import case_id

BUILDS = "builds"
ALSO_CORE = ("tests/test_wrong_arguments.py", "tests/models/onnx/test_types.py")
PROOFS = Path(__file__).parent / "proofs"
LONGEST = "test_simulated_card.py", "test_run_faults.py"  # files; one process runs a whole file
MAX_PROCESSES = 8
LONG = ("slow", "exhaustive")  # marks of tests that need an option of the same name
WORKER = "PYTEST_XDIST_WORKER"  # set by pytest-xdist in its processes, and so in their children

# Hundreds of processes start here. Without bytecode, each of them compiles the package again. The
# threads of OpenBLAS take a quarter of the time to import NumPy. The output of a process has the
# buffers that it usually has, because flushing them may fail at exit.
sys.dont_write_bytecode = False
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
    os.environ.pop(name, None)

# A shell lets its background jobs ignore SIGINT, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting tests makes a million objects that stay, and looking for garbage among them takes a
# third of its time. Later, at Python's thresholds, it takes a quarter of the time of torch.compile.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    for mark in LONG:
        parser.addoption(f"--{mark}", action="store_true", help=f"run tests marked {mark} as well")
    parser.addoption(
        "--adversary", type=int, default=30, help="cases of the adversary that --slow runs"
    )
    parser.addoption("--builds", type=Path, help="keep compiled files here, not in the cache")


def pytest_configure(config: pytest.Config) -> None:
    """Choose Hypothesis's examples: the same few in every run, or many new ones with --slow."""
    slow = any(config.getoption(f"--{mark}") for mark in LONG)
    plain = settings(
        deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not slow
    )
    settings.register_profile("default", plain, max_examples=200 if slow else 40)
    settings.load_profile("default")
    # For files that anyone may have written, because most such examples are refused early.
    settings.register_profile("many", plain, max_examples=1000 if slow else 120)
    # The simulated card uses fewer (simulated_card/plugin.py).
    settings.register_profile("gpu", plain, max_examples=150)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Share the whole suite between processes, a file at a time, unless -n says how many."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    # Other files need not be read.
    if whole and config.option.markexpr == "core":
        config.args = _core_tests(config.rootpath)
    if whole and config.option.markexpr == "not proof":
        config.option.ignore = [*(config.option.ignore or ()), str(PROOFS)]
    mark = config.option.markexpr.partition(" ")[0]
    if whole and config.option.markexpr in (*LONG, "slow and not core"):
        files = {path: path.read_text("utf-8") for path in Path(__file__).parent.rglob("test_*.py")}
        config.args = sorted(str(path) for path, text in files.items() if f"mark.{mark}" in text)
    if not whole or WORKER in os.environ or getattr(config.option, "numprocesses", 0) is not None:
        return
    if getattr(config.option, "cov_source", None):
        return  # pytest-cov has read -n already, and measures one process
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores and cores > 1 and not config.option.usepdb and not config.option.collectonly:
        # One more than cores, because tests often wait for a process or a clock.
        config.option.numprocesses = min(cores + 1, MAX_PROCESSES)
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


def pytest_make_parametrize_id(val: object) -> str | None:
    return case_id(val)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    specified = [config.rootpath / path for path in _core_tests(config.rootpath)]
    files = {item.path for item in items}
    core = {file for file in files if any(file.is_relative_to(path) for path in specified)}
    for item in items:
        if item.path.parent == PROOFS:
            item.add_marker(pytest.mark.proof)
        if "builds" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.compiler)
        if item.path in core:
            item.add_marker(pytest.mark.core)
    # The longest files come first, so that processes that share the suite end together.
    items.sort(key=lambda item: (item.path.name not in LONGEST, item.path.parent != PROOFS))
    for mark in LONG:
        skip = pytest.mark.skip(reason=f"a long sweep; run it with --{mark}")
        for item in items:
            if item.get_closest_marker(mark) and not config.getoption(f"--{mark}"):
                item.add_marker(skip)
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = _no_gpu() if gpu else None
    if reason:
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


def _core_tests(root: Path) -> list[str]:
    """The specifications of the pure core: tests of the files that must have full coverage."""
    tools = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
    sources = (
        Path("tests", *Path(file).parts[1:]) for file in tools["coverage"]["report"]["include"]
    )
    mirrored = (
        path.parent if "*" in path.name else path.with_name(f"test_{path.name}") for path in sources
    )
    return [*map(str, mirrored), *ALSO_CORE]


def _no_gpu() -> str | None:
    """Why there is no CUDA device, or None."""
    try:
        driver.load()
    except UnsupportedError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def kept_files(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for files that are kept between runs and shared by all processes."""
    folder = _cached(pytestconfig)
    if folder is None:
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if WORKER in os.environ else base) / BUILDS
        folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def builds(kept_files: Path) -> Path:
    """The folder for compiled files. Tests that use it get the marker `compiler`."""
    return kept_files


def _cached(config: pytest.Config) -> Path | None:
    """--builds, or a folder of pytest's cache; None if neither can be written."""
    option: Path | None = config.getoption("--builds")
    if option:
        option.mkdir(parents=True, exist_ok=True)
        return option
    cache = getattr(config, "cache", None)
    if cache is None:
        return None
    try:
        folder: Path = cache.mkdir(BUILDS)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Limit the size of the folder of builds, once, when all processes are done."""
    if WORKER not in os.environ:
        folder = _cached(session.config)
        if folder and not session.config.getoption("--builds"):
            kept.prune(folder)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, in which it runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _same_numbers_of_torch() -> None:
    """Random tensors do not depend on the tests that ran before, nor on how files are shared."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Iterator[None]:
    """Refuse connections to other machines: the tests pass without a network."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _local_only(getattr(socket.socket, name)))
        yield


def _local_only(connect: Any) -> Any:
    def guarded(self: socket.socket, address: Any) -> Any:
        # Connecting a datagram socket sends nothing; it only looks up the route to an address.
        is_remote = self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0])
        if is_remote and self.type == socket.SOCK_STREAM:
            raise AssertionError(f"a test connects to {address}; tests must not need a network")
        return connect(self, address)

    return guarded


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
