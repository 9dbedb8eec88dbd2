"""`dml.split` of a dask.array into dask arrays, lazily, with at most one dispatch per block.

A block inside one piece is passed on unchanged. A block that overlaps several pieces is split into
all its parts in one dispatch. Nothing is rechunked: a chunk of a piece is a chunk of the input, or
a part of one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise, product
from operator import itemgetter
from typing import Any, SupportsIndex

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dmlsplit.arrays import view
from dmlsplit.checks import Integers, piece_sizes
from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.execution.in_memory import split
from dmlsplit.geometry import pieces_in


class _Tasks(MaterializedLayer):
    """Tasks of a split, of which dask keeps those that are needed.

    Dask's own `cull` gets the keys of all layers, and keeps a whole layer if it gets as many keys
    as the layer has. A cluster that holds persisted pieces would then get tasks without their
    input, which fail with a KeyError.
    """

    def cull(self, keys: set[Any], all_hlg_keys: Any) -> Any:
        return super().cull(keys & self.mapping.keys(), all_hlg_keys)


def split_dask(
    array: Any, sizes_or_count: SupportsIndex | Integers, axis: SupportsIndex, out: Any = None
) -> list[Any]:
    """Split a dask.array lazily, for `dmlsplit.split`.

    Pieces keep the chunks of `array`, cut at the ends of the pieces along the axis. Pieces that are
    computed together (``dask.compute(*pieces)``) read and dispatch each block once. Formats with
    chunks of one size, such as zarr, cannot store chunks that are cut: read `array` with one chunk
    along the axis, or rechunk the pieces (docs/scale.md).

    Raises
    ------
    InvalidArgumentError
        If the sizes do not fit, `out` is given, or the blocks have unknown sizes, masks or elements
        that cannot be split.
    UnsupportedError
        If the array belongs to dask's array query planning.
    """
    if out is not None:
        raise InvalidArgumentError(
            "out is given for a dask.array, which is split lazily; it must be None. "
            "Fix: dask.array.store(pieces, out)"
        )
    array_of_graph: Any = da.core.Array
    empty_like: Any = da.empty_like
    if not isinstance(array, array_of_graph):
        raise UnsupportedError(
            "array belongs to dask's array query planning, which has no block graph to build on. "
            'Fix: dask.config.set({"array.query-planning": False})'
        )
    _check_blocks(array)
    axis, sizes = piece_sizes(array.shape, sizes_or_count, axis)
    token = tokenize(array, sizes, axis)
    dispatch = f"dml-split-{token}"
    pieces = [_Piece(f"dml-piece-{tokenize(token, index)}") for index in range(len(sizes))]
    dispatches = _add_tasks(pieces, array, dispatch, sizes, axis)
    graph: Any = HighLevelGraph.from_collections(dispatch, _Tasks(dispatches), dependencies=[array])

    def piece_array(piece: _Piece) -> Any:
        block_sizes = tuple(piece.block_sizes) or (0,)
        chunks = (*array.chunks[:axis], block_sizes, *array.chunks[axis + 1 :])
        if not piece.block_sizes:
            return empty_like(array, shape=tuple(map(sum, chunks)), chunks=chunks)
        base_graph = graph if dispatch in piece.sources else array.dask
        layers = {**base_graph.layers, piece.name: _Tasks(piece.tasks)}
        needs = {**base_graph.dependencies, piece.name: piece.sources}
        return array_of_graph(HighLevelGraph(layers, needs), piece.name, chunks, meta=array._meta)

    return list(map(piece_array, pieces))


@dataclass(frozen=True)
class _Piece:
    """A piece as a layer of the graph. Each task is a block of the array, or a part of one."""

    name: str
    tasks: dict[Any, Any] = field(default_factory=dict)
    # The sizes of the blocks along the axis.
    block_sizes: list[int] = field(default_factory=list)
    # The layers that the tasks take blocks from.
    sources: set[str] = field(default_factory=set)


def _add_tasks(
    pieces: Sequence[_Piece], array: Any, dispatch: str, sizes: Sequence[int], axis: int
) -> dict[Any, Any]:
    """Add the tasks of the pieces; return a dispatch for each block that is cut."""
    dispatches: dict[Any, Any] = {}
    starts = [0, *accumulate(sizes)]
    ranges = list(map(range, array.numblocks))
    for chunk, (low, high) in enumerate(pairwise([0, *accumulate(array.chunks[axis])])):
        parts = [(pieces[n], end - begin) for n, begin, end in pieces_in(starts, low, high)]
        split_block = partial(split, sizes_or_count=tuple(size for _, size in parts), axis=axis)
        is_cut = len(parts) > 1
        ranges[axis] = range(chunk, chunk + 1)
        for position in product(*ranges):
            block = (array.name, *position)
            result = (dispatch, *position)
            if is_cut:
                dispatches[result] = split_block, block
            for number, (piece, _) in enumerate(parts):
                place = (*position[:axis], len(piece.block_sizes), *position[axis + 1 :])
                # Not operator.getitem, which dask would fuse with a later slice of the piece.
                piece.tasks[(piece.name, *place)] = (
                    (itemgetter(number), result) if is_cut else block
                )
        for piece, size in parts:
            piece.block_sizes.append(size)
            piece.sources.add(dispatch if is_cut else array.name)
    return dispatches


def _check_blocks(array: Any) -> None:
    """Refuse blocks of unknown size, with masks, or with elements that cannot be split."""
    unknown = [axis for axis, sizes in enumerate(array.chunks) if any(map(math.isnan, sizes))]
    if unknown:
        raise InvalidArgumentError(
            f"array has unknown chunk sizes along axis {unknown[0]}; they must be known. "
            "Fix: array.compute_chunk_sizes()"
        )
    if isinstance(array._meta, np.ma.MaskedArray):
        raise InvalidArgumentError(
            "array has masked blocks; a split would lose the mask. "
            "Fix: split dask.array.ma.getdata(array) and getmaskarray(array)"
        )
    view(array._meta, "a block of array")
