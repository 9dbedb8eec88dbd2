"""Outputs in another order: views of one tensor as `out=`, as docs/pytorch.md shows."""

from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.geometry import packed_byte_strides, split_geometry
from tests.support.plans import kernels

ROWS = [1, 5, 300]
SIZES = [(4, 4, 8, 8), (128, 128, 256, 256), (3, 5, 7, 1)]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_out_may_be_views_that_regroup_a_projection(
    rows: int, sizes: tuple[int, ...], is_compiled: bool
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    heads, width = 4, sum(sizes)

    def regroup(projected: Any, regrouped: Any) -> None:
        blocks = regrouped.split([heads * size for size in sizes], 1)
        views = [block.view(rows, heads, size) for block, size in zip(blocks, sizes, strict=True)]
        dml.split(projected, sizes, dim=2, out=views)

    projected, regrouped = torch.rand(rows, heads, width), torch.empty(rows, heads * width)
    call = torch.compile(regroup, fullgraph=True, backend="eager") if is_compiled else regroup
    call(projected, regrouped)
    expected = torch.cat([piece.flatten(1) for piece in projected.split(sizes, 2)], 1)
    assert torch.equal(regrouped, expected)
    with pytest.raises(dml.InvalidArgumentError, match="share memory"):
        regroup(projected, projected.view(rows, heads * width))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("sizes", [(8, 8, 16, 16), (128, 128, 256, 256)])
@pytest.mark.parametrize("item_bytes", [2, 4])
def test_a_projection_is_split_in_one_launch(
    rows: int, sizes: tuple[int, ...], item_bytes: int
) -> None:
    """This needs pieces of a head, and addresses of blocks, that are multiples of 16 bytes."""
    heads, width = 4, sum(sizes)
    source = packed_byte_strides((rows, heads, width), item_bytes)
    views = [(source[0], size * item_bytes, item_bytes) for size in sizes]
    geometry = split_geometry((rows, heads, width), 2, sizes, item_bytes, source, views)
    assert len(kernels(geometry)) == 1
