"""Opens arrays on disk, and creates zarr pieces; zarr is imported only when it is needed."""

from importlib import import_module
from pathlib import Path
from typing import Any

from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about
from dmlsplit.messages import listed
from dmlsplit.storage.blocks import BlockGrid, packed_chunk
from dmlsplit.storage.journal import METADATA_FILES
from dmlsplit.storage.npy_file import NpyFile, open_npy

# Small enough for a few blocks per thread, large enough that a block costs more than its task.
BLOCK_BYTES = 8 << 20
# In larger stores, missing chunks are not counted, because that would list all files.
COUNTED_CHUNKS = 1_000_000
CHUNK_BYTES = 4 << 20  # for the zarr pieces of a .npy file


def needed(module: str, purpose: str) -> Any:
    """A module of the extra ``dask``; UnsupportedError if it is missing."""
    try:
        return import_module(module)
    except ImportError:
        raise UnsupportedError(
            f'{purpose} needs {module}, which is missing. Fix: pip install "dmlsplit[dask]"'
        ) from None


def is_store(path: Path) -> bool:
    """Whether a path is a zarr store: a folder, or a file with such a name."""
    return path.is_dir() or path.name.endswith((".zarr", ".zarr.zip"))


def open_stored(path: Path) -> Any:
    """Open a zarr array or a .npy file. InvalidArgumentError for groups and Python objects."""
    with about(path):
        return _open_store(path) if is_store(path) else open_npy(path)


def _open_store(path: Path) -> Any:
    zarr = needed("zarr", "a zarr store")
    for file in (path / name for name in METADATA_FILES):
        if file.exists() and not file.is_file():  # zarr would wait forever for a pipe
            raise InvalidArgumentError(f"its {file.name} is not a regular file")
    try:
        store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else str(path)
        node = zarr.open(store, mode="r")
    except FileNotFoundError:
        raise InvalidArgumentError(
            "is not a zarr store: it has no zarr.json, .zarray or .zgroup"
        ) from None
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    except Exception as error:  # zarr's errors about metadata have no common base class
        raise InvalidArgumentError(
            f"has damaged zarr metadata: {describe(error)}. Fix: copy the store again"
        ) from None
    if not isinstance(node, zarr.Array):
        raise InvalidArgumentError(f"is a zarr group; {_fix_for_group(path, node)}")
    if node.dtype.hasobject:
        raise InvalidArgumentError(
            f"has data type {node.dtype}; its elements have no fixed size, so they cannot "
            "be split as bytes"
        )
    if 0 in (*node.chunks, *(node.shards or ())):
        raise InvalidArgumentError(
            f"has damaged zarr metadata: its chunks are {node.chunks}. Fix: copy the store again"
        )
    return node


def _fix_for_group(path: Path, group: Any) -> str:
    try:
        names = [name for name, node in group.members(max_depth=None) if hasattr(node, "shape")]
    except Exception as error:  # as above
        return f"its members cannot be read: {describe(error)}"
    if not names:
        return "it holds no array"
    shown = listed(sorted(names), 16)
    return f"it must be one array. It holds {shown}. Fix: give {path / min(names)}"


def grid_for(
    stored: Any, axis: int, sizes: tuple[int, ...], block_bytes: int | None = None
) -> BlockGrid:
    """The blocks of a split of a zarr array or a .npy file."""
    wanted = BLOCK_BYTES if block_bytes is None else block_bytes
    if wanted < 1:
        raise InvalidArgumentError(f"block_bytes is {wanted}; it must be at least 1")
    shape, width = tuple(stored.shape), max(1, stored.dtype.itemsize)
    chunk, inner = packed_chunk(shape, width, CHUNK_BYTES), (1,) * len(shape)
    if not isinstance(stored, NpyFile):
        chunk = tuple(stored.shards or stored.chunks)
        inner = tuple(stored.chunks) if stored.shards else inner
    return BlockGrid(shape, axis, sizes, chunk, inner, width, wanted)


def absent_chunks(path: Path, stored: Any) -> tuple[str, ...]:
    """A note if chunks are missing, because the array is sparse or an incomplete copy."""
    if isinstance(stored, NpyFile) or stored.nchunks > COUNTED_CHUNKS:
        return ()
    absent = stored.nchunks - stored.nchunks_initialized
    note = (
        f"{absent} of {stored.nchunks} chunks of {path} are not stored; zarr reads them as the "
        f"fill value, {stored.fill_value}"
    )
    return (note,) if absent else ()


def create_piece(
    path: Path, stored: Any, shape: tuple[int, ...], grid: BlockGrid, piece: int
) -> None:
    """Create the zarr array of a piece, with the format and codecs of the input."""
    zarr = needed("zarr", "a zarr store")
    chunk, sharded = grid.piece_chunk(piece), any(side > 1 for side in grid.inner)
    try:
        zarr.create_array(
            str(path),
            shape=shape,
            dtype=stored.dtype,
            chunks=grid.inner if sharded else chunk,
            shards=chunk if sharded else None,
            **_kept(stored),
        )
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{path}: zarr cannot hold {stored.dtype} {shape}: {describe(error)}"
        ) from None


def _kept(stored: Any) -> dict[str, Any]:
    """The properties that the pieces inherit from a zarr array."""
    if isinstance(stored, NpyFile):
        return {}
    metadata = stored.metadata
    kept = {
        "zarr_format": metadata.zarr_format,
        "compressors": stored.compressors or None,
        "filters": stored.filters or None,
        "fill_value": stored.fill_value,
        "attributes": dict(stored.attrs),
    }
    if metadata.zarr_format == 2:
        return {**kept, "order": stored.order}
    dimension_names = metadata.dimension_names
    return {**kept, "serializer": stored.serializer, "dimension_names": dimension_names}


def settle() -> None:
    """Wait for the chunks that zarr leaves running after one has failed.

    Otherwise asyncio complains at exit.
    """
    import asyncio  # late, because a run without zarr starts faster

    sync = needed("zarr.core.sync", "a zarr store")

    async def rest() -> None:
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*tasks, return_exceptions=True)

    sync.sync(rest())


def describe(error: Exception) -> str:
    """The type and message of another library's error, on one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
