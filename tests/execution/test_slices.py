"""Splits by slices and by the engine: the same bytes, and the same refusals."""

from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.execution import in_memory, slices
from tests.support.arrays import assert_same
from tests.support.gpu_arrays import forget_programs

BYTES = np.random.default_rng(0).integers(0, 256, 1 << 12, np.uint8)
PADDED = np.dtype({"names": ["a", "b"], "formats": ["u1", "f4"], "offsets": [0, 4], "itemsize": 8})


@pytest.mark.parametrize(
    ("kind", "shape", "axis", "are_sliced"),
    [
        ("f8", (3, 8), 1, True),
        ("u1", (2, 1 << 18), 1, True),
        ("u1", (2, (1 << 18) + 2), 1, False),
        ("u1", (768, 4), 1, True),
        ("u1", (769, 4), 1, False),  # many runs
        ("u1", (12288, 2), 1, True),
        ("u1", (12289, 2), 1, False),  # many elements that are alone
        ("u1", (769, 2, 2), 1, False),  # elements that are not
        ("?", (4, 6), 0, True),
        (">c8", (2, 6), -1, True),
        ("f8", (0, 4), 1, True),
        ("S3", (4, 6), 0, False),
        (PADDED, (4, 6), 0, False),
    ],
)
def test_splits_by_slices_and_by_the_engine_give_the_bytes_of_numpy(
    kind: Any, shape: tuple[int, ...], axis: int, are_sliced: bool
) -> None:
    """Up to a size slices are copied; larger splits use the engine, as do types with gaps."""
    source = np.zeros(shape, kind)
    source.reshape(-1).view("u1")[:] = np.resize(BYTES, source.nbytes)
    raw = np.split(source.view(f"V{source.itemsize}"), 2, axis)  # with what is between fields
    outs = [np.zeros(view.shape, kind) for view in raw]
    forget_programs()
    for pieces in (dml.split(source, 2, axis), dml.split(source, 2, axis, out=outs)):
        for piece, expected in zip(pieces, raw, strict=True):
            assert piece.tobytes() == expected.tobytes()
            assert piece.dtype == source.dtype
            assert piece.flags.c_contiguous
            assert piece.flags.writeable
    assert in_memory._splits_of_few_pieces.cache_info().misses == (not are_sliced)


@pytest.mark.parametrize(("count", "are_sliced"), [(64, True), (65, False)])
def test_many_pieces_are_left_to_the_engine(count: int, are_sliced: bool) -> None:
    pieces = slices.split_by_slices(np.zeros((1, count)), count, 1)
    assert (pieces is not None) == are_sliced


MATRIX = np.arange(12.0).reshape(2, 6).copy()
FROZEN = np.zeros((2, 2))
FROZEN.setflags(write=False)


def outputs(**changes: Any) -> list[np.ndarray]:
    return [changes.get("first", np.zeros((2, 2))), changes.get("second", np.zeros((2, 4)))]


def test_new_outputs_are_filled_by_slices_in_any_form_of_list() -> None:
    for array in (MATRIX, MATRIX[:], MATRIX[::-1, ::-1]):
        for out in (outputs(), tuple(outputs())):
            filled = slices.split_by_slices(array, [2, 4], 1, out)
            assert isinstance(filled, list)
            assert all(map(lambda piece, output: piece is output, filled, out))
            assert_same(filled, np.split(array, [2], 1))


@pytest.mark.parametrize(
    "output_changes",
    [
        {"first": np.zeros((2, 3))},
        {"first": np.zeros((2, 2), "i8")},
        {"first": np.zeros((2, 2), ">f8")},
        {"first": np.zeros((2, 2), order="F")},
        {"first": np.zeros((3, 2))[:2]},
        {"first": FROZEN},
        {"first": np.zeros((2, 2)).view(np.recarray)},
        {"first": np.ma.zeros((2, 2))},
        {"first": [[0.0, 0.0], [0.0, 0.0]]},
        {"first": None},
    ],
    ids="shape type byte-order columns view read-only subclass masked list nothing".split(),
)
def test_other_outputs_are_left_to_the_engine_untouched(output_changes: dict[str, Any]) -> None:
    second = np.zeros((2, 4))
    assert (
        slices.split_by_slices(MATRIX, (2, 4), 1, outputs(**output_changes, second=second)) is None
    )
    assert not second.any()


