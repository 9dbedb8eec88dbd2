"""Peers of the GPU benchmark, on arrays of the host instead of a GPU's."""

import sys
from importlib import import_module
from math import prod

import numpy as np
import pytest

from benchmarks import gpu_problem, peers_gpu
from benchmarks.cases import CASES, Case
from benchmarks.gpu_problem import BufferSet, GpuProblem
from benchmarks.peers_gpu import GpuPeer

SPLITS = [
    Case("rows", CASES, (40, 24), "i2", 1, (3, 16, 5)),
    Case("one row", CASES, (4, 6), "u1", 0, (1, 3)),
    Case("columns", CASES, (5, 3, 24), "i2", 2, (4, 4, 8, 8), joined_at=1),
    Case("one by one", CASES, (8, 100), "i4", 1, (1, 90, 9), joined_at=0),
    Case("planes", CASES, (2, 6, 4, 3), "u1", 1, (2, 4), joined_at=0),
]
each_split = pytest.mark.parametrize("case", SPLITS, ids=lambda case: case.name)
INTO_GIVEN = ["torch out=", "torch per output", "torch out=, one tensor"]
INTO_ONE = ["torch cat", "torch index_select"]
ALLOCATING = ["torch.compile", "JAX"]


def empty(case: Case, shape: tuple[int, ...]) -> np.ndarray:
    return np.full(prod(shape), 0xA5, case.dtype).reshape(shape)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    monkeypatch.setattr(cupy, "asarray", np.asarray)
    monkeypatch.setattr(cupy, "from_dlpack", np.asarray)
    monkeypatch.setattr(gpu_problem, "_empty", empty)
    monkeypatch.setattr(gpu_problem, "poison", lambda outputs: None)


def check(case: Case, peer: GpuPeer) -> None:
    """The outputs of the second set are its pieces after a call, wherever they are."""
    arrays = np.random.default_rng(case.total_bytes).integers(0, 100, (2, *case.shape), case.dtype)
    buffers = [BufferSet(x, memory=x, **gpu_problem.empty_outputs(case)) for x in arrays]
    problem = GpuProblem(case, buffers)
    prepared = peer(problem)
    prepared.call(1)
    found = prepared.outputs(1)
    assert len(found) == len(case.sizes)
    assert all(map(np.array_equal, found, problem.views(1)))
    assert all((out == np.array(0xA5, case.dtype)).all() for out in buffers[0].outputs)


@each_split
@pytest.mark.parametrize("peer", INTO_GIVEN + INTO_ONE + ALLOCATING)
def test_peers_of_other_libraries(peer: str, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    if peer == "JAX":
        pytest.importorskip("jax", reason="JAX is not installed")
    else:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    if peer in INTO_ONE and case.joined_at is None:
        with pytest.raises(NotImplementedError, match="outputs are separate"):
            check(case, peers_gpu.PEERS[peer])
    else:
        check(case, peers_gpu.PEERS[peer])


@each_split
@pytest.mark.parametrize("peer", ["Triton", "Triton, one tensor"])
def test_triton_interprets_our_kernel(
    peer: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.delitem(sys.modules, "benchmarks.peers_triton", raising=False)
    monkeypatch.setattr(import_module("benchmarks.peers_triton"), "_seconds", lambda call: 0.0)
    check(case, peers_gpu.PEERS[peer])
