"""``dmlsplit devices``: the CUDA devices of this machine, as NVML reports them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import command_parser
from dmlsplit.cli.terminal import ACCEPTED, show, tell
from dmlsplit.messages import printable

if TYPE_CHECKING:
    from dmlsplit.backends.cuda.nvml import CudaDevice
    from dmlsplit.cli.inputs import Commands


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = command_parser(
        commands,
        "devices",
        "list CUDA devices: name, memory, clocks, driver, peak bandwidth",
        "List the CUDA devices of this machine, as NVML reports them.",
        "exit status:\n  0  listed, even if there is none    2  NVML failed",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(command=devices)


def devices(arguments: argparse.Namespace) -> int:
    """List the CUDA devices."""
    from dmlsplit.backends.cuda.nvml import cuda_devices

    found = cuda_devices()
    if arguments.format == "json":
        show(device_json(found))
    elif found:
        show(device_table(found))
    else:
        tell("no CUDA device: there is no NVIDIA driver here; splits run on the CPU")
    return ACCEPTED


def device_json(devices: Sequence[CudaDevice]) -> str:
    """Return the devices as JSON."""
    records = [asdict(device) | {"peak_bandwidth": device.peak_bandwidth} for device in devices]
    return json.dumps({"schema": 1, "devices": records}, indent=2)


def device_table(devices: Sequence[CudaDevice]) -> str:
    """Return the devices as text that fits 80 columns."""
    header = (
        f"{'device':<7}  {'name':<24}  {'memory':>9}  {'SM clock':>8}  {'bandwidth':>9}  driver"
    )
    return "\n".join([header, *map(_row, devices)])


def _row(device: CudaDevice) -> str:
    memory = _scaled(device.memory_bytes, 1 << 30, "GiB")
    bandwidth = _scaled(device.peak_bandwidth, 10**9, "GB/s")
    clock = _scaled(device.sm_clock_mhz, 1, "MHz")
    name = printable(device.name).removeprefix("NVIDIA ")[:24]
    return (
        f"{f'cuda:{device.index}':<7}  {name:<24}  {memory:>9}  {clock:>8}  {bandwidth:>9}  "
        f"{device.driver or '-'}"
    )


def _scaled(value: int | None, unit: int, name: str) -> str:
    return "-" if value is None else f"{value / unit:.0f} {name}"
