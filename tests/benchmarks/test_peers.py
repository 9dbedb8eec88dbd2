"""Peers of the GPU benchmark, on arrays of the host instead of a GPU's."""

import ctypes
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks import gpu_problem, peers_gpu
from benchmarks.cases import CASES, Case
from benchmarks.gpu_problem import BufferSet, GpuProblem
from benchmarks.peers_gpu import GpuPeer
from tests.support.benchmarks import HostArray, unwritten

SEPARATE = [
    Case("rows", CASES, (40, 24), "i2", 1, (3, 16, 5)),
    Case("one row", CASES, (4, 6), "u1", 0, (1, 3)),
]
JOINED = [
    Case("columns", CASES, (5, 3, 24), "i2", 2, (4, 4, 8, 8), joined_at=1),
    Case("one by one", CASES, (8, 100), "i4", 1, (1, 90, 9), joined_at=0),
    Case("planes", CASES, (2, 6, 4, 3), "u1", 1, (2, 4), joined_at=0),
]
each_split = pytest.mark.parametrize("case", SEPARATE + JOINED, ids=lambda case: case.name)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy makes NumPy's arrays."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    monkeypatch.setattr(cupy, "asarray", np.asarray)
    monkeypatch.setattr(cupy, "from_dlpack", np.asarray)
    monkeypatch.setattr(gpu_problem, "_empty", unwritten)
    monkeypatch.setattr(gpu_problem, "poison", lambda outputs: None)


def check(case: Case, peer: GpuPeer) -> None:
    """A call leaves the pieces of the second set in its outputs, wherever they are."""
    arrays = np.random.default_rng(case.total_bytes).integers(0, 100, (2, *case.shape), case.dtype)
    buffers = [BufferSet(x, memory=x, **gpu_problem.empty_outputs(case)) for x in arrays]
    problem = GpuProblem(case, buffers)
    prepared = peer(problem)
    prepared.call(1)
    outputs = prepared.outputs(1)
    assert len(outputs) == len(case.sizes)
    assert all(map(np.array_equal, outputs, problem.views(1)))
    assert all((out == np.array(0xA5, case.dtype)).all() for out in buffers[0].outputs)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch, which does not compile here."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)


@each_split
@pytest.mark.parametrize(
    "peer", ["torch out=", "torch per output", "torch out=, one tensor", "torch.compile"]
)
@pytest.mark.usefixtures("torch")
def test_every_peer_of_torch_splits_exactly(peer: str, case: Case) -> None:
    check(case, peers_gpu.PEERS[peer])


@each_split
def test_the_peer_of_jax_splits_exactly(case: Case) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    check(case, peers_gpu.PEERS["JAX"])


# These write all outputs as parts of one tensor.
into_one_tensor = pytest.mark.parametrize("peer", ["torch cat", "torch index_select"])


@into_one_tensor
@pytest.mark.parametrize("case", JOINED, ids=lambda case: case.name)
@pytest.mark.usefixtures("torch")
def test_a_peer_that_fills_one_tensor_splits_exactly(peer: str, case: Case) -> None:
    check(case, peers_gpu.PEERS[peer])


@into_one_tensor
@pytest.mark.parametrize("case", SEPARATE, ids=lambda case: case.name)
@pytest.mark.usefixtures("torch")
def test_a_peer_that_fills_one_tensor_refuses_separate_outputs(peer: str, case: Case) -> None:
    with pytest.raises(NotImplementedError, match="outputs are separate"):
        check(case, peers_gpu.PEERS[peer])


class Buffer(NamedTuple):
    """cuda.core's view of memory: here, that of a NumPy array."""

    address: int
    size: int


@pytest.fixture
def cuda_core(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A module that copies on the host; the number of copies of each call."""
    calls = []

    def copy_batch(stream: str, sources: list[Buffer], targets: list[Buffer]) -> None:
        assert stream == "stream 7"
        for source, target in zip(sources, targets, strict=True):
            assert source.size == target.size
            ctypes.memmove(target.address, source.address, source.size)
        calls.append(len(sources))

    core = SimpleNamespace(
        Buffer=SimpleNamespace(from_handle=Buffer),
        Device=lambda number: SimpleNamespace(set_current=lambda: None),
        Stream=SimpleNamespace(from_handle=lambda handle: f"stream {handle}"),
    )
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setitem(sys.modules, "cuda.core.utils", SimpleNamespace(copy_batch=copy_batch))
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(id=0), get_current_stream=lambda: SimpleNamespace(ptr=7)
    )
    monkeypatch.setattr(import_module("cupy"), "cuda", cuda)
    return calls


def test_cuda_core_copies_all_rows_in_one_call(cuda_core: list[int]) -> None:
    case = Case("rows", CASES, (40, 24), "i2", 1, (3, 0, 16, 5))
    source = np.arange(40 * 24, dtype="i2").reshape(40, 24).view(HostArray)
    outputs = [unwritten(case, shape).view(HostArray) for shape in case.output_shapes]
    problem = GpuProblem(case, [BufferSet(source, outputs, source)])
    prepared = peers_gpu.PEERS["cuda.core batch"](problem)
    assert prepared.mode == "queue"
    prepared.call(0)
    assert cuda_core == [3 * 40]
    assert all(map(np.array_equal, prepared.outputs(0), problem.views(0)))


def test_cuda_core_is_not_called_for_too_many_copies(cuda_core: list[int]) -> None:
    case = Case("pixels", CASES, (100_000, 3), "u1", 1, (1, 2))
    with pytest.raises(NotImplementedError, match="200000 copies are more than 100000"):
        peers_gpu.PEERS["cuda.core batch"](GpuProblem(case, []))
    assert cuda_core == []


def test_cuda_core_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(ModuleNotFoundError, match=r"cuda\.core"):
        peers_gpu.PEERS["cuda.core batch"](GpuProblem(SEPARATE[0], []))


@each_split
@pytest.mark.parametrize("peer", ["Triton", "Triton, one tensor"])
def test_the_triton_peer_is_exact_in_its_interpreter(
    peer: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.delitem(sys.modules, "benchmarks.peers_triton", raising=False)
    monkeypatch.setattr(import_module("benchmarks.peers_triton"), "_seconds", lambda call: 0.0)
    check(case, peers_gpu.PEERS[peer])
