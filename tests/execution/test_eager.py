"""`dml.split` of any array, with any strides and any cut."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from tests.support.arrays import assert_same


@st.composite
def cuts(draw: st.DrawFn) -> tuple[np.ndarray, int, list[int]]:
    """An array of any type and layout, an axis, and sizes that may be 0."""
    parts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    rank = draw(st.integers(1, 5))
    axis = draw(st.integers(0, rank - 1))
    shape = [draw(st.integers(0, 4)) for _ in range(rank)]
    shape[axis] = sum(parts)
    types = st.sampled_from(["u1", "f2", "<i4", ">i4", "f8", "c16", "?", "M8[s]", "S3", "U2"])
    dtype = np.dtype(draw(types | st.just([("a", "u1"), ("b", "f4")])))
    raw = np.random.default_rng(0).bytes(2 * int(np.prod(shape)) * dtype.itemsize)
    array = np.frombuffer(raw, np.uint8).copy().view(dtype).reshape(*shape[:-1], 2 * shape[-1])
    steps = draw(
        st.sampled_from([slice(None, shape[-1]), slice(None, None, 2), slice(None, None, -2)])
    )
    array = array[..., steps] if shape[-1] else array
    order = draw(st.permutations(range(rank)))
    return array.transpose(order), order.index(axis), parts


@given(cuts())
def test_pieces_are_those_of_numpy(cut: tuple[np.ndarray, int, list[int]]) -> None:
    array, axis, sizes = cut
    pieces = dml.split(array, sizes, axis)
    assert_same(pieces, np.split(array, np.cumsum(sizes)[:-1], axis))
    assert all(piece.flags.c_contiguous for piece in pieces)
    assert not any(np.shares_memory(piece, array) for piece in pieces)


@given(cuts())
def test_out_may_have_any_strides(cut: tuple[np.ndarray, int, list[int]]) -> None:
    array, axis, sizes = cut
    store = np.zeros((*array.shape[::-1], 3), array.dtype)
    out = np.split(store[..., 1].transpose()[::-1], np.cumsum(sizes)[:-1], axis)
    pieces = dml.split(array, sizes, axis, out=out)
    assert all(piece is output for piece, output in zip(pieces, out, strict=True))
    assert_same(out, np.split(array, np.cumsum(sizes)[:-1], axis))
    assert not any(store[..., [0, 2]].tobytes())


@pytest.mark.parametrize("dim", [0, 1, -1, np.int64(1)])
def test_the_axis_may_be_called_dim(dim: Any) -> None:
    array = np.arange(24).reshape(4, 6)
    expected_pieces = dml.split(array, 2, dim)
    outs = [np.zeros_like(piece) for piece in expected_pieces]
    for pieces in (dml.split(array, 2, dim=dim), dml.split(array, 2, dim=dim, out=outs)):
        for piece, expected in zip(pieces, expected_pieces, strict=True):
            np.testing.assert_array_equal(piece, expected)


def test_dim_names_the_axis_of_dask_and_jax_arrays() -> None:
    array = np.arange(24.0, dtype="f4").reshape(4, 6)
    expected_values = [piece.tolist() for piece in dml.split(array, 2, 1)]
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    pieces = dml.split(da.from_array(array, 2), 2, dim=1)
    assert [piece.compute().tolist() for piece in pieces] == expected_values
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    for transform in (lambda function: function, jax.jit):
        halves = transform(lambda x: dml.split(x, 2, dim=1))
        assert [piece.tolist() for piece in halves(jax.numpy.asarray(array))] == expected_values


@pytest.mark.parametrize(("axis", "dim"), [(0, 0), (0, 1), (1, 0), (1, 1), (None, 0)])
def test_only_one_of_axis_and_dim_may_be_given(axis: Any, dim: int) -> None:
    message = rf"^axis is {axis} and dim is {dim}, two names for one argument. Fix: give only one$"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        dml.split(np.zeros((2, 2)), 2, axis, dim=dim)  # type: ignore[call-overload]
    with pytest.raises(dml.InvalidArgumentError, match=r"^axis is 2; it must be from -2 to 1"):
        dml.split(np.zeros((2, 2)), 2, dim=2)


MATRIX = np.arange(12.0).reshape(2, 6)
ONE, TWO = np.zeros((2, 2)), np.zeros((2, 4))
FROZEN = np.zeros((2, 2))
FROZEN.flags.writeable = False
FOLDED = np.lib.stride_tricks.as_strided(np.zeros(4), (2, 2), (8, 8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], 2), "array has the type list; it must be an array"),
        ((MATRIX.astype(object), 2), "Python objects cannot be split"),
        # test_checks.py has more.
        ((MATRIX, 3), r"count is 3; it must be at least 1 and divide 2, the size of axis 0"),
        ((MATRIX, (3, 4), 1), r"sizes \[3, 4\] add up to 7"),
        ((MATRIX, 2, 2), "axis is 2; it must be from -2 to 1"),
        ((np.array(1), 1), "the input has 0 dimensions; it must have at least 1$"),
        ((MATRIX, (2, 4), 1, [ONE]), "out has 1 array; it must be a list of 2 arrays"),
        ((MATRIX, (2, 4), 1, ONE), "out has the type ndarray; it must be a list"),
        ((MATRIX, (2, 4), 1, [ONE, ONE]), r"out\[1\]: shape is \(2, 2\); it must be \(2, 4\)"),
        (
            (MATRIX, (2, 4), 1, [ONE, TWO.view("i8")]),
            r"out\[1\]: data type is int64; it must be float64. Fix: pass an array of float64$",
        ),
        (
            (MATRIX, (2, 4), 1, [FROZEN, TWO]),
            r"out\[0\] is read-only. Fix: pass an array that can be written, such as a copy$",
        ),
        ((MATRIX, (2, 4), 1, [MATRIX[:, :2], TWO]), r"^array and out\[0\] share memory"),
        ((MATRIX, (2, 4), 1, [TWO[:, 1:3], TWO]), r"^out\[0\] and out\[1\] share memory"),
        ((MATRIX, (2, 4), 1, [np.broadcast_to(1.0, (2, 2)), TWO]), "read-only"),
        ((MATRIX, (2, 4), 1, [FOLDED, TWO]), "its elements must not overlap"),
    ],
)
def test_an_invalid_argument_is_refused_before_a_byte_is_written(
    arguments: tuple[object, ...], message: str
) -> None:
    before = [array.tobytes() for array in (MATRIX, ONE, TWO)]
    with pytest.raises(dml.InvalidArgumentError, match=message):
        dml.split(*arguments)  # type: ignore[arg-type]
    assert [array.tobytes() for array in (MATRIX, ONE, TWO)] == before


@pytest.mark.parametrize(
    ("input_type", "output_type"),
    [("i4, f4", "f4, i4"), ("i4, f4", "V8"), ("V8", "i4, f4"), ([("a", "u1")], [("b", "u1")])],
)
def test_an_output_of_another_structured_type_is_refused(input_type: Any, output_type: Any) -> None:
    input_type, output_type = np.dtype(input_type), np.dtype(output_type)
    dml.split(np.zeros(2, input_type), 1, out=[np.ones(2, input_type)])
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\]: data type is"):
        dml.split(np.zeros(2, input_type), 1, out=[np.zeros(2, output_type)])


def test_an_output_of_another_extension_type_is_refused() -> None:
    """NumPy's type string for both is ``<V1``."""
    types = pytest.importorskip("ml_dtypes", reason="NumPy's float8")
    source, out = np.zeros(2, types.float8_e4m3), np.zeros(2, types.float8_e4m3fn)
    with pytest.raises(dml.InvalidArgumentError, match="type is float8_e4m3fn; it must be"):
        dml.split(source, 1, out=[out])


