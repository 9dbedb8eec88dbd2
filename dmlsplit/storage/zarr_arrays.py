"""Opens arrays on disk, and creates zarr pieces; zarr is imported only when it is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.atomic import name_in_errors
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.geometry import ceil_div
from dmlsplit.messages import MAX_SHOWN, omitted_line
from dmlsplit.storage.drafts import ARRAY_FILES
from dmlsplit.storage.npy_file import NpyFile

METADATA_FILES = (*ARRAY_FILES, ".zattrs", ".zgroup", ".zmetadata")  # the metadata that zarr reads
CHUNK_BYTES = 4 << 20  # for the zarr pieces of a .npy file


def import_extra(module: str, purpose: str) -> Any:
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


def open_store(path: Path) -> Any:
    """Open a zarr array.

    An InvalidArgumentError refuses groups, Python objects and damaged metadata.
    """
    zarr = import_extra("zarr", "a zarr store")
    for file in (path / name for name in METADATA_FILES):
        if file.exists() and not file.is_file():  # zarr would wait forever for a pipe
            raise InvalidArgumentError(f"its {file.name} is not a regular file")
    try:
        store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else str(path.absolute())
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
    shown = ", ".join(sorted(names)[:MAX_SHOWN] + omitted_line(len(names), MAX_SHOWN))
    return f"it must be one array. It holds {shown}. Fix: give {path / min(names)}"


def chunk_of(array: Any) -> tuple[int, ...]:
    """The chunk of an array that is read and written whole: its shard, if it has shards."""
    if isinstance(array, NpyFile):
        sides = box(array.stored_shape, array.dtype.itemsize, CHUNK_BYTES)
        return sides[::-1] if array.is_fortran else sides
    return tuple(array.shards or array.chunks)


def box(shape: Sequence[int], item_bytes: int, most_bytes: int) -> tuple[int, ...]:
    """A box of at most `most_bytes`, or of one item, that fills the innermost dimensions first."""
    sides: tuple[int, ...] = ()
    budget = max(1, most_bytes // max(1, item_bytes))
    for size in reversed(shape):
        sides = (max(1, min(size, budget)), *sides)
        budget //= sides[0]
    return sides


def create_piece(
    draft: Path, target: Path, array: Any, shape: tuple[int, ...], axis: int
) -> "NamedArray":
    """Create the zarr array of a piece, with the format, codecs and chunks of the input.

    Along the axis, no chunk is longer than the piece.
    """
    zarr = import_extra("zarr", "a zarr store")
    chunk, is_sharded = list(chunk_of(array)), getattr(array, "shards", None) is not None
    step = array.chunks[axis] if is_sharded else 1
    chunk[axis] = min(chunk[axis], max(1, ceil_div(shape[axis], step)) * step)
    try:
        with name_in_errors(target):
            piece = zarr.create_array(
                str(draft),
                shape=shape,
                dtype=array.dtype,
                chunks=array.chunks if is_sharded else tuple(chunk),
                shards=tuple(chunk) if is_sharded else None,
                **_inherited_properties(array),
            )
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{target}: zarr cannot hold {array.dtype} {shape}: {describe(error)}"
        ) from None
    # Zarr does not store chunks that equal the fill value. It regards all NaNs as equal, and all
    # complex zeros, although their bytes differ.
    has_one_form = array.dtype.kind in "biuf" and piece.fill_value == piece.fill_value
    written = piece.with_config({"write_empty_chunks": not has_one_form})
    return NamedArray(target, written)


@dataclass(frozen=True)
class NamedArray:
    """An array on disk for dask, on any thread or machine, whose errors name `path`."""

    path: Path
    array: Any

    def __getitem__(self, region: tuple[slice, ...]) -> np.ndarray:
        try:
            return np.asarray(self.array[region])
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise
        except DmlError:
            raise
        except Exception as error:  # codecs have no common error
            where = ", ".join(f"{side.start}:{side.stop}" for side in region)
            raise InvalidArgumentError(
                f"{self.path}: the chunks of [{where}] cannot be read: {describe(error)}. "
                "Fix: copy the store again, then run the same command again"
            ) from None

    def __setitem__(self, region: tuple[slice, ...], values: np.ndarray) -> None:
        with name_in_errors(self.path):
            self.array[region] = values


def _inherited_properties(array: Any) -> dict[str, Any]:
    """The properties that the pieces inherit from a zarr array."""
    if isinstance(array, NpyFile):
        return {}
    metadata = array.metadata
    kept = {
        "zarr_format": metadata.zarr_format,
        "compressors": array.compressors or None,
        "filters": array.filters or None,
        "fill_value": array.fill_value,
        "attributes": dict(array.attrs),
    }
    if metadata.zarr_format == 2:
        return {**kept, "order": array.order}
    dimension_names = metadata.dimension_names
    return {**kept, "serializer": array.serializer, "dimension_names": dimension_names}


def wait_for_chunks() -> None:
    """Wait for the chunks that zarr still reads or writes after one has failed.

    Otherwise asyncio complains at exit.
    """
    import asyncio  # late, so that a run without zarr starts faster

    sync = import_extra("zarr.core.sync", "a zarr store")

    async def rest() -> None:
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.gather(*tasks, return_exceptions=True)

    sync.sync(rest())


def describe(error: Exception) -> str:
    """The type and message of another library's error, on one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
