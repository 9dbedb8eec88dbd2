"""NVML without a driver."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from dmlsplit.backends.cuda.nvml import CudaDevice


def cuda_device(**properties: Any) -> CudaDevice:
    """The first device, of which only these properties are known."""
    unknown = dict.fromkeys(field.name for field in fields(CudaDevice))
    return CudaDevice(**unknown | {"index": 0} | properties)


class FakeNvml:
    """NVML with two GPUs, the second of which reports few properties, as under MIG."""

    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_DEVICE_MIG_ENABLE = 1, 2, 1

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, failure: int = 0) -> None:
        self.failure = failure
        self.sessions = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.failure:
            raise self.NVMLError(self.failure)
        self.sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=139 << 30),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMemoryBusWidth": 6144,
            "nvmlDeviceGetNumGpuCores": 132 * 128,
            "nvmlDeviceGetPciInfo": SimpleNamespace(domain=0, bus=1, device=0),
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetComputeRunningProcesses_v2": [],
        }

        def answer(gpu: int = 0, clock: int = 0) -> Any:
            if name == "nvmlSystemGetDriverVersion":
                return "580.95.05"
            if gpu == 1:
                raise self.NVMLError(3)
            if name == "nvmlDeviceGetMaxClockInfo":
                return 1980 if clock == self.NVML_CLOCK_SM else 3201
            return answers[name]

        return answer