@pytest.mark.parametrize(
    ("parts", "pair"),
    [
        ((slice(0, 5), slice(20, 25), slice(3, 8), slice(23, 28)), "2 out 0"),
        ((slice(0, 9, 2), slice(1, 10, 2), slice(20, 25), slice(22, 27)), "3 out 2"),
    ],
    ids=["not in the order of their addresses", "after two that only interleave"],
)
def test_outputs_that_share_memory_are_refused_beside_outputs_that_do_not(
    parts: tuple[slice, ...], pair: str
) -> None:
    store = np.zeros(40)
    message = re.escape("out[{}] and {}[{}] share memory".format(*pair.split()))
    with pytest.raises(dml.InvalidArgumentError, match=f"^{message}"):
        dml.split(np.zeros(20), 4, out=[store[part] for part in parts])


def test_a_strided_input_is_not_copied() -> None:
    import tracemalloc

    array = np.zeros((64, 1 << 14, 4), np.float32)[:, ::-1]
    out = np.split(np.empty(array.shape, array.dtype), 2, 2)
    tracemalloc.start()
    dml.split(array, 2, 2, out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000  # The input has 16 MB.


def test_thousands_of_columns_may_be_outputs_unless_one_is_repeated() -> None:
    whole = np.empty((3, 20_000), np.float32)
    values = np.arange(60_000, dtype=np.float32).reshape(3, -1)
    outs = [whole[:, i : i + 1] for i in range(20_000)]
    dml.split(values, 20_000, 1, outs)
    np.testing.assert_array_equal(whole, values)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[19999\] and out\[7\] share memory"):
        dml.split(values, 20_000, 1, [*outs[:-1], outs[7]])
