"""Find the backend of a device name."""

import re

from dmlsplit.backends import Backend
from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.forks import late_import
from dmlsplit.messages import value_text

# The names of devices; the group is N of ``cuda:N``.
DEVICE = re.compile(r"cpu|cuda(?::([0-9]{1,4}))?")


def default_backend() -> tuple[Backend, str | None]:
    """The backend of ``cuda:0`` if it is usable, else that of the CPU, and why it is not."""
    try:
        return find_backend("cuda:0"), None
    except UnsupportedError as error:
        return find_backend("cpu"), str(error)


def find_backend(device: str) -> Backend:
    """The backend of ``cpu``, ``cuda`` or ``cuda:N``.

    An UnsupportedError says that the device, its driver or CuPy is missing or unusable.
    """
    with late_import():  # for CuPy's import too
        if device == "cpu":
            from dmlsplit.backends.cpu.engine import CpuBackend

            return CpuBackend()
        name = DEVICE.fullmatch(device) if isinstance(device, str) else None
        if not name:
            allowed = "it must be 'cpu', 'cuda' or 'cuda:N'"
            raise InvalidArgumentError(f"device is {value_text(device)}; {allowed}")
        from dmlsplit.backends.cuda.engine import CudaBackend

        return CudaBackend(int(name[1] or 0))
