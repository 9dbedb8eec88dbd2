"""What NVIDIA's driver library says without CuPy: its version of CUDA, and the devices in order."""

import ctypes
import sys

# A PCI address: domain, bus and device. It identifies a device in both CUDA and NVML. UUIDs would
# not do: under MIG, a UUID of CUDA names a part of the GPU.
BusId = tuple[int, int, int]
_NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MAX_CHARACTERS = 32


def driver_version() -> int | None:
    """The newest CUDA that the driver supports, such as 13000; None without a driver.

    This call does not initialise CUDA, so that a forked process can still do so.
    """
    version = ctypes.c_int()
    try:
        status = ctypes.CDLL(_NAME).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value if status == 0 and version.value else None


def bus_ids() -> list[BusId]:
    """The PCI addresses of CUDA's devices, by ordinal; none without a driver.

    The driver applies CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. This call initialises CUDA.
    """
    try:
        library = ctypes.CDLL(_NAME)
        count = ctypes.c_int()
        if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
            return []
        text = ctypes.create_string_buffer(_MAX_CHARACTERS)
        addresses = []
        for ordinal in range(count.value):
            if library.cuDeviceGetPCIBusId(text, _MAX_CHARACTERS, ordinal):
                return []
            addresses.append(parsed_bus_id(text.value.decode()))
    except (OSError, AttributeError):
        return []
    return addresses


def parsed_bus_id(text: str) -> BusId:
    """A PCI address such as ``0000:01:00.0``, whose domain has 8 digits in NVML."""
    domain, bus, device = text.partition(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(device, 16)
