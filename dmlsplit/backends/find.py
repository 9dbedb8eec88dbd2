"""Find the backend of a device name."""

import re

from dmlsplit.backends import Backend
from dmlsplit.errors import InvalidArgumentError


def find_backend(device: str | None) -> Backend:
    """The backend of ``cpu``, ``cuda`` or ``cuda:N``.

    None is ``cuda:0`` if there is one, else ``cpu``. An UnsupportedError says that the device, its
    driver or CuPy is missing.
    """
    from dmlsplit.backends.cuda import driver

    if device is None:
        device = "cuda:0" if driver.is_available() else "cpu"
    if device == "cpu":
        from dmlsplit.backends.cpu.engine import NumpyBackend

        return NumpyBackend()
    found = re.fullmatch(r"cuda(?::([0-9]{1,4}))?", device) if isinstance(device, str) else None
    if not found:
        raise InvalidArgumentError(f"device is {device!r}; it must be 'cpu', 'cuda' or 'cuda:N'")
    from dmlsplit.backends.cuda.engine import CudaBackend

    return CudaBackend(int(found[1] or 0))
