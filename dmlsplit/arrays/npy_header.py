"""The header of a .npy file, read without believing it: nothing is unpickled or loaded."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

import numpy as np

from dmlsplit.errors import InvalidArgumentError, one_line

MAGIC = b"\x93NUMPY"
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What a .npy file says of its array.

    Attributes
    ----------
    shape : tuple of int
        Elements per dimension, none negative.
    fortran_order : bool
        Whether the first dimension is the one that is contiguous.
    dtype : numpy.dtype
        Data type of an element: of a fixed size of at least one byte, not a Python object,
        in either byte order.
    offset : int
        Where the elements begin in the file, in bytes.
    """

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype
    offset: int

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all elements, by the header; the file may have fewer."""
        return prod(self.shape) * self.dtype.itemsize


def read_npy_header(file: BinaryIO) -> NpyHeader:
    """Read the header of a .npy file, and leave the file at the first element.

    Format: NumPy Enhancement Proposal 1. Version 3.0 is refused: only arrays with names of
    fields outside Latin-1 have it.

    Parameters
    ----------
    file
        A file opened in binary mode, at its beginning.

    Raises
    ------
    InvalidArgumentError
        If it is not a .npy file, is damaged, or holds Python objects. The message is about
        the file without naming it: use `dmlsplit.errors.about`.
    OSError
        If it cannot be read.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise InvalidArgumentError("is not a .npy file: it must start with \\x93NUMPY")
    file.seek(0)
    try:
        shape, fortran_order, dtype = _parsed(file)
    except OSError:
        raise
    except Exception as error:  # NumPy parses a literal: a damaged one raises almost anything
        raise InvalidArgumentError(f"is a damaged .npy file: {one_line(error)[:200]}") from None
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"has data type {dtype}; Python objects are never loaded. "
            "Fix: save the array with a plain data type"
        )
    if min(shape, default=0) < 0 or dtype.itemsize == 0 or dtype.subdtype is not None:
        raise InvalidArgumentError(
            f"is a damaged .npy file: its shape is {shape} and its data type {dtype}"
        )
    return NpyHeader(shape, fortran_order, dtype, file.tell())


def _parsed(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"its version is {version}; it must be (1, 0) or (2, 0)")
    with warnings.catch_warnings():  # headers that Python 2 wrote
        warnings.simplefilter("ignore")
        return _READERS[version](file)
