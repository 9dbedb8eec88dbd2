"""Splits of DTensors in a process of its own, with or without peers, for test_torch_distributed.py.

``gloo`` has one rank, so that values can be compared. ``fake`` is rank 3 of 4, without peers.
"""

import re
import tempfile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)

import dmlsplit as dml

SIZES = 1, 5


def started(backend: str) -> Any:
    if backend == "gloo":
        store = dist.FileStore(tempfile.mkstemp()[1], 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=4)
    return init_device_mesh("cpu", (dist.get_world_size(),))


def described(piece: Any) -> tuple[Any, ...]:
    local = piece.to_local()
    return type(piece), piece.shape, piece.placements, local.shape, local.tolist()


def split(x: Any) -> list[Any]:
    return dml.split(x, SIZES, dim=1)


def assert_as_torch(x: Any, function: Any = split) -> None:
    """Assert that pieces equal those of `torch.split`, are packed, and have their real strides."""
    expected_pieces = torch.split(x, SIZES, 1)
    for own_piece, expected in zip(function(x), expected_pieces, strict=True):
        assert described(own_piece) == described(expected)
        assert own_piece.is_contiguous()
        assert own_piece.to_local().is_contiguous()


def refused(function: Any, message: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match=re.escape(message)):
        function()


# Ten rows on four devices: the last one has a single row.
values = torch.arange(60.0).reshape(10, 6)
desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("FLOAT32", (10, 6)), axis=1, sizes=SIZES)
operator = dml.Device("cpu").compile(desc)
whole = {"run_check": False, "shape": values.shape, "stride": values.stride()}
for backend in "gloo", "fake":
    mesh = started(backend)
    for placement in (Shard(0), Replicate()):
        local = values.split(3)[-1] if backend == "fake" and placement == Shard(0) else values
        x = DTensor.from_local(local, mesh, [placement], **whole)
        assert_as_torch(x)
        assert_as_torch(x.t().contiguous().t())
        assert_as_torch(x, torch.compile(split, fullgraph=True, backend="aot_eager"))
        refused(lambda x=x: dml.split(x, (1, 4), 1), "add up to 6, the size of axis 1")
        refused(lambda x=x: dml.split(x, SIZES, 1, split(x)), "out is given for a DTensor")
        x = distribute_tensor(values, mesh, [placement]) if backend == "gloo" else x
        leaves = [x.detach().requires_grad_() for _ in range(2)]
        for leaf, way in zip(leaves, (split, lambda x: torch.split(x, SIZES, 1)), strict=True):
            left, right = way(leaf)
            (left.to_local() ** 2).sum().add(right.to_local().sum()).backward()
        gradient, expected_gradient = (leaf.grad for leaf in leaves)
        assert described(gradient) == described(expected_gradient)

    for placement in (Shard(1), Partial()):
        x = DTensor.from_local(values, mesh, [placement], **whole)
        placed = f"placed {x.placements}; each device must hold all of axis 1, with final values. "
        sent = placed + "Fix: redistribute(), which sends data, or to_local()"
        refused(lambda x=x: split(x), sent)
        refused(lambda x=x: torch.compile(split, backend="eager")(x), sent)
        refused(lambda x=x: operator(x), "must be a torch.Tensor or a Parameter. Fix: to_local()")
        assert torch.equal(torch.cat(split(x.to_local()), 1), values)
    dist.destroy_process_group()
    torch.compiler.reset()
print("done")  # noqa: T201
