"""``dmlsplit devices``: the CUDA devices of this machine, as NVML reports them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import EXIT_OK, EXIT_UNUSABLE, print_message, print_result
from dmlsplit.errors import UnsupportedError
from dmlsplit.messages import printable, wrapped

if TYPE_CHECKING:
    from dmlsplit.backends.cuda.nvml import CudaDevice

_ROW = "{:<6}  {:<18}  {:>8}  {:>8}  {:>9}  {:<10}  {}"
_STATUSES = {
    EXIT_OK: "the devices are listed; the list may be empty",
    EXIT_UNUSABLE: "wrong usage, or NVML failed",
}
_EXAMPLES = "  dmlsplit devices\n  dmlsplit devices --format json"


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "list the GPUs of this machine, and say why one cannot be used"
    description = (
        "List the NVIDIA GPUs of this machine under CUDA's numbers, with memory, clocks,\n"
        "driver and bandwidth. For one that dmlsplit cannot use, say why, and the fix."
    )
    parser = add_command(
        commands,
        devices,
        summary=summary,
        description=description,
        examples=_EXAMPLES,
        statuses=_STATUSES,
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def devices(arguments: argparse.Namespace) -> int:
    """List the CUDA devices."""
    from dmlsplit.backends.cpu import native
    from dmlsplit.backends.cuda.nvml import cuda_devices

    listed = listed_devices(cuda_devices())
    if reason := native.unavailable_reason():
        print_message(reason)
    if arguments.format == "json":
        print_result(device_json(listed))
    elif listed:
        print_result(device_table(listed))
    else:
        print_message(no_device_message())
    return EXIT_OK


def no_device_message() -> str:
    """What runs splits where NVML lists no device, and why."""
    from dmlsplit.backends.cuda.libcuda import driver_version
    from dmlsplit.backends.find import default_backend

    if driver_version() is None:
        return "no CUDA device: this machine has no NVIDIA driver; splits run on the CPU"
    backend, reason = default_backend()
    return f"NVML lists no device; splits run on {backend.device}{f': {reason}' if reason else ''}"


class ListedDevice(NamedTuple):
    """A device, its name, and why dmlsplit cannot use it."""

    device: CudaDevice
    name: str  # cuda:N, or nvml:N if CUDA does not list it
    reason: str | None


def listed_devices(devices: Sequence[CudaDevice]) -> list[ListedDevice]:
    """Each device with CUDA's ordinal, and the reason and fix if it is not usable."""
    from dmlsplit.backends.cuda.libcuda import bus_ids
    from dmlsplit.backends.find import find_backend

    ordinals = {bus_id: number for number, bus_id in enumerate(bus_ids() if devices else [])}
    listed = []
    for device in devices:
        number = ordinals.get(device.bus_id) if device.bus_id else None
        reason = None
        try:
            find_backend(f"cuda:{number or 0}")
            if number is None:
                reason = "CUDA does not list it. Fix: add it to CUDA_VISIBLE_DEVICES"
        except UnsupportedError as error:
            reason = str(error)
        name = f"nvml:{device.index}" if number is None else f"cuda:{number}"
        listed.append(ListedDevice(device, name, reason))
    return sorted(listed, key=lambda entry: entry.name)


def device_json(devices: Sequence[ListedDevice]) -> str:
    """The devices as JSON; `index` is NVML's."""
    from dmlsplit.backends.cuda.gpus import gpu_of_device

    records = [
        asdict(device)
        | {"peak_bandwidth": device.peak_bandwidth, "assumed": gpu_of_device(device).assumed}
        | {"device": name if name.startswith("cuda") else None}
        | {"usable": reason is None, "reason": reason}
        for device, name, reason in devices
    ]
    return json.dumps({"schema": 1, "devices": records}, indent=2)


def device_table(devices: Sequence[ListedDevice]) -> str:
    """The devices as text that fits 80 columns, then why dmlsplit cannot use some of them."""
    header = ("device", "name", "memory", "SM clock", "bandwidth", "driver", "usable")
    lines = [_ROW.format(*cells) for cells in (header, *map(_cells, devices))]
    lines += [wrapped(f"{entry.name}: {entry.reason}", "") for entry in devices if entry.reason]
    return "\n".join(lines)


def _cells(listed: ListedDevice) -> tuple[str, ...]:
    """The cells of a device's row."""
    device = listed.device
    return (
        listed.name,
        printable(device.name).removeprefix("NVIDIA ")[:18],
        _scaled(device.memory_bytes, 1 << 30, "GiB"),
        _scaled(device.sm_clock_mhz, 1, "MHz"),
        _scaled(device.peak_bandwidth, 10**9, "GB/s"),
        device.driver or "-",
        "no" if listed.reason else "yes",
    )


def _scaled(value: int | None, unit: int, name: str) -> str:
    """A value in a unit; a dash if it is not known."""
    return "-" if value is None else f"{value / unit:.0f} {name}"
