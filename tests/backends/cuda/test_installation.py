"""What is wrong with an installation is one sentence, and the command that mends it."""

import re
from typing import Any

import pytest

from dmlsplit.backends.cuda import installation
from dmlsplit.backends.cuda.installation import CompileTarget, Cuda

ONE, BOTH = ["cupy-cuda13x 14.2.0"], ["cupy-cuda12x 14.2.0", "cupy-cuda13x 14.2.0"]
OLD = ["cupy-cuda12x 14.2.0"]
TO_12 = "Fix: pip uninstall -y cupy-cuda13x && pip install 'dmlsplit[cuda12]'"
CUPY_12 = {"runtime": 12090, "nvrtc": (12, 9)}


def cuda(**versions: Any) -> Cuda:
    """CuPy for CUDA 13 with all that it needs, or with other versions."""
    usable = {"runtime": 13020, "driver": 13020, "nvrtc": (13, 2), "cupy": "14.2.0"}
    return Cuda(**usable | {"has_headers": True} | versions)


ROWS = {
    "both extras": (
        installation.package_error(BOTH, 12080),
        "cupy-cuda12x 14.2.0 and cupy-cuda13x 14.2.0 are installed in one folder and overwrite "
        "each other's files. Fix: pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install "
        "'dmlsplit[cuda12]'",
    ),
    "no CuPy": (
        installation.cupy_error(ImportError("No module named 'cupy'"), 12080),
        "CUDA devices need CuPy, which cannot be imported: No module named 'cupy'. Fix: pip "
        "install 'dmlsplit[cuda12]'",
    ),
    "neither driver nor CuPy": (
        installation.cupy_error(ImportError("No module named 'cupy'"), None),
        "CUDA devices need NVIDIA's driver, which this machine lacks, and CuPy, which cannot be "
        "imported: No module named 'cupy'. Fix: install the driver, then pip install "
        "'dmlsplit[cuda13]', or 'dmlsplit[cuda12]' if it is older than 580",
    ),
    "no driver": (
        installation.version_error(cuda(driver=0), ONE),
        "there is no usable CUDA driver. Fix: install NVIDIA's driver 580 or newer; if this is "
        "a container, start it with --gpus all",
    ),
    "an older driver": (
        installation.version_error(cuda(driver=12080), ONE),
        f"CuPy is built for CUDA 13, and the driver supports CUDA 12.8. {TO_12}; or install "
        "NVIDIA's driver 580 or newer",
    ),
    "a driver older than any": (
        installation.version_error(cuda(**CUPY_12, driver=11080), OLD),
        "CuPy is built for CUDA 12, and the driver supports CUDA 11.8. Fix: install NVIDIA's "
        "driver 580 or newer",
    ),
    "CuPy of CUDA 11": (
        installation.version_error(
            cuda(runtime=11080, driver=12080, nvrtc=(11, 8)), ["cupy-cuda11x 13.6.0"]
        ),
        "CuPy is built for CUDA 11, and dmlsplit needs 12 or newer. Fix: pip uninstall -y "
        "cupy-cuda11x && pip install 'dmlsplit[cuda12]'",
    ),
    "no NVRTC": (
        installation.version_error(cuda(runtime=12090, nvrtc=None), OLD),
        "CUDA 12's compiler, NVRTC, cannot be loaded. Fix: pip install 'dmlsplit[cuda12]'",
    ),
    "another NVRTC": (
        installation.version_error(cuda(nvrtc=(12, 9)), ONE),
        "CuPy is built for CUDA 13, and loads NVRTC 12.9. Fix: pip install 'dmlsplit[cuda13]', and "
        "unset LD_LIBRARY_PATH if it names another CUDA",
    ),
    "an old CuPy": (
        installation.version_error(cuda(**CUPY_12, cupy="14.1.0"), OLD),
        "CuPy 14.1.0 is installed, and dmlsplit needs 14.1.1 or newer. Fix: pip uninstall -y "
        "cupy-cuda12x && pip install 'dmlsplit[cuda12]'",
    ),
    "no headers": (
        installation.version_error(cuda(has_headers=False), ONE),
        "CUDA 13's headers cannot be found, and CuPy compiles nothing without them. Fix: pip "
        "install 'dmlsplit[cuda13]'",
    ),
    "an old card": (
        installation.gpu_error(
            "cuda:0", CompileTarget(70, newest=121, is_ptx=False), (75, 80, 120), ONE
        ),
        "cuda:0 has compute capability 7.0, and the installed NVRTC compiles for 7.5 or newer. "
        f"{TO_12}",
    ),
    "a card older than any": (
        installation.gpu_error("cuda:0", CompileTarget(60, newest=90, is_ptx=False), (50, 60), OLD),
        "cuda:0 has compute capability 6.0, and dmlsplit needs 7.0 or newer. Fix: use a newer "
        "GPU, or the CPU",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_error_for_an_unusable_installation_names_cause_and_fix(row: str) -> None:
    sentence, expected = ROWS[row]
    assert sentence == expected


def test_a_usable_installation_gives_no_error() -> None:
    assert installation.package_error(ONE, 13020) is None
    for version in ("14.1.1", "14.2.0", "15.0.0a1"):
        assert installation.version_error(cuda(**CUPY_12, cupy=version), OLD) is None


# The architectures that each NVRTC compiles for, from 7.5 on, and the newest that CuPy 14.2 knows.
NVRTC = {
    "12.6": ((75, 80, 86, 87, 89, 90), 90),
    "12.8": ((75, 80, 86, 87, 89, 90, 100, 101, 120), 120),
    "13.0": ((75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121), 121),
}
RUNS = None
NVRTC_IS_OLD = "for which the installed NVRTC does not compile. Fix: pip "
CUPY_IS_OLD = (
    "and the installed CuPy compiles for .* at most. Fix: .*; or set CUPY_COMPILE_WITH_PTX=1"
)


@pytest.mark.parametrize(
    ("nvrtc", "capability", "error"),
    [("12.6", 90, RUNS), ("12.6", 100, CUPY_IS_OLD), ("12.6", 120, CUPY_IS_OLD),
     ("12.8", 100, RUNS), ("12.8", 121, RUNS), ("12.8", 103, NVRTC_IS_OLD),
     ("13.0", 103, RUNS), ("13.0", 121, RUNS), ("13.0", 107, NVRTC_IS_OLD),
     ("13.0", 130, CUPY_IS_OLD)],
)  # fmt: skip
def test_a_gpu_runs_machine_code_of_its_own_major_capability(
    nvrtc: str, capability: int, error: str | None
) -> None:
    architectures, newest = NVRTC[nvrtc]
    message = installation.gpu_error(
        "cuda:0", CompileTarget(capability, newest, is_ptx=False), architectures, ONE
    )
    assert message is None if error is None else re.search(error, message or "")


def test_a_gpu_that_cupy_does_not_know_runs_ptx() -> None:
    target = CompileTarget(130, newest=121, is_ptx=True)
    assert target.architecture == "compute_121"
    assert installation.gpu_error("cuda:0", target, NVRTC["13.0"][0], ONE) is None
    assert CompileTarget(90, newest=121, is_ptx=False).architecture == "sm_90"


def test_with_the_packages_of_cuda_12_the_fix_for_a_new_gpu_is_those_of_cuda_13() -> None:
    message = installation.gpu_error(
        "cuda:0", CompileTarget(103, newest=120, is_ptx=False), NVRTC["12.8"][0], OLD
    )
    assert (message or "").endswith(
        "pip uninstall -y cupy-cuda12x && pip install 'dmlsplit[cuda13]'"
    )
