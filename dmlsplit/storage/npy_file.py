""".npy files, read in order or in boxes and written in order; never through a memory map.

Through a memory map, a disk error, a full disk or a file that shrinks kills the process with a
signal. A system call returns an error instead, which can name the file.
"""

import os
from dataclasses import dataclass
from io import FileIO
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.arrays.array_view import reach
from dmlsplit.atomic import naming
from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.geometry import packed_byte_strides
from dmlsplit.storage.npy_header import NpyHeader, read_npy_header


@dataclass(frozen=True)
class NpyFile(NpyHeader):
    """A .npy file, of which any thread or machine can read boxes. Errors name `path`.

    `stored_shape` is the order of the file, where the last dimension is contiguous.
    """

    path: Path

    @property
    def is_fortran(self) -> bool:
        """Whether the first dimension, and not the last, is contiguous in the file."""
        return self.fortran_order and len(self.shape) > 1

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The elements per dimension; the contiguous dimension is the last."""
        return self.shape[::-1] if self.is_fortran else self.shape

    def __getitem__(self, region: tuple[slice, ...]) -> np.ndarray:
        """Read a box of the array, and all bytes between its first and last element."""
        sides = region[::-1] if self.is_fortran else region
        shape, width = tuple(side.stop - side.start for side in sides), self.dtype.itemsize
        strides = packed_byte_strides(self.stored_shape, width)
        values = np.empty(reach(shape, strides, width)[1], np.uint8)
        starts = [side.start for side in sides]
        with self.open(sum(map(mul, starts, strides))) as file:
            self.read_into(values, file)
        box = np.ndarray(shape, self.dtype, values, 0, strides)
        return box.T if self.is_fortran else box

    def open(self, first: int = 0) -> FileIO:
        """The file, open at a byte of its elements."""
        with naming(self.path):
            file = FileIO(self.path)
        file.seek(self.offset + first)
        return file

    def read_into(self, values: np.ndarray, file: FileIO) -> None:
        """Fill a contiguous array of bytes with the next ones of the file."""
        rest = values.reshape(-1).data
        with naming(self.path):
            while rest:
                count = file.readinto(rest)
                if not count:
                    raise InvalidArgumentError(f"{self.path} became shorter while it was read")
                rest = rest[count:]


def open_npy(path: Path) -> NpyFile:
    """Read the header of a .npy file. InvalidArgumentError if it is damaged or holds objects."""
    with about(path), naming(path), path.open("rb") as file:
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
    with naming(path):
        while rest:
            rest = rest[file.write(rest) :]
