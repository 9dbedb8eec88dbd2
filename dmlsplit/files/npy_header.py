"""Headers of .npy files that may be damaged or malicious. NumPy parses them; nothing is unpickled.

Format: NEP 1, and `numpy.lib.format` for versions 2.0 and 3.0.
"""

import warnings
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from dmlsplit.errors import InvalidArgumentError, one_line
from dmlsplit.files.kinds import BEGINNING_BYTES, identify
from dmlsplit.messages import shown

# NumPy's limits of an array.
MAX_DIMENSIONS = 64
MAX_BYTES = 2**63 - 1
# The fix of a file that NumPy would not write.
_FIX_OF_DAMAGE = "Fix: save the array again with numpy.save"
# NumPy's limit of a header: to parse a longer literal may exhaust the stack.
MAX_HEADER_BYTES = 10_000
# NumPy pads headers so that the elements begin at a multiple of this.
_ALIGNMENT = 64
# For each version, how many bytes the length of the header has.
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}


@dataclass(frozen=True)
class NpyHeader:
    """The header of a .npy file. The elements begin `offset` bytes into the file.

    `dtype` has either byte order and a fixed size of at least one byte. `fortran_order` says
    whether the first of several dimensions, and not the last, is contiguous in the file.
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

    Raises
    ------
    InvalidArgumentError
        If the file has another format, is damaged, has too long a header, or holds Python objects
        or elements without bytes. The error does not name the file:
        `dmlsplit.errors.path_in_errors` adds it.
    OSError
        If the file cannot be read.
    """
    start = file.read(BEGINNING_BYTES)
    if not start.startswith(npy.MAGIC_PREFIX):
        mistake = "is not a .npy file: it must start with \\x93NUMPY"
        raise InvalidArgumentError(identify(start) or mistake)
    file.seek(0)
    try:
        shape, fortran_order, dtype = _parsed(file)
    except (OSError, InvalidArgumentError):
        raise
    except Exception as error:  # NumPy parses a literal; a damaged one can raise anything
        raise InvalidArgumentError(
            f"is a damaged .npy file: {one_line(error)[:200]}. {_FIX_OF_DAMAGE}"
        ) from None
    _check(shape, dtype)
    return NpyHeader(shape, fortran_order and len(shape) > 1, dtype, file.tell())


def _check(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Refuse shapes and types that no array has, and Python objects."""
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"has data type {dtype}; Python objects are never loaded. "
            "Fix: save the array with a plain data type"
        )
    if dtype.itemsize == 0:  # numpy.save writes them
        raise InvalidArgumentError(f"has data type {dtype}, whose elements have no bytes to split")
    are_sizes = all(type(size) is int and size >= 0 for size in shape)
    if not are_sizes or dtype.subdtype is not None:
        raise InvalidArgumentError(
            f"is a damaged .npy file: its shape is {shape} and its data type {dtype}. "
            f"{_FIX_OF_DAMAGE}"
        )
    # Like NumPy, leave out sizes of 0: the strides of an empty array must be numbers, too.
    spanned = prod(size or 1 for size in shape) * dtype.itemsize
    if len(shape) > MAX_DIMENSIONS or spanned > MAX_BYTES:
        raise InvalidArgumentError(
            f"is too large for any array: its header declares {len(shape)} dimensions, "
            f"{shown(shape)} elements of {dtype.itemsize} bytes; an array has at most "
            f"{MAX_DIMENSIONS} dimensions and 2^63 - 1 bytes. {_FIX_OF_DAMAGE}"
        )


def _parsed(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """The shape, whether it is in Fortran order, and the type; NumPy raises any error."""
    version = npy.read_magic(file)
    if version not in _LENGTH_BYTES:
        raise ValueError(f"its version is {version}; it must be (1, 0), (2, 0) or (3, 0)")
    length = int.from_bytes(file.read(_LENGTH_BYTES[version]), "little")
    if length > MAX_HEADER_BYTES:  # NumPy checks this too, but only after it has read them
        raise InvalidArgumentError(
            f"has a header of {length} bytes; at most {MAX_HEADER_BYTES} are read. "
            "Fix: save its fields as several arrays"
        )
    text = file.read(length)
    if len(text) != length:
        raise ValueError(f"its header has {length} bytes; {len(text)} of them can be read")
    if version == (3, 0):
        # NumPy has no public function for UTF-8. Escaped, a name is the same literal in Latin-1.
        text = text.decode().encode("ascii", "backslashreplace")
    as_version_2 = BytesIO(len(text).to_bytes(4, "little") + text)
    with warnings.catch_warnings():  # about headers that Python 2 wrote
        warnings.simplefilter("ignore")
        return npy.read_array_header_2_0(as_version_2, max_header_size=len(text))


def npy_header(shape: tuple[int, ...], fortran_order: bool, dtype: np.dtype) -> bytes:
    """The bytes of a .npy file before its elements, in the first version that can express them."""
    descr = npy.dtype_to_descr(dtype)
    fields: dict[str, Any] = {"descr": descr, "fortran_order": fortran_order, "shape": shape}
    for write in (npy.write_array_header_1_0, npy.write_array_header_2_0):
        text = BytesIO()
        with suppress(ValueError):  # too long for 1.0, or names outside Latin-1
            write(text, fields)
            return text.getvalue()
    head = npy.magic(3, 0)
    literal = repr(fields).encode()
    padding = -(len(head) + 4 + len(literal) + 1) % _ALIGNMENT
    literal += b" " * padding + b"\n"
    return head + len(literal).to_bytes(4, "little") + literal
