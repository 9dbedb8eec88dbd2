"""The header of a .npy file that may be damaged or malicious: nothing is unpickled."""

import io
import warnings
from dataclasses import dataclass
from math import prod
from typing import IO

import numpy as np

from dmlsplit.errors import InvalidArgumentError, one_line
from dmlsplit.file_kinds import BEGINNING_BYTES, identify
from dmlsplit.messages import shown

MAX_DIMENSIONS = 64  # of a NumPy array
MAX_BYTES = 2**63 - 1
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The header of a .npy file. The elements begin `offset` bytes into the file.

    `dtype` has either byte order and a fixed size of at least one byte.
    """

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all elements according to the header; the file may have fewer."""
        return prod(self.shape) * self.dtype.itemsize


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of a .npy file that is open at its beginning.

    Format: NEP 1, versions 1.0 and 2.0; 3.0 is for field names outside Latin-1 only. A file of
    another format, a damaged one, or one with Python objects raises an InvalidArgumentError, which
    does not name the file: `dmlsplit.errors.about` does.
    """
    start = file.read(BEGINNING_BYTES)
    if not start.startswith(np.lib.format.MAGIC_PREFIX):
        mistake = "is not a .npy file: it must start with \\x93NUMPY"
        raise InvalidArgumentError(identify(start) or mistake)
    file.seek(0)
    try:
        shape, fortran_order, dtype = _parsed(file)
    except OSError:
        raise
    except Exception as error:  # NumPy parses a literal; a damaged one can raise anything
        raise InvalidArgumentError(f"is a damaged .npy file: {one_line(error)[:200]}") from None
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"has data type {dtype}; Python objects are never loaded. "
            "Fix: save the array with a plain data type"
        )
    are_sizes = all(type(size) is int and size >= 0 for size in shape)
    if not are_sizes or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise InvalidArgumentError(
            f"is a damaged .npy file: its shape is {shape} and its data type {dtype}"
        )
    # Like NumPy, leave out sizes of 0: the strides of an empty array must be numbers, too.
    spanned = prod(size or 1 for size in shape) * dtype.itemsize
    if len(shape) > MAX_DIMENSIONS or spanned > MAX_BYTES:
        raise InvalidArgumentError(
            f"is too large for any array: its header declares {len(shape)} dimensions, "
            f"{shown(shape)} elements of {dtype.itemsize} bytes"
        )
    return NpyHeader(shape, fortran_order, dtype, file.tell())


def _parsed(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"its version is {version}; it must be (1, 0) or (2, 0)")
    with warnings.catch_warnings():  # headers that Python 2 wrote
        warnings.simplefilter("ignore")
        return _READERS[version](file)


def npy_header(shape: tuple[int, ...], fortran_order: bool, dtype: np.dtype) -> bytes:
    """The bytes of a .npy file before its elements."""
    text = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(dtype)
    fields = {"descr": descr, "fortran_order": fortran_order, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(text, fields)
    except ValueError:  # longer than version 1.0 allows
        np.lib.format.write_array_header_2_0(text, fields)
    return text.getvalue()
