"""NumPy arrays: their memory, and new arrays."""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import adapter_of, view
from dmlsplit.arrays.adapter import NewArrays
from tests.support.gpu_arrays import compiled_split


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4), "i2"),
        np.zeros((3, 4), "i2")[:, ::-2],
        np.broadcast_to(np.float32(1), (2, 3)),
        np.zeros((0, 4)),
        np.zeros(4, "M8[s]"),
    ],
    ids=["packed", "strided", "read-only", "empty", "no C type"],
)
def test_a_view_agrees_with_the_array_interface(array: np.ndarray) -> None:
    array_view = view(array, "array")
    assert array_view.owner is array
    assert (array_view.address, array_view.read_only) == array.__array_interface__["data"]
    assert (array_view.shape, array_view.strides) == (array.shape, array.strides)
    assert (array_view.type, array_view.item_bytes) == (array.dtype.str, array.itemsize)
    assert array_view.device == "cpu"


def test_new_arrays_keep_an_extension_type() -> None:
    kind = pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16").bfloat16
    array = np.arange(4).astype(kind)
    (new_array,), _ = adapter_of(array).empty(view(array, "array"), NewArrays(((2, 3),)))
    assert (new_array.dtype, new_array.shape) == (array.dtype, (2, 3))


@pytest.mark.parametrize("kind", ["S0", "U0", "V0"])
def test_new_arrays_keep_a_type_of_no_bytes(kind: str) -> None:
    array = np.zeros(3, [("empty", kind), ("other", "i4")])["empty"]
    pieces = dml.split(array, 3)
    assert [(piece.dtype, piece.shape) for piece in pieces] == [(np.dtype(kind), (1,))] * 3


class Metres(np.ndarray):
    """An array with a unit, which its slices inherit."""

    unit = "m"

    def __array_finalize__(self, model: Any) -> None:
        self.unit = getattr(model, "unit", "?")


@pytest.mark.parametrize("rows", [4, 1024])
@pytest.mark.parametrize("kind", [Metres, np.matrix, np.memmap])
def test_pieces_of_a_subclass_have_its_type_and_memory_of_their_own(
    kind: type[np.ndarray], rows: int, tmp_path: Any
) -> None:
    array: np.ndarray = np.memmap(tmp_path / "x", np.float32, "w+", shape=(rows, 6))
    if kind is not np.memmap:
        array = np.ones((rows, 6), np.float32).view(kind)
    op = compiled_split((rows, 6), (2, 4), axis=1, device="cpu")
    for pieces in (dml.split(array, (2, 4), 1), op(array)):
        assert [type(piece) for piece in pieces] == [kind, kind]
        assert all(map(np.array_equal, pieces, np.split(array, [2], 1)))
        assert not any(np.shares_memory(piece, array) for piece in pieces)


def test_pieces_have_the_attributes_that_slices_of_a_subclass_inherit() -> None:
    distances = np.ones((4, 6), np.float32).view(Metres)
    distances.unit = "km"
    assert [piece.unit for piece in dml.split(distances, (2, 4), 1)] == ["km", "km"]


def test_pieces_of_a_table_of_records_have_its_fields() -> None:
    table = np.rec.fromarrays([[1, 2], [3.0, 4.0]], names="a, b")
    first_piece, _ = dml.split(table, 2)
    assert type(first_piece) is np.recarray
    assert first_piece.b.tolist() == [3.0]


def test_pieces_of_a_matrix_as_raw_memory_are_plain_arrays() -> None:
    buffer = np.zeros((1, 64), np.uint8).view(np.matrix)
    op = compiled_split((1, 1, 4, 4), (1, 3), axis=2, device="cpu")
    assert [type(piece) for piece in op(dml.BufferBinding(buffer))] == [np.ndarray] * 2


def test_masked_arrays_are_refused_as_input_and_as_output() -> None:
    masked = np.ma.masked_array(np.arange(4), [0, 1, 0, 0])
    with pytest.raises(dml.InvalidArgumentError, match=r"array is masked.*\.data and \.mask"):
        dml.split(masked, 2)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\] is masked"):
        dml.split(np.arange(4), 1, out=[masked])


def test_too_little_host_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # One byte repeated by stride 0, so the input is small and its pieces are not.
    huge = np.broadcast_to(np.zeros(1, "u1"), (1 << 46,))
    with pytest.raises(dml.OutOfMemoryError, match=f"{1 << 45} bytes does not fit"):
        dml.split(huge, 2)
