"""Launches use only what CuPy documents, as the sources show, and kernels are loaded once.

With the real CuPy: simulated_card/cases_kernels.py and cases_dispatch.py.
"""

import ast
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace

import pytest

import dmlsplit
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.cuda.raw_kernels import Launcher, RawKernels
from dmlsplit.errors import DmlError
from tests.support.descriptors import packed_split

PACKAGE = Path(dmlsplit.__file__).parent
# Without `installation`, which knows CuPy by its versions only.
ENGINE = [path for path in PACKAGE.glob("backends/cuda/*.py") if path.stem != "installation"]
# Attributes of CuPy that https://docs.cupy.dev/en/stable/reference documents, by their owner.
DOCUMENTED = {
    "cupy": {"RawKernel", "asarray", "asnumpy", "cuda", "from_dlpack", "ndarray"},
    "cuda": {"Device", "Event", "Stream", "get_current_stream", "runtime"},
    "runtime": {
        "deviceGetAttribute", "driverGetVersion", "getDevice", "getDeviceCount",
        "getDeviceProperties", "memGetInfo", "pointerGetAttributes", "runtimeGetVersion",
    },
}  # fmt: skip
# Names that CuPy does not document, for errors and diagnosis only.
DIAGNOSIS = {
    "__version__", "compiler", "nvrtc",
    "CompileException", "NVRTCError", "CUDARuntimeError",
    "_get_max_compute_capability", "getSupportedArchs", "getVersion",
}  # fmt: skip
OWNERS = {"cupy", "cuda", "runtime", "nvrtc", "compiler"}
# The only calls of NVIDIA's driver by ctypes: the driver's version, and the order of devices.
CTYPES = {"cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "cuDeviceGetPCIBusId"}


def attributes(path: Path) -> Iterator[tuple[str, str]]:
    """Attributes of CuPy and its modules, and their owners, in a source."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(value=owner, attr=name):
                pass
            case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(str(name)), *_]):
                pass
            case _:
                continue
        owner_name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if (module := owner_name.removeprefix("_")) in OWNERS:
            yield module, name


def test_undocumented_names_of_cupy_are_used_for_errors_and_diagnosis_only() -> None:
    name_pairs = {pair for path in ENGINE for pair in attributes(path)}
    documented = {(owner, name) for owner, names in DOCUMENTED.items() for name in names}
    assert documented <= name_pairs
    assert {name for _, name in name_pairs - documented} == DIAGNOSIS


def test_no_source_launches_or_loads_a_kernel_but_through_cupy() -> None:
    launch_pattern = re.compile(r"cupy_backends|cuda\.function|[lL]aunchKernel|[cC]uModule")
    for path in PACKAGE.rglob("*.py"):
        assert not launch_pattern.search(path.read_text()), path
    for path in ENGINE:
        text = path.read_text()
        assert ("CDLL" in text) == (path.name == "libcuda.py")
        if path.name == "libcuda.py":
            assert set(re.findall(r"\.(cu[A-Z]\w+)", text)) == CTYPES


def test_cupy_has_every_name_that_is_used_for_errors_and_diagnosis() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)
    assert issubclass(cupy.cuda.nvrtc.NVRTCError, RuntimeError)
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert callable(cupy.cuda.nvrtc.getSupportedArchs)
    # The newest GPU for which our CuPy compiles: 12.1.
    assert int(cupy.cuda.compiler._get_max_compute_capability()) >= 121


def test_our_errors_are_not_taken_for_those_of_cupy() -> None:
    """The engine catches RuntimeError and OSError of CuPy, and must let ours pass."""
    assert not issubclass(DmlError, RuntimeError | OSError)


class Kernel:
    """A kernel whose code takes a while to load."""

    def __init__(self, while_loading: Callable[[str], object], source: str) -> None:
        self.while_loading, self.source = while_loading, source

    @property
    def num_regs(self) -> int:
        self.while_loading(self.source)
        return 32


def kernels_that_load(while_loading: Callable[[str], object]) -> RawKernels:
    cupy = SimpleNamespace(RawKernel=lambda source, *_: Kernel(while_loading, source), cuda=None)
    return RawKernels(cupy, lambda device, what: nullcontext())


def test_threads_that_need_a_kernel_load_it_once_on_each_device() -> None:
    kernels = kernels_that_load(lambda source: time.sleep(0.05))
    for device in range(2):
        start = Barrier(4)

        def loaded(_: int, device: int = device, start: Barrier = start) -> object:
            start.wait()
            return kernels.load(device, "source", "name")

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(loaded, range(4))) == {kernels.loaded(device, "source")}


def test_a_signal_handler_may_load_a_kernel_while_its_thread_loads_one() -> None:
    def interrupted(source: str) -> None:
        if source == "first":
            kernels.load(0, "second", "name")

    kernels = kernels_that_load(interrupted)
    thread = Thread(target=kernels.load, args=(0, "first", "name"), daemon=True)
    thread.start()
    thread.join(20)
    assert kernels.loaded(0, "first")
    assert kernels.loaded(0, "second")


def test_a_launch_has_the_planned_blocks_and_threads() -> None:
    """A block may have fewer threads than its code allows."""
    (launch,) = plan(
        packed_split((64, 20480), axis=1, sizes=(16384, 2048, 2048)),
        16,
        16,
        H200.limits,
    )
    assert launch.threads < launch.code.max_threads
    calls: list[tuple[object, ...]] = []
    cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0))
    launcher = Launcher(
        cuda, lambda *_: DmlError(), 0, lambda *call: calls.append(call[:2]), launch
    )
    launcher.launch_at([0, 16, 32, 48], None)
    assert calls == [((launch.grid,), (launch.threads,))]
