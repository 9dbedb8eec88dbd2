"""`dml.split` on dask arrays, in this process; test_dask_cluster.py has clusters."""

import sys
from itertools import combinations, combinations_with_replacement
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.utils import assert_eq
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.execution import dask as splits_of_dask
from tests.support.command import ran

RNG = np.random.default_rng(7)


def split_at(whole: int, borders: list[int]) -> tuple[int, ...]:
    return tuple(np.diff([0, *sorted(min(b, whole) for b in borders), whole]).tolist())


@st.composite
def chunked_splits(draw: st.DrawFn) -> tuple[da.Array, np.ndarray, tuple[int, ...], int]:
    borders = st.lists(st.integers(0, 12), max_size=5)
    shape = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3))
    values = RNG.integers(0, 1 << 16, shape).astype(draw(st.sampled_from(["u1", "<u2", ">i8"])))
    chunks = tuple(split_at(n, draw(borders)) for n in shape)
    axis = draw(st.integers(0, len(shape) - 1))
    return da.from_array(values, chunks), values, split_at(shape[axis], draw(borders)), axis


@pytest.fixture
def dispatches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every dispatch, as (block shape, sizes)."""
    calls = []
    original = splits_of_dask.split

    def counted(block: Any, sizes_or_count: tuple[int, ...], axis: int) -> Any:
        calls.append((block.shape, sizes_or_count))
        return original(block, sizes_or_count, axis)

    monkeypatch.setattr(splits_of_dask, "split", counted)
    return calls


@given(case=chunked_splits())
def test_random_chunkings_equal_numpy(case: Any) -> None:
    """All pieces are compared, then each one by dask's own check of graph, blocks and types."""
    lazy, values, sizes, axis = case
    pieces = dml.split(lazy, sizes, axis)
    expected = np.split(values, np.cumsum(sizes)[:-1], axis)
    together = dask.compute(*pieces, scheduler="sync")
    for piece, expected_piece, computed_piece in zip(pieces, expected, together, strict=True):
        assert_eq(piece, expected_piece, scheduler="sync")
        assert type(piece._meta) is type(lazy._meta)
        np.testing.assert_array_equal(computed_piece, expected_piece)


@pytest.mark.parametrize("chunk", range(1, 5))
def test_a_culled_graph_has_the_tasks_of_its_blocks_and_no_others(chunk: int) -> None:
    """A cluster that holds persisted pieces may know other tasks by other dependencies."""
    lazy = da.from_array(np.arange(8), chunk)
    for low, high in combinations_with_replacement(range(9), 2):
        for piece in dml.split(lazy, (low, high - low, 8 - high)):
            below, keys = piece.dask.get_all_dependencies(), piece.__dask_keys__()
            for first, last in combinations(range(len(keys) + 1), 2):
                needed_keys: set[Any] = set()
                new_keys = output_keys = set(keys[first:last])
                while new_keys:
                    needed_keys |= new_keys
                    new_keys = set().union(*(below[key] for key in new_keys)) - needed_keys
                assert piece.dask.cull(output_keys).to_dict().keys() == needed_keys


@given(case=chunked_splits())
def test_pieces_keep_the_chunk_borders_of_the_input(case: Any) -> None:
    lazy, _, sizes, axis = case
    borders = set(np.cumsum((0, *lazy.chunks[axis])).tolist())
    start = 0
    for size, piece in zip(sizes, dml.split(lazy, sizes, axis), strict=True):
        assert piece.chunks[:axis] == lazy.chunks[:axis]
        assert piece.chunks[axis + 1 :] == lazy.chunks[axis + 1 :]
        ends = {start + end for end in np.cumsum(piece.chunks[axis]).tolist()}
        inside = {border for border in borders if start < border < start + size}
        assert ends - {start} == (inside | {start + size} if size else set())
        start += size


@settings(max_examples=30)
@given(case=chunked_splits(), data=st.data())
def test_pieces_can_be_sliced_further(case: Any, data: st.DataObject) -> None:
    """Dask fuses slices with what comes before; it must not fuse them with the dispatch."""
    lazy, values, sizes, axis = case
    index = data.draw(st.integers(0, len(sizes) - 1))
    expected = np.split(values, np.cumsum(sizes)[:-1], axis)[index]
    cut = tuple(slice(data.draw(st.integers(0, 3)), None) for _ in values.shape)
    piece = dml.split(lazy, sizes, axis)[index]
    np.testing.assert_array_equal(piece[cut].compute(scheduler="sync"), expected[cut])
    assert piece[cut].sum().compute(scheduler="sync") == expected[cut].sum()