def test_outputs_that_could_share_memory_are_left_to_the_engine_untouched() -> None:
    source, out = MATRIX.copy(), np.zeros((2, 3))
    tensor_like = np.asarray(memoryview(source))  # it owns nothing, and hides who does
    for array, outs in [
        (source, [out, out]),
        (out, [out]),
        (out[::-1], [out]),
        (tensor_like, [out, np.zeros((2, 3))]),
        (tensor_like[:], [out, np.zeros((2, 3))]),
        (np.lib.stride_tricks.as_strided(source, (2, 6)), [out, np.zeros((2, 3))]),
    ]:
        assert slices.split_by_slices(array, len(outs), 1, outs) is None
    assert not out.any()
    assert (source == MATRIX).all()


@pytest.mark.parametrize(
    "out",
    [iter(outputs()), {}, np.zeros((2, 2, 3)), outputs()[:1], [], [*outputs(), np.zeros((2, 0))]],
)
def test_a_list_of_outputs_of_another_kind_or_length_is_refused(out: Any) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=r"^out has"):
        dml.split(MATRIX, (2, 4), 1, out=out)


def operator(**layout: Any) -> dml.CompiledOperator:
    x = dml.TensorDesc("FLOAT64", (2, 6), **layout)
    return dml.Device("cpu", "6_4").compile(
        dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4))
    )


@pytest.fixture
def engine_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The splits that reach a compiled operator's own program."""
    calls: list[object] = []
    for method in ("split", "split_into"):
        split = getattr(in_memory.PreparedSplit, method)
        record = lambda *args, split=split: (calls.append(args), split(*args))[1]  # noqa: E731
        monkeypatch.setattr(in_memory.PreparedSplit, method, record)
    return calls


def test_an_operator_splits_small_arrays_by_slices_where_its_tensors_are_packed(
    engine_calls: list[object],
) -> None:
    outs = outputs()
    assert_same(operator()(MATRIX), np.split(MATRIX, [2], 1))
    operator().dispatch(MATRIX, outs)
    assert_same(outs, np.split(MATRIX, [2], 1))
    assert not engine_calls
    padded_rows = np.zeros((2, 8))[:, :6]
    padded_rows[:] = MATRIX
    assert_same(operator(strides=(8, 1))(padded_rows), np.split(MATRIX, [2], 1))
    assert len(engine_calls) == 1


@pytest.mark.parametrize(
    ("array", "rule"),
    [
        (MATRIX.astype("f4"), "DML-ARRAY-DATA-TYPE"),
        (MATRIX.astype(">f8"), "DML-ARRAY-DATA-TYPE"),
        (MATRIX.T.copy(), "DML-ARRAY-SHAPE"),
        (np.asfortranarray(MATRIX), "DML-ARRAY-STRIDES"),
    ],
)
def test_an_operator_still_refuses_small_arrays_that_do_not_fit(
    array: np.ndarray, rule: str
) -> None:
    outs = outputs()
    for call in (lambda: operator()(array), lambda: operator().dispatch(array, outs)):
        with pytest.raises(dml.InvalidArgumentError, match=rule):
            call()
    for wrong in (
        outs[:1],
        [outs[0], outs[0]],
        [outs[0], MATRIX],
        [outs[0], np.zeros((2, 4), order="F")],
    ):
        with pytest.raises(dml.InvalidArgumentError):
            operator().dispatch(MATRIX, wrong)
    assert not any(out.any() for out in outs)
