"""PyTorch on several devices: DTensors of which each has the whole axis, and FSDP2's copy-out."""

import sys
from pathlib import Path

import pytest

from tests.support.command import ours, ran, started

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this PyTorch has no gloo", allow_module_level=True)
LOCAL = {"GLOO_SOCKET_IFNAME": "lo"}


def test_each_device_splits_its_own_part() -> None:
    """The test runs in a process of its own, because a process has only one process group."""
    process = ran(sys.executable, str(Path(__file__).with_name("torch_distributed.py")), env=LOCAL)
    assert process.stdout == "done\n", process.stderr


# Two training steps of a model with sharded parameters, and of a copy that is not sharded.
TRAINING = """
import copy, sys, warnings
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
import dmlsplit as dml

calls = []
def copy_out(gathered, sizes, dim=0, *, out):
    calls.append(tuple(gathered.shape))
    dml.split(gathered, sizes, dim, out=out)

warnings.filterwarnings("ignore", "Warning only once for all operators")
library = torch.library.Library("fsdp", "IMPL")
library.impl("split_with_sizes_copy", copy_out, "CPU")
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
torch.manual_seed(0)
whole = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 3))
model = copy.deepcopy(whole)
for layer in model:
    fully_shard(layer)
fully_shard(model)
x = torch.rand(4, 6)
for _ in range(2):
    (model(x) ** 2).sum().backward()
    (whole(x) ** 2).sum().backward()
same = [
    torch.equal(a.grad.full_tensor(), b.grad)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True)
]
assert torch.equal(model(x), whole(x))
print(same, sorted(set(calls)))
dist.destroy_process_group()
"""


def test_fsdp2_trains_with_the_split_of_dmlsplit(tmp_path: Path) -> None:
    environment = {**ours(), **LOCAL}
    processes = [
        started(str(rank), str(tmp_path), program=TRAINING, env=environment) for rank in range(2)
    ]
    for process in processes:
        output, error = process.communicate(timeout=200)
        assert output == b"[True, True, True, True] [(2, 22), (2, 35)]\n", error
