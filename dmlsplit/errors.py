"""The errors of the library, each with the HRESULT that DirectML would return."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlsplit.directml.rules.violation import ValidationReport


class DmlError(Exception):
    """The base class of all errors that dmlsplit raises on purpose.

    Attributes
    ----------
    hresult : int
        The HRESULT of the same failure in DirectML, as an unsigned 32-bit value (Microsoft,
        "Common HRESULT values" and "DXGI_ERROR").
    path : str
        The file that the error is about, as the caller named it; empty without a file.

    See Also
    --------
    InvalidArgumentError, UnsupportedError, OutOfMemoryError, DeviceRemovedError : The kinds.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> try:
    ...     dml.split([1, 2, 3], 3)
    ... except dml.DmlError as error:
    ...     print(f"{error.hresult:08X}")
    80070057
    """

    hresult = 0x80004005  # E_FAIL
    path = ""

    @property
    def message(self) -> str:
        """What is wrong, without the file."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@contextmanager
def path_in_errors(path: str | PathLike[str]) -> Iterator[None]:
    """Add the file to every error of the block. No other code adds a path to an error."""
    try:
        yield
    except DmlError as error:
        error.path = error.path or fspath(path)
        raise


@contextmanager
def prefix_errors(prefix: str) -> Iterator[None]:
    """Prefix the message of an InvalidArgumentError in the block with a place."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{prefix}: {error.message}", error.report) from None


class InvalidArgumentError(DmlError, ValueError):
    """An argument breaks a rule (E_INVALIDARG).

    The error is also a ValueError and, for an argument of a wrong type, a TypeError: ``except
    TypeError`` catches just that.

    Attributes
    ----------
    report : ValidationReport or None
        Every broken rule, if a descriptor or a binding was refused.

    See Also
    --------
    validate : Reports the same without an error.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("FLOAT32", (6,))
    >>> try:
    ...     dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 5)))
    ... except dml.InvalidArgumentError as error:
    ...     print(error.report.rule_ids)
    ('DML-SPLIT-AXIS-SUM',)
    """

    hresult = 0x80070057

    def __init__(self, message: str, report: "ValidationReport | None" = None) -> None:
        self.args = (message,)  # torch.compile cannot trace super().__init__()
        self.report = report


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An InvalidArgumentError about the type of an argument, which is also a TypeError."""


class NoEquivalentError(InvalidArgumentError):
    """A descriptor has no equivalent that is accepted; `reason` says why."""

    def __init__(
        self, message: str, report: "ValidationReport | None" = None, reason: str = ""
    ) -> None:
        super().__init__(message, report)
        self.reason = reason


class UnsupportedError(DmlError):
    """Something that the call needs is missing or cannot be used (DXGI_ERROR_UNSUPPORTED).

    That is a device, a driver, a package, a feature level or a feature.

    See Also
    --------
    Device : Raises it for a device that cannot be used.

    Examples
    --------
    Code for a GPU falls back on the CPU on a machine without one:

    >>> import dmlsplit as dml
    >>> try:
    ...     device = dml.Device("cuda:99")
    ... except dml.UnsupportedError:
    ...     device = dml.Device("cpu")
    >>> device.name
    'cpu'
    """

    hresult = 0x887A0004


# MemoryError comes first, because dask calls its __new__ to unpickle a worker's error. Python
# refuses that call if another base class determines the layout.
class OutOfMemoryError(MemoryError, DmlError):
    """A buffer could not be allocated (E_OUTOFMEMORY).

    See Also
    --------
    DmlError : All errors.

    Examples
    --------
    Where memory does not suffice for copies, views may do:

    >>> import numpy as np
    >>> import dmlsplit as dml
    >>> array = np.arange(6)
    >>> try:
    ...     pieces = dml.split(array, 3)
    ... except dml.OutOfMemoryError:
    ...     pieces = np.split(array, 3)  # views, which take no memory
    >>> [len(piece) for piece in pieces]
    [2, 2, 2]
    """

    hresult = 0x8007000E


class DeviceRemovedError(DmlError):
    """The device has been removed or failed during a launch (DXGI_ERROR_DEVICE_REMOVED).

    See Also
    --------
    DmlError : All errors.

    Examples
    --------
    After this error, CUDA refuses all work of the process, so only a new process can go on:

    >>> import numpy as np
    >>> import dmlsplit as dml
    >>> try:
    ...     pieces = dml.split(np.arange(6), 3)
    ... except dml.DeviceRemovedError as error:
    ...     raise SystemExit(f"start again: {error}") from error
    >>> len(pieces)
    3
    """

    hresult = 0x887A0005


def one_line(error: Exception, with_path: bool = True) -> str:
    """What is wrong, in one line, which begins with the file if `with_path` is true."""
    path = ""
    text = str(error)
    if isinstance(error, DmlError):
        path = error.path
        text = error.message
    elif isinstance(error, OSError) and error.strerror:
        path = error.filename
        text = error.strerror
    elif isinstance(error, RecursionError):
        text = "is nested too deeply"
    line = " ".join(text.split()) or type(error).__name__
    return f"{path}: {line}" if path and with_path else line


def limit_error(excess: str) -> InvalidArgumentError:
    """The error for a file that is beyond a limit of dmlsplit, which need not be wrong."""
    return InvalidArgumentError(f"exceeds a limit of dmlsplit: {excess}")


def unreadable_file_error(error: Exception) -> InvalidArgumentError:
    """The error of a file that the system cannot read; `path_in_errors` adds the file."""
    return InvalidArgumentError(f"cannot be read: {one_line(error, with_path=False)}")
