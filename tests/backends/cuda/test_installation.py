"""What is wrong with an installation is one sentence, and the command that mends it."""

import pytest

from dmlsplit.backends.cuda import installation
from dmlsplit.backends.cuda.installation import Cuda

ONE, BOTH = ["cupy-cuda13x 14.2.0"], ["cupy-cuda12x 14.2.0", "cupy-cuda13x 14.2.0"]
OLD = ["cupy-cuda12x 14.2.0"]
TO_12 = "Fix: pip uninstall -y cupy-cuda13x && pip install 'dmlsplit[cuda12]'"
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
    "no driver": (
        installation.version_error(Cuda(13020, 0, (13, 2)), ONE),
        "there is no usable CUDA driver. Fix: install NVIDIA's driver 580 or newer; if this is "
        "a container, start it with --gpus all",
    ),
    "an older driver": (
        installation.version_error(Cuda(13020, 12080, (13, 2)), ONE),
        f"CuPy is built for CUDA 13, and the driver supports CUDA 12.8. {TO_12}; or install "
        "NVIDIA's driver 580 or newer",
    ),
    "a driver older than any": (
        installation.version_error(Cuda(12090, 11080, (12, 9)), OLD),
        "CuPy is built for CUDA 12, and the driver supports CUDA 11.8. Fix: install NVIDIA's "
        "driver 580 or newer",
    ),
    "CuPy of CUDA 11": (
        installation.version_error(Cuda(11080, 12080, (11, 8)), ["cupy-cuda11x 13.6.0"]),
        "CuPy is built for CUDA 11, and dmlsplit needs 12 or newer. Fix: pip uninstall -y "
        "cupy-cuda11x && pip install 'dmlsplit[cuda12]'",
    ),
    "no NVRTC": (
        installation.version_error(Cuda(12090, 13000, None), OLD),
        "CUDA 12's compiler, NVRTC, cannot be loaded. Fix: pip install 'dmlsplit[cuda12]'",
    ),
    "another NVRTC": (
        installation.version_error(Cuda(13020, 13020, (12, 9)), ONE),
        "CuPy is built for CUDA 13, and loads NVRTC 12.9. Fix: pip install 'dmlsplit[cuda13]', and "
        "unset LD_LIBRARY_PATH if it names another CUDA",
    ),
    "an old card": (
        installation.gpu_error("cuda:0", 70, (75, 80, 120), ONE),
        "cuda:0 has compute capability 7.0, and the installed NVRTC compiles for 7.5 or newer. "
        f"{TO_12}",
    ),
    "a card older than any": (
        installation.gpu_error("cuda:0", 60, (50, 60), OLD),
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
    assert installation.version_error(Cuda(12090, 13020, (12, 9)), OLD) is None
    assert installation.gpu_error("cuda:0", 130, (75, 120), ONE) is None


@pytest.mark.parametrize(
    ("capability", "name"),
    [(90, "sm_90"), (121, "sm_121"), (89, "compute_86"), (130, "compute_121")],
)
def test_a_gpu_that_nvrtc_does_not_know_gets_ptx_of_the_newest_older_architecture(
    capability: int, name: str
) -> None:
    assert installation.architecture(capability, (75, 80, 86, 90, 120, 121)) == name
