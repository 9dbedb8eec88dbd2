"""Reads and writes .npy files, with system calls and never through a memory map.

Through a memory map, a disk error, a full disk or a file that shrinks kills the process with a
signal. A system call returns an error instead, which can name the file.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from weakref import finalize

import numpy as np

from dmlsplit.arrays.array_view import reach
from dmlsplit.atomic import naming
from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.geometry import packed_byte_strides
from dmlsplit.storage.npy_header import NpyHeader, npy_header, read_npy_header
from dmlsplit.system import OPEN_FLAGS, read_at, reserve, write_at

Region = tuple[slice, ...]


@dataclass(frozen=True)
class NpyFile(NpyHeader):
    """An open .npy file. Errors name `path`; for a draft, that is the file that it will become.

    `stored_shape` is the order of the file, where the last dimension is contiguous.
    """

    path: Path
    handle: int  # closed with the object

    def __post_init__(self) -> None:
        finalize(self, os.close, self.handle)

    def __reduce__(self) -> tuple[Callable[[Path], "NpyFile"], tuple[Path]]:
        """Workers of a cluster open the file themselves."""
        return open_npy, (self.path.absolute(),)

    @property
    def is_fortran(self) -> bool:
        """Whether the first dimension, and not the last, is contiguous in the file."""
        return self.fortran_order and len(self.shape) > 1

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The elements per dimension; the contiguous dimension is the last."""
        return self.shape[::-1] if self.is_fortran else self.shape

    def __getitem__(self, region: Region) -> np.ndarray:
        """Read a box of the array, and with it all that lies between its first and last element."""
        sides = region[::-1] if self.is_fortran else region
        shape, width = tuple(side.stop - side.start for side in sides), self.dtype.itemsize
        strides = packed_byte_strides(self.stored_shape, width)
        values = np.empty(reach(shape, strides, width)[1] // width, self.dtype)
        starts = [side.start for side in sides]
        self.read_into(values, sum(map(mul, starts, strides)) // width)
        box = np.ndarray(shape, self.dtype, values, 0, strides)
        return box.T if self.is_fortran else box

    def read_into(self, values: np.ndarray, first: int) -> None:
        """Read into a contiguous array, beginning at element `first` in the order of the file."""
        part, position = self._bytes(values, first)
        with naming(self.path):
            while part:
                count = read_at(self.handle, part, position)
                if not count:
                    raise InvalidArgumentError(f"{self.path} became shorter while it was read")
                part, position = part[count:], position + count

    def write(self, values: np.ndarray, first: int) -> None:
        """Write a contiguous array, beginning at element `first` in the order of the file."""
        with naming(self.path):
            _write(self.handle, *self._bytes(values, first))

    def sync(self) -> None:
        """Wait until the bytes are on disk."""
        with naming(self.path):
            os.fsync(self.handle)

    def _bytes(self, values: np.ndarray, first: int) -> tuple[memoryview, int]:
        """The bytes of a contiguous array, and their position in the file."""
        return values.reshape(-1).view(np.uint8).data, self.offset + first * self.dtype.itemsize


def open_npy(path: Path) -> NpyFile:
    """Open a .npy file. InvalidArgumentError if it is damaged or holds Python objects."""
    with about(path), naming(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InvalidArgumentError("is not a regular file; it must be a .npy file")
        with path.open("rb") as file:
            header = read_npy_header(file)
            fields = header.shape, header.fortran_order, header.dtype, header.offset
            npy = NpyFile(*fields, path, os.dup(file.fileno()))
        size, needed = os.fstat(npy.handle).st_size, npy.offset + npy.size_in_bytes
        if size < needed:
            raise InvalidArgumentError(
                f"has {size} bytes; its header says {needed}. Fix: copy the file again"
            )
    return npy


def create_npy(draft: Path, path: Path, like: NpyFile, shape: tuple[int, ...]) -> NpyFile:
    """Create a .npy file with the data type and order of `like`, for boxes to be written to."""
    header = npy_header(shape, like.is_fortran, like.dtype)
    with naming(path):
        handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | OPEN_FLAGS, 0o666)
        piece = NpyFile(shape, like.is_fortran, like.dtype, len(header), path, handle)
        # Reserve the bytes now, so that a full disk causes an error before any work is done.
        reserve(handle, piece.offset + piece.size_in_bytes)
        _write(handle, memoryview(header), 0)
    return piece


def _write(handle: int, data: memoryview, position: int) -> None:
    while data:
        count = write_at(handle, data, position)
        data, position = data[count:], position + count
