"""`dml.split` on a dask.array: dask arrays out, one dispatch per block, nothing computed yet.

A block that lies inside one piece is passed on as it is. A block that crosses the border
of a piece is split, all its parts in one dispatch. Nothing is rechunked, so each chunk of
a piece is a chunk of the input or a part of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any, SupportsIndex

import numpy as np

from dmlsplit.checks import piece_sizes
from dmlsplit.eager import split
from dmlsplit.errors import InvalidArgumentError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Cuts:
    """How the chunks of one axis fall apart at the borders of the pieces.

    Attributes
    ----------
    blocks : tuple of tuple of int
        For each chunk, the sizes of its parts along the axis. One part: it is not cut.
    pieces : tuple of tuple of (int, int)
        For each piece, its parts in order, as (chunk, part of that chunk).
    """

    blocks: tuple[tuple[int, ...], ...]
    pieces: tuple[tuple[tuple[int, int], ...], ...]


def cut_chunks(chunks: Sequence[int], sizes: Sequence[int]) -> Cuts:
    """Cut the chunks of an axis at the borders of the pieces; both have the same sum.

    Examples
    --------
    >>> cut_chunks((4, 4), (5, 3))
    Cuts(blocks=((4,), (1, 3)), pieces=(((0, 0), (1, 0)), ((1, 1),)))
    """
    blocks: list[list[int]] = [[] for _ in chunks]
    pieces: list[list[tuple[int, int]]] = [[] for _ in sizes]
    chunk, left = -1, 0
    for piece, size in enumerate(sizes):
        while size:
            while not left:
                chunk += 1
                left = chunks[chunk]
            part = min(left, size)
            pieces[piece].append((chunk, len(blocks[chunk])))
            blocks[chunk].append(part)
            left -= part
            size -= part
    return Cuts(tuple(map(tuple, blocks)), tuple(map(tuple, pieces)))


def split_dask(
    array: Any, sizes_or_count: SupportsIndex | Iterable[SupportsIndex], axis: SupportsIndex
) -> list[Any]:
    """Split a dask.array lazily. `dmlsplit.split` calls this.

    Parameters
    ----------
    array
        A dask.array with blocks of NumPy, CuPy or any library with DLPack.
    sizes_or_count, axis
        As in `dmlsplit.split`.

    Returns
    -------
    list of dask.array.Array
        The pieces. Chunks along other axes are those of `array`; along the axis they end
        where a chunk of `array` or the piece ends. Compute or store the pieces together
        (``dask.compute(*pieces)``): each block is then read and dispatched once.

    Raises
    ------
    InvalidArgumentError
        If chunk sizes are unknown, the blocks are masked, hold Python objects or are no
        arrays with DLPack, or the sizes do not fit.
    """
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    array_of_graph: Any = da.core.Array
    if not isinstance(array, array_of_graph):
        raise UnsupportedError(
            "array belongs to dask's array query planning, which has no block graph to build on. "
            'Fix: dask.config.set({"array.query-planning": False})'
        )
    _check_blocks(array)
    at, sizes = piece_sizes(array.shape, sizes_or_count, axis)
    cuts = cut_chunks(array.chunks[at], sizes)
    token = tokenize(array, sizes, at)
    dispatch = f"dml-split-{token}"
    graph: Any = HighLevelGraph.from_collections(
        dispatch, _dispatches(array, dispatch, cuts, at), dependencies=[array]
    )

    def piece(index: int) -> Any:
        along = tuple(cuts.blocks[chunk][part] for chunk, part in cuts.pieces[index])
        chunks = (*array.chunks[:at], along or (0,), *array.chunks[at + 1 :])
        name = f"dml-piece-{tokenize(token, index)}"
        if along:
            layer = _parts(array, name, dispatch, cuts, index, at)
        else:
            layer = _empty_parts(array, name, chunks)
        layers = {**graph.layers, name: layer}
        needs = {**graph.dependencies, name: {dispatch, array.name}}
        return array_of_graph(HighLevelGraph(layers, needs), name, chunks, meta=array._meta)

    return [piece(index) for index in range(len(sizes))]


def _dispatches(array: Any, name: str, cuts: Cuts, axis: int) -> dict[Any, Any]:
    """Return one task for each block that is cut; its result is the list of the parts."""
    return {
        (name, *place): (partial(split, sizes_or_count=sizes, axis=axis), (array.name, *place))
        for chunk, sizes in enumerate(cuts.blocks)
        if len(sizes) > 1
        for place in _places(array.numblocks, axis, chunk)
    }


def _parts(
    array: Any, name: str, dispatch: str, cuts: Cuts, index: int, axis: int
) -> dict[Any, Any]:
    """Return the blocks of one piece: parts of a dispatch's result, or blocks as they are."""
    layer: dict[Any, Any] = {}
    for position, (chunk, part) in enumerate(cuts.pieces[index]):
        whole = len(cuts.blocks[chunk]) == 1
        for place in _places(array.numblocks, axis, chunk):
            key = (name, *place[:axis], position, *place[axis + 1 :])
            # Not operator.getitem: dask would fuse it with a later slice of the piece.
            task = (itemgetter(part), (dispatch, *place))
            layer[key] = (array.name, *place) if whole else task
    return layer


def _empty_parts(array: Any, name: str, chunks: tuple[tuple[int, ...], ...]) -> dict[Any, Any]:
    """Return the blocks of an empty piece: of the same kind as the others, made of no block."""
    places = product(*(range(len(sizes)) for sizes in chunks))
    return {
        (name, *place): (partial(np.empty_like, array._meta, shape=shape),)
        for place, shape in zip(places, product(*chunks), strict=True)
    }


def _places(counts: Sequence[int], axis: int, chunk: int) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the blocks that have number `chunk` along the axis."""
    return product(*([chunk] if d == axis else range(n) for d, n in enumerate(counts)))


def _check_blocks(array: Any) -> None:
    unknown = [axis for axis, sizes in enumerate(array.chunks) if any(map(math.isnan, sizes))]
    if unknown:
        raise InvalidArgumentError(
            f"array has unknown chunk sizes along axis {unknown[0]}; they must be known. "
            "Fix: array.compute_chunk_sizes()"
        )
    if array.dtype.hasobject:
        raise InvalidArgumentError(
            f"array has data type {array.dtype}; Python objects cannot be split as bytes"
        )
    meta = array._meta
    if isinstance(meta, np.ma.MaskedArray):
        raise InvalidArgumentError(
            "array has masked blocks; a split would lose the mask. "
            "Fix: split dask.array.ma.getdata(array) and getmaskarray(array)"
        )
    if not isinstance(meta, np.ndarray) and not hasattr(meta, "__dlpack__"):
        raise InvalidArgumentError(
            f"array has blocks of {type(meta).__module__}.{type(meta).__qualname__}; they must be "
            "arrays of NumPy, CuPy or a library with DLPack"
        )
