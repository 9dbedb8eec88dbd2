"""Launches use only what CuPy documents, as the sources show.

How the kernels are loaded and launched: simulated_card/cases_kernels.py and cases_dispatch.py.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmlsplit
from dmlsplit.errors import DmlError

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
    assert int(cupy.cuda.compiler._get_max_compute_capability()) >= 121
    assert not issubclass(DmlError, RuntimeError | OSError)
