"""The file of `validate --write-fixed --input FILE.npz`: what is read, and what is refused."""

import os
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import dmlsplit as dml
from dmlsplit.lint.fix.feeds import feeds_of
from tests.support.command import refused, save
from tests.support.fixtures import Capsys
from tests.support.models import single

pytestmark = pytest.mark.usefixtures("forked_children")

LINE = "validate m.onnx --windows 19041 --write-fixed fixed.onnx --input f.npz"
ONES = np.ones((6, 4), np.float32)


@pytest.fixture
def model(here: Path) -> Path:
    save("m.onnx", single(TensorProto.FLOAT, (6, 4), (2, 4), 0))
    return here


def bomb() -> None:
    """1.1 gigabytes of zeros in one megabyte: a block of zeros, again and again."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (275000000,), }".ljust(117) + "\n"
    header, zeros = SHORT + text.encode(), bytes(10**6)
    deflate = zlib.compressobj(wbits=-15)
    data = deflate.compress(header + zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
    entry = zipfile.ZipInfo("x.npy")
    with zipfile.ZipFile("f.npz", "w") as archive:
        archive.writestr(entry, data + block * 1099 + deflate.flush())
        entry.compress_type = zipfile.ZIP_DEFLATED  # written into the directory at the end
        entry.file_size = len(header) + 1100 * len(zeros)


def npz(**arrays: object) -> Callable[[], None]:
    return lambda: np.savez("f.npz", **arrays)


def changed(change: Callable[[bytes], bytes]) -> Callable[[], object]:
    """Writes a file that fits, and changes its bytes."""

    def write() -> None:
        np.savez("f.npz", x=ONES)
        Path("f.npz").write_bytes(change(Path("f.npz").read_bytes()))

    return write


def corrupt(data: bytes) -> bytes:
    place = data.index(ONES.tobytes())
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def alone() -> None:
    with Path("f.npz").open("wb") as file:
        np.save(file, ONES)


def members(*contents: bytes) -> Callable[[], None]:
    def write() -> None:
        with zipfile.ZipFile("f.npz", "w") as archive, warnings.catch_warnings(action="ignore"):
            for content in contents:
                archive.writestr("x.npy", content)

    return write


def text(content: bytes) -> Callable[[], object]:
    return lambda: Path("f.npz").write_bytes(content)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
SHORT = np.lib.format.magic(1, 0) + b"\x76\0"
HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 4), }".ljust(117) + b"\n"
WHOLE = SHORT + HEADER + ONES.tobytes()
DECLARED = "; the model's input has"
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "missing": (lambda: None, "No such file or directory"),
    "folder": (lambda: Path("f.npz").mkdir(), "is not a regular file"),
    "pipe": (lambda: os.mkfifo("f.npz"), "is not a regular file"),
    "text": (text(b"x = 1"), "is not an intact .npz file"),
    "empty": (text(b""), "is not an intact .npz file"),
    "pointer": (text(POINTER), "is a Git LFS pointer. Fix: git"),
    "cut": (changed(lambda data: data[:-30]), "is not an intact .npz file"),
    "npy": (alone, "is not an intact .npz file"),
    "corrupt": (changed(corrupt), "x: is damaged: Bad CRC-32 for file 'x.npy'"),
    "no array": (members(b"text"), "x: is not a .npy file: it must start with"),
    "no header": (members(SHORT), "x: is a damaged .npy file"),
    "cut array": (members(WHOLE[:-9]), "x: is damaged: its header declares 96 bytes"),
    "objects": (npz(x=np.array([None])), "x: has data type object; Python objects are never"),
    "type": (npz(x=ONES.astype("i8")), f"x: has data type int64{DECLARED} float32. Fix: x.astype"),
    "shape": (npz(x=np.ones((6, 5), "f4")), f"x: has shape (6, 5){DECLARED} (6, 4)"),
    "rank": (npz(x=np.ones(6, "f4")), f"x: has shape (6,){DECLARED} (6, 4)"),
    "twice": (members(WHOLE, WHOLE), "has 'x' twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_in_the_file_says_what_is_wrong_with_it(case: str, model: Path) -> None:
    make, message = WRONG[case]
    make()
    with pytest.raises(dml.InvalidArgumentError) as error:
        feeds_of("m.onnx", {}, Path("f.npz"))
    assert str(error.value).startswith(f"f.npz: {message}")


def test_an_error_in_the_file_is_reported_once(model: Path, capsys: Capsys) -> None:
    assert refused(capsys, LINE) == f"dmlsplit: error: f.npz: {WRONG['missing'][1]}\n"
    assert not Path("fixed.onnx").exists()


def test_sizes_that_may_be_any_are_named_so(model: Path) -> None:
    save("m.onnx", single(TensorProto.FLOAT, ("n", 4), (2, 4), 0))
    np.savez("f.npz", x=np.ones((6, 5), np.float32))
    with pytest.raises(dml.InvalidArgumentError, match=r"the model's input has \(any, 4\)$"):
        feeds_of("m.onnx", {}, Path("f.npz"))


def test_a_bomb_is_not_unpacked(model: Path, capsys: Capsys) -> None:
    bomb()
    begun = time.monotonic()
    for shape in ((6, 4), ("n",)):
        save("m.onnx", single(TensorProto.FLOAT, shape, (2, 4), 0))
        said = refused(capsys, f"{LINE} --dim n=6" if "n" in shape else LINE)
        assert said.endswith(" unpacks to 1100000128 bytes; it must be at most 1073741824\n")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (TensorProto.FLOAT, ONES),
        (TensorProto.FLOAT, ONES.astype(">f4")),
        (TensorProto.FLOAT, np.asfortranarray(np.arange(24, dtype="f4").reshape(6, 4))),
        (TensorProto.BFLOAT16, ONES.astype(ml_dtypes.bfloat16)),
        (TensorProto.STRING, np.full((6, 4), "word")),
    ],
)
def test_inputs_that_fit_are_used(kind: int, given: np.ndarray, model: Path) -> None:
    save("m.onnx", single(kind, (6, 4), (2, 4), 0))
    np.savez("f.npz", x=given)
    (first, must_run), *_ = feeds_of("m.onnx", {}, Path("f.npz"))
    assert must_run
    np.testing.assert_array_equal(first["x"], given)
    assert first["x"].dtype == given.dtype.newbyteorder("=") or kind == TensorProto.STRING


def test_an_array_that_is_a_pointer_is_called_one(here: Path, capsys: Capsys) -> None:
    """The message is more specific than "not an array"."""
    Path("a.npy").write_bytes(POINTER)
    said = refused(capsys, "run a.npy --axis 0 --count 2")
    assert said.startswith("dmlsplit: error: a.npy: is a Git LFS pointer. Fix: git lfs pull")
