"""CUDA devices as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from dmlsplit.backends.cuda.nvml import CudaDevice
from dmlsplit.report.lines import printable


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
