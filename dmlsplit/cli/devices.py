"""``dmlsplit devices``: the CUDA devices of this machine, as NVML reports them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import ACCEPTED, UNUSABLE, show, tell
from dmlsplit.messages import printable, wrapped

if TYPE_CHECKING:
    from dmlsplit.backends.cuda.nvml import CudaDevice

_ROW = "{:<7}  {:<24}  {:>9}  {:>8}  {:>9}  {}"
_STATUSES = {
    ACCEPTED: "the devices are listed, even if there are none",
    UNUSABLE: "wrong usage, or NVML failed",
}
_EXAMPLES = "  dmlsplit devices\n  dmlsplit devices --format json"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "list CUDA devices: name, memory, clocks, driver, peak bandwidth"
    description = "List the CUDA devices of this machine, as NVML reports them."
    parser = add_command(commands, devices, summary, description, _EXAMPLES, _STATUSES)
    parser.add_argument("--format", choices=("text", "json"), default="text")


def devices(arguments: argparse.Namespace) -> int:
    """List the CUDA devices."""
    from dmlsplit.backends.cuda.nvml import cuda_devices

    found = cuda_devices()
    if arguments.format == "json":
        show(device_json(found))
    elif found:
        show(device_table(found))
        show("\n".join(assumptions(found)))
    else:
        tell("no CUDA device: this machine has no NVIDIA driver; splits run on the CPU")
    return ACCEPTED


def device_json(devices: Sequence[CudaDevice]) -> str:
    """The devices as JSON."""
    from dmlsplit.backends.cuda.gpus import gpu_of_device

    records = [
        asdict(device)
        | {"peak_bandwidth": device.peak_bandwidth, "assumed": gpu_of_device(device).assumed}
        for device in devices
    ]
    return json.dumps({"schema": 1, "devices": records}, indent=2)


def device_table(devices: Sequence[CudaDevice]) -> str:
    """The devices as text that fits 80 columns."""
    header = ("device", "name", "memory", "SM clock", "bandwidth", "driver")
    return "\n".join(_ROW.format(*cells) for cells in (header, *map(_cells, devices)))


def assumptions(devices: Sequence[CudaDevice]) -> Iterator[str]:
    """What ``explain`` assumes about each device that is not a known GPU."""
    from dmlsplit.backends.cuda.gpus import gpu_of_device

    for device in devices:
        gpu = gpu_of_device(device)
        if gpu.assumed:
            unlisted = f"cuda:{device.index} is not a known GPU; explain assumes"
            yield wrapped(f"{unlisted} {'; '.join(gpu.assumed)}", "")


def _cells(device: CudaDevice) -> tuple[str, ...]:
    return (
        f"cuda:{device.index}",
        printable(device.name).removeprefix("NVIDIA ")[:24],
        _scaled(device.memory_bytes, 1 << 30, "GiB"),
        _scaled(device.sm_clock_mhz, 1, "MHz"),
        _scaled(device.peak_bandwidth, 10**9, "GB/s"),
        device.driver or "-",
    )


def _scaled(value: int | None, unit: int, name: str) -> str:
    return "-" if value is None else f"{value / unit:.0f} {name}"
