""".npy files that may be damaged or malicious; read in order or in boxes, and written in order.

Nothing is unpickled, and no memory map is used: with one, a disk error, a full disk or a file that
shrinks kills the process with a signal. A system call returns an error instead, which can name the
file.
"""

import io
import os
import warnings
from dataclasses import dataclass
from io import FileIO
from math import prod
from operator import mul
from pathlib import Path
from typing import IO, Any

import numpy as np

from dmlsplit.arrays.array_view import byte_bounds
from dmlsplit.atomic import name_in_errors
from dmlsplit.errors import InvalidArgumentError, one_line, path_in_errors
from dmlsplit.file_kinds import BEGINNING_BYTES, identify
from dmlsplit.geometry import packed_byte_strides
from dmlsplit.messages import shown

MAX_DIMENSIONS = 64  # of a NumPy array
MAX_BYTES = 2**63 - 1
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class NpyFile(NpyHeader):
    """A .npy file, of which any thread or machine can read boxes. Errors name `path`."""

    path: Path

    @property
    def is_fortran(self) -> bool:
        """Whether the first dimension, and not the last, is contiguous in the file."""
        return self.fortran_order and len(self.shape) > 1

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in the order of the file, where the last dimension is contiguous."""
        return self.shape[::-1] if self.is_fortran else self.shape

    def __getitem__(self, region: tuple[slice, ...]) -> np.ndarray:
        """Read a box of the array. All bytes between its first and last element are read."""
        sides = region[::-1] if self.is_fortran else region
        shape, width = tuple(side.stop - side.start for side in sides), self.dtype.itemsize
        strides = packed_byte_strides(self.stored_shape, width)
        values = np.empty(byte_bounds(shape, strides, width)[1], np.uint8)
        starts = [side.start for side in sides]
        with self.open(sum(map(mul, starts, strides))) as file:
            self.read_into(values, file)
        box = np.ndarray(shape, self.dtype, values, 0, strides)
        return box.T if self.is_fortran else box

    def open(self, first: int = 0) -> FileIO:
        """Open the file at byte `first` of its elements."""
        with name_in_errors(self.path):
            file = FileIO(self.path)
        file.seek(self.offset + first)
        return file

    def read_into(self, values: np.ndarray, file: FileIO) -> None:
        """Fill a contiguous array with the next bytes of the file."""
        rest = values.reshape(-1).data
        with name_in_errors(self.path):
            while rest:
                count = file.readinto(rest)
                if not count:
                    raise InvalidArgumentError(f"{self.path} became shorter while it was read")
                rest = rest[count:]


def open_npy(path: Path) -> NpyFile:
    """Read the header of a .npy file. InvalidArgumentError if it is damaged or holds objects."""
    with path_in_errors(path), name_in_errors(path), path.open("rb") as file:
        header = read_npy_header(file)
        npy = NpyFile(header.shape, header.fortran_order, header.dtype, header.offset, path)
        size, needed = os.fstat(file.fileno()).st_size, npy.offset + npy.size_in_bytes
        if size < needed:
            raise InvalidArgumentError(
                f"has {size} bytes; its header says {needed}. Fix: copy the file again"
            )
    return npy


def write(file: FileIO, path: Path, data: Any) -> None:
    """Write contiguous bytes to the draft of a file; errors name `path`."""
    rest = memoryview(data).cast("B")
    with name_in_errors(path):
        while rest:
            rest = rest[file.write(rest) :]


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of a .npy file that is open at its beginning.

    Format: NEP 1, versions 1.0 and 2.0; 3.0 is only for field names outside Latin-1.

    Raises
    ------
    InvalidArgumentError
        If the file has another format, is damaged or holds Python objects. The error does not name
        the file: `dmlsplit.errors.path_in_errors` adds it.
    OSError
        If the file cannot be read.
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
    with warnings.catch_warnings():  # about headers that Python 2 wrote
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