def test_each_block_is_read_once_and_dispatched_once(dispatches: list[Any]) -> None:
    read = []

    def loaded(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        read.append(block_info[0]["chunk-location"])
        return block

    values = np.arange(60 * 40).reshape(60, 40)
    lazy = da.from_array(values, chunks=(20, 10)).map_blocks(loaded, dtype=int, meta=values[:0])
    pieces = dml.split(lazy, (3, 4, 18, 15), axis=1)
    dask.compute(*pieces, scheduler="threads")
    assert sorted(read) == [(row, column) for row in range(3) for column in range(4)]
    # Chunks 0 (3|4|3) and 2 (5|5) cross borders; 1 and 3 are inside a piece.
    assert sorted(dispatches) == 3 * [((20, 10), (3, 4, 3))] + 3 * [((20, 10), (5, 5))]


def test_names_of_pieces_are_equal_only_for_equal_splits() -> None:
    """Dask therefore shares work between equal splits, and never mixes up different ones."""
    lazy = da.ones((8, 8), chunks=3)
    names = [[piece.name for piece in dml.split(lazy, cut, 1)] for cut in (2, (4, 4), (3, 5))]
    assert names[0] == names[1]
    assert not set(names[0]) & set(names[2])


def unknown_chunks() -> da.Array:
    array = da.arange(6, chunks=3)
    return array[array > 2]


class Foreign(np.lib.mixins.NDArrayOperatorsMixin):
    """Blocks of a type that dask accepts and a split does not."""

    ndim, dtype, shape = 1, np.dtype("f4"), (0,)
    __array_function__ = np.ndarray.__array_function__

    def __getitem__(self, _: Any) -> "Foreign":
        return self


@pytest.mark.parametrize(
    ("array", "arguments", "message"),
    [
        (unknown_chunks(), (2,), "unknown chunk sizes along axis 0"),
        (da.from_array(np.array([1, "a"], object), chunks=1), (2,), "Python objects"),
        (da.ma.masked_equal(da.arange(4), 2), (2,), "masked blocks"),
        (
            da.Array({}, "x", ((2,),), meta=Foreign()),
            (2,),
            "a block of array has the type tests.Foreign; it must be an array",
        ),
        (da.ones(6), ((2, 3),), r"sizes \[2, 3\] add up to 5"),
        (da.ones(6), (4,), "count is 4"),
        (da.ones(6), (2, 1), "axis is 1; it must be from -1 to 0"),
        (da.ones(()), (1,), "the input has 0 dimensions"),
        (da.ones(6), (2, 0, [np.ones(3)] * 2), "out is given for a dask.array"),
    ],
)
def test_arrays_that_cannot_be_split_are_refused_before_anything_runs(
    array: da.Array, arguments: Any, message: str
) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=message):
        dml.split(array, *arguments)


def test_arrays_of_dasks_query_planning_are_refused_with_the_fix() -> None:
    program = """
import dask; dask.config.set({"array.query-planning": True})
import dask.array, dmlsplit
try:
    dmlsplit.split(dask.array.ones(4), 2)
except dmlsplit.UnsupportedError as error:
    print(error)
"""
    process = ran(sys.executable, "-c", program)
    assert 'Fix: dask.config.set({"array.query-planning": False})' in process.stdout, process.stderr


@pytest.mark.gpu
def test_pieces_of_blocks_on_a_gpu_stay_on_the_gpu() -> None:
    import cupy

    values = RNG.integers(0, 1 << 30, (64, 85), dtype="i4")
    lazy = da.from_array(values, chunks=(16, 40)).map_blocks(cupy.asarray)
    pieces = dml.split(lazy, (4, 1, 80), axis=1)
    computed_pieces = dask.compute(*pieces, scheduler="sync")
    for piece, right in zip(computed_pieces, np.split(values, (4, 5), axis=1), strict=True):
        assert isinstance(piece, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(piece), right)
