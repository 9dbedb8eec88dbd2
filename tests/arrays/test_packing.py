"""Where arrays of one allocation are."""

import pytest

from dmlsplit.arrays.packing import ALIGNMENT, SHARED_BYTES, packing


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
