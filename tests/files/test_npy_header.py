"""Headers of .npy files: read and written as NumPy does, or refused in one line."""

import io
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.files.npy_header import NpyHeader, npy_header, read_npy_header

HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2)}\n"


def npy(header: str, version: bytes = b"\x01\x00", length_bytes: int = 2) -> bytes:
    """The start of a file with this header."""
    text = header.encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(length_bytes, "little") + text


def changed(old: str, new: str) -> bytes:
    """The start of a file with `HEADER`, but with `new` instead of `old`."""
    return npy(HEADER.replace(old, new))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "dtype", ["?", "<f4", ">i8", "S3", "<U2", "M8[ns]", [("a", "<u2", (2,))], [("é", "<u2")]]
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_headers_that_numpy_writes_are_read(
    order: Any, dtype: Any, version: tuple[int, int]
) -> None:
    array = np.zeros((3, 4), dtype, order)
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    file.seek(0)
    header = read_npy_header(file)
    offset = len(file.getvalue()) - array.nbytes
    assert header == NpyHeader((3, 4), order == "F", array.dtype, offset)
    assert header.size_in_bytes == array.nbytes
    assert file.tell() == offset


@pytest.mark.parametrize("shape", ["()", "(0, 3)", "(1,)", f"(0, {2**60})", str((1,) * 64)])
def test_every_shape_is_read(shape: str) -> None:
    header = read_npy_header(io.BytesIO(changed("(6, 2)", shape)))
    assert str(header.shape) == shape
    assert header.size_in_bytes == 4 * np.empty(header.shape, "u1").size


def test_one_dimension_has_no_order() -> None:
    header = read_npy_header(io.BytesIO(changed("False, 'shape': (6, 2)", "True, 'shape': (6,)")))
    assert (header.shape, header.fortran_order) == ((6,), False)


def test_an_array_may_have_2_to_the_63_minus_1_bytes() -> None:
    largest = changed("6, 2", f"{2**63 - 1},").replace(b"<f4", b"|u1")
    assert read_npy_header(io.BytesIO(largest)).size_in_bytes == 2**63 - 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_names_outside_latin_1_need_version_3(order: Any) -> None:
    array = np.zeros((3, 4), [("имя", "<f4"), ("\\u0438'é", "i2"), ("名", "u1", (2,))], order)
    file = io.BytesIO()
    with pytest.warns(UserWarning, match="format 3.0"):
        np.lib.format.write_array(file, array)
    assert file.getvalue().startswith(b"\x93NUMPY\x03")
    file.seek(0)
    header = read_npy_header(file)
    offset = len(file.getvalue()) - array.nbytes
    assert header == NpyHeader((3, 4), order == "F", array.dtype, offset)
    header_bytes = npy_header((3, 4), order == "F", array.dtype)
    assert len(header_bytes) % 64 == 0
    again = np.load(io.BytesIO(header_bytes + array.tobytes(order)))
    assert (again.dtype, again.shape, again.flags.fnc) == (array.dtype, (3, 4), order == "F")


def test_numpy_reads_a_header_of_thousands_of_fields() -> None:
    kind = np.dtype([(f"field {index}", "u1") for index in range(5000)])
    file = io.BytesIO(npy_header((2,), False, kind) + bytes(10_000))
    array = np.load(file, max_header_size=1 << 20)
    assert (array.shape, array.dtype) == ((2,), kind)


def test_headers_of_python_2_are_read_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        header = read_npy_header(io.BytesIO(changed("6, 2", "6L, 2L")))
    assert header.shape == (6, 2)


