"""Small arrays on the CPU: which pieces are copies of slices."""

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from dmlsplit.arrays import NUMPY
from dmlsplit.arrays.slices import MOST_BYTES, MOST_RUNS, small_slices
from tests.support.descriptors import packed


def chosen(shape: tuple[int, ...], axis: int, sizes: tuple[int, ...]) -> Any:
    return small_slices(packed(shape, axis, sizes, 1), axis, sizes)


def copies(array: Any, *sizes: int) -> Any:
    ends = zip(accumulate(sizes), sizes, strict=True)
    return NUMPY.copies(array, tuple((slice(end - size, end),) for end, size in ends))


def test_slices_select_the_pieces() -> None:
    assert chosen((2, 6), 1, (2, 0, 4)) == (
        (slice(None), slice(0, 2)),
        (slice(None), slice(2, 2)),
        (slice(None), slice(2, 6)),
    )
    assert chosen((4, 6), 0, (3, 1)) == ((slice(0, 3),), (slice(3, 4),))
    assert chosen((0, 2), 1, ()) == ()


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
    ("threads", "shape", "axis", "count", "is_small"),
    [
        (1, ((8 << 20) - 2,), 0, 2, True),
        (1, (8 << 20,), 0, 2, False),
        (2, ((2 << 20) - 2,), 0, 2, True),
        (2, (2 << 20,), 0, 2, False),
        (2, (6 << 20,), 0, 128, True),  # small outputs
        (2, (8 << 20,), 0, 256, False),
        (1, (256, 6), 1, 2, True),
        (1, (257, 6), 1, 2, False),  # many short runs
        (1, (257, 2048), 1, 2, True),
    ],
)
def test_torch_copies_itself_what_it_copies_as_fast(
    threads: int,
    shape: tuple[int, ...],
    axis: int,
    count: int,
    is_small: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from dmlsplit.frameworks.torch import _small

    monkeypatch.setenv("DMLSPLIT_NUM_THREADS", str(threads))
    sizes, _ = _small.__wrapped__(shape, torch.uint8, axis, count)
    assert bool(sizes) == is_small
