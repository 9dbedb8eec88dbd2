"""How pieces are made: where arrays of one allocation are, and which pieces are copied slices."""

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from dmlsplit.arrays import NUMPY
from dmlsplit.arrays.packing import (
    ALIGNMENT,
    MOST_BYTES,
    MOST_RUNS,
    SHARED_BYTES,
    Cut,
    packing,
    small_cut,
)
from dmlsplit.arrays.torch import _small
from tests.support.descriptors import packed


def test_arrays_follow_each_other_as_allocations_would() -> None:
    found = packing(((3, 5), (0, 5), (1, 512), (2,)), 1)
    assert found.shapes == ((3, 5), (0, 5), (1, 512), (2,))
    assert found.offsets == (0, 512, 512, 1024)
    assert found.size == 1536
    assert ALIGNMENT == 512


@pytest.mark.parametrize(
    ("shapes", "is_shared"),
    [(((4,), (4,)), True), (((4,),), False), ((), False),
     (((SHARED_BYTES // 2,), (SHARED_BYTES // 2 - 512,)), True),
     (((SHARED_BYTES // 2,), (SHARED_BYTES // 2 - 1,)), False),
     (((SHARED_BYTES // 2,), (SHARED_BYTES // 2,)), False)],
)  # fmt: skip
def test_several_small_arrays_share_one_allocation(
    shapes: tuple[tuple[int, ...], ...], is_shared: bool
) -> None:
    assert bool(packing(shapes, 1).offsets) == is_shared
    assert SHARED_BYTES == 1 << 20


def chosen(shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]) -> Any:
    return small_cut(packed(shape, axis, sizes, 1), axis, sizes)


def copies(array: Any, *sizes: int) -> Any:
    ends = zip(accumulate(sizes), sizes, strict=True)
    cut = Cut(0, sizes, tuple((slice(end - size, end),) for end, size in ends))
    return NUMPY.copies(array, cut)


def test_slices_select_the_pieces() -> None:
    assert chosen((2, 6), 1, (2, 0, 4)).slices == (
        (slice(None), slice(0, 2)),
        (slice(None), slice(2, 2)),
        (slice(None), slice(2, 6)),
    )
    assert chosen((4, 6), 0, (3, 1)) == Cut(0, (3, 1), ((slice(0, 3),), (slice(3, 4),)))
    assert chosen((0, 2), 1, ()).slices == ()


@pytest.mark.parametrize(
    ("shape", "are"),
    [((MOST_RUNS, 4), True), ((MOST_RUNS + 1, 4), False),
     ((4, MOST_BYTES // 4 - 2), True), ((4, MOST_BYTES // 4), False)],
)  # fmt: skip
def test_many_runs_or_many_bytes_go_to_the_engine(shape: tuple[int, int], are: bool) -> None:
    assert (chosen(shape, 1, (shape[1] // 2,) * 2) is not None) == are


FIELDS = np.dtype([("a", "u1"), ("b", "f4")])


@pytest.mark.parametrize("kind", ["?", "i1", "u2", ">i4", "f2", "<f8", "c16", "m8[s]", "S3", ">U2"])
def test_slices_of_plain_types_are_copied(kind: str) -> None:
    array = np.frombuffer(np.random.default_rng(0).bytes(4 * np.dtype(kind).itemsize), kind)
    found = copies(array, 1, 3)
    assert found is not None
    assert b"".join(piece.tobytes() for piece in found) == array.tobytes()
    assert all(piece.flags.writeable and piece.dtype == array.dtype for piece in found)


@pytest.mark.parametrize("kind", [FIELDS, "V3", np.dtype((FIELDS, ()))])
def test_slices_of_types_with_parts_are_not_copied(kind: Any) -> None:
    assert copies(np.zeros(4, kind), 4) is None


def test_slices_of_types_of_other_libraries_are_not_copied() -> None:
    kind = pytest.importorskip("ml_dtypes", reason="NumPy's bfloat16").bfloat16
    assert copies(np.zeros(4, kind), 4) is None


def test_slices_of_subclasses_are_not_copied() -> None:
    assert copies(np.zeros(4).view(type("Sub", (np.ndarray,), {})), 4) is None


def test_without_memory_there_are_no_copies() -> None:
    huge = np.broadcast_to(np.zeros(1, "u1"), (1 << 46,))
    assert copies(huge, 1 << 46) is None


@pytest.mark.parametrize(
    ("count", "size", "is_small"),
    [(32, 64 << 10, False), (33, 62 << 10, True), (1024, 63 << 10, True), (1100, 63 << 10, False)],
)
def test_torch_copies_many_small_outputs_itself(count: int, size: int, is_small: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    sizes, _ = _small((count * size,), torch.uint8, 0, count)
    assert bool(sizes) == is_small