DAMAGED, TOO_LARGE = "is a damaged .npy file: ", "is too large for any array: its header declares "
REFUSED = {
    "empty": (b"", "is not a .npy file: it must start with \\x93NUMPY"),
    "text": (b"hello, world", "is not a .npy file: it must start with \\x93NUMPY"),
    "cut": (npy(HEADER)[:20], DAMAGED + "its header has 58 bytes; 10 of them can be read"),
    "version": (
        npy(HEADER, b"\x04\x00", 4),
        DAMAGED + "its version is (4, 0); it must be (1, 0), (2, 0) or (3, 0)",
    ),
    "cut in version 3": (
        npy(HEADER, b"\x03\x00", 4)[:-9],
        DAMAGED + f"its header has {len(HEADER)} bytes; {len(HEADER) - 9} of them can be read",
    ),
    "long": (
        npy("{" + " " * 20_000),
        "has a header of 20001 bytes; at most 10000 are read. Fix: save its fields as several ",
    ),
    "not UTF-8": (b"\x93NUMPY\x03\x00\x01\x00\x00\x00\xff", DAMAGED + "'utf-8' codec"),
    "code": (npy("__import__('os').abort()\n"), DAMAGED + "malformed node"),
    "deep": (npy("[" * 5000 + "\n"), DAMAGED),
    "keys": (npy("{'shape': (2,)}\n"), DAMAGED + "Header does not contain"),
    "negative": (
        changed("6, 2", "6, -2"),
        DAMAGED + "its shape is (6, -2) and its data type float32",
    ),
    "true": (changed("6, 2", "True,"), DAMAGED + "its shape is (True,) and its data type float32"),
    "empty and too large": (
        changed("6, 2", f"0, {2**63 - 1}, {2**63 - 1}"),
        TOO_LARGE + "3 dimensions",
    ),
    "too many dimensions": (changed("6, 2", "1, " * 100), TOO_LARGE + "100 dimensions, [1, 1, "),
    "no bytes": (changed("<f4", "|V0"), "has data type |V0, whose elements have no bytes"),
    "no fields": (changed("'<f4'", "[]"), "has data type [], whose elements have no bytes"),
    "nested": (changed("'<f4'", "('<f4', (2,))"), "its data type ('<f4', (2,))"),
    "objects": (
        changed("<f4", "|O"),
        "has data type object; Python objects are never loaded. "
        "Fix: save the array with a plain data type",
    ),
    "objects inside": (changed("'<f4'", "[('a', '|O')]"), "[('a', 'O')]; Python"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_headers_that_cannot_be_used_are_refused_in_one_line(name: str) -> None:
    content, message = REFUSED[name]
    with pytest.raises(dml.InvalidArgumentError) as error:
        read_npy_header(io.BytesIO(content))
    assert message in error.value.message
    assert "\n" not in error.value.message
    assert len(error.value.message) < 250


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00"])
def test_no_more_of_a_long_header_is_read_than_its_length(version: bytes) -> None:
    file = io.BytesIO(b"\x93NUMPY" + version + (900 << 20).to_bytes(4, "little") + bytes(99_999))
    with pytest.raises(
        dml.InvalidArgumentError, match=r"^has a header of 943718400 bytes; at most"
    ):
        read_npy_header(file)
    assert file.tell() == 12


def test_the_limit_of_a_header_is_that_of_its_bytes_in_the_file() -> None:
    array = np.zeros(2, [("名" * 2500, "u1")])  # escaped, six bytes for each of three
    header = npy_header(array.shape, False, array.dtype)
    assert read_npy_header(io.BytesIO(header)).dtype == array.dtype


def test_a_disk_error_is_not_reported_as_a_damaged_file() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 6:
                raise OSError(5, "Input/output error")
            return super().read(size)

    with pytest.raises(OSError, match="Input/output error"):
        read_npy_header(Failing(npy(HEADER)))


@given(st.data())
def test_a_damaged_header_is_read_or_raises_an_invalid_argument_error(data: st.DataObject) -> None:
    version = data.draw(st.integers(1, 3))
    start = npy(HEADER.ljust(80) + "\n", bytes([version, 0]), 2 if version == 1 else 4)
    content = bytearray(start)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        header = read_npy_header(io.BytesIO(content[: data.draw(st.integers(0, len(content)))]))
    except dml.InvalidArgumentError:
        return
    assert min(header.shape, default=0) >= 0
    assert header.dtype.itemsize > 0
