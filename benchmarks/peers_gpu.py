"""Other ways to split on a GPU, one function each.

A peer is prepared once on all sets of buffers and then called with the number of a set. It works
on the current stream of CuPy, which is also torch's.
"""

from collections.abc import Callable, Iterable
from math import gcd, prod
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.copies import COPIES
from benchmarks.gpu_problem import GpuPeer, GpuPrepared, GpuProblem
from dmlsplit.backends.find import find_backend


def dmlsplit_bound(problem: GpuProblem) -> GpuPrepared:
    """Compile and bind once, dispatch many times."""
    import cupy

    backend = find_backend(f"cuda:{cupy.cuda.Device().id}")
    program = backend.compile(problem.case.geometry)
    copies = [
        program.bind(entry.array.data.ptr, [out.data.ptr for out in entry.outputs])
        for entry in problem.sets
    ]
    stream = cupy.cuda.get_current_stream().ptr
    return GpuPrepared(lambda i: copies[i](stream), _given(problem), "graph")


def cupy_per_output(problem: GpuProblem) -> GpuPrepared:
    """One `cupy.copyto` per output."""
    import cupy

    pairs = [
        list(zip(entry.outputs, problem.views(index), strict=True))
        for index, entry in enumerate(problem.sets)
    ]

    def call(index: int) -> None:
        for dst, src in pairs[index]:
            cupy.copyto(dst, src)

    return GpuPrepared(call, _given(problem), "graph")


def torch_out(problem: GpuProblem) -> GpuPrepared:
    """`torch.split_with_sizes_copy(out=)`: one launch, but its tables are copied on every call."""
    import torch

    _refuse_strides(problem)
    tensors = _tensors(problem)
    sizes, axis = list(problem.case.sizes), problem.case.axis

    def call(index: int) -> None:
        array, outputs = tensors[index]
        torch.split_with_sizes_copy(array, sizes, axis, out=outputs)

    return GpuPrepared(call, _given(problem), "queue")


def torch_one_tensor(problem: GpuProblem) -> GpuPrepared:
    """`torch.split_with_sizes_copy(out=)` into views of one tensor."""
    return torch_out(problem.in_one_tensor())


def torch_cat(problem: GpuProblem) -> GpuPrepared:
    """`torch.cat` of the pieces into the tensor that joins them; torch packs each piece first."""
    import torch

    outs, case = _joined(problem), problem.case
    tensors = [array for array, _ in _tensors(problem)]

    def call(index: int) -> None:
        pieces = tensors[index].split(list(case.sizes), case.axis)
        torch.cat(_rows(case, pieces), case.joined_at, out=outs[index])

    return GpuPrepared(call, _given(problem), "graph")


def torch_index(problem: GpuProblem) -> GpuPrepared:
    """`torch.index_select` of units that divide all widths, into the tensor that joins them."""
    import torch

    outs, case = _joined(problem), problem.case
    unit = gcd(*case.sizes)
    columns = np.arange(prod(case.shape[case.joined_at : case.axis + 1]) // unit)
    ends = np.cumsum(case.sizes)[:-1] // unit
    pieces = np.split(columns.reshape(-1, case.shape[case.axis] // unit), ends, 1)
    order = torch.as_tensor(np.concatenate([piece.ravel() for piece in pieces])).to(outs[0].device)
    form = prod(case.shape[: case.joined_at]), len(order), -1
    tensors = [array.reshape(form) for array, _ in _tensors(problem)]

    def call(index: int) -> None:
        torch.index_select(tensors[index], 1, order, out=outs[index].view(form))

    return GpuPrepared(call, _given(problem), "graph")


def fsdp2_twice(problem: GpuProblem) -> GpuPrepared:
    """FSDP2's own two copies for a parameter that is sharded along its second dimension.

    The first copies the all-gather output as one piece. The second puts the shards of that side by
    side into one parameter, with one output after the other (_fsdp_collectives.py of PyTorch 2.13).
    """
    import cupy
    import torch

    shards, count, width = _shards(problem)
    inputs = [array for array, _ in _tensors(problem)]
    shape = count, shards, width
    buffers = [
        (torch.empty_like(x), torch.empty(shape, dtype=x.dtype, device=x.device)) for x in inputs
    ]

    def call(index: int) -> None:
        copy_twice(inputs[index], *buffers[index])

    return GpuPrepared(call, lambda index: list(map(cupy.asarray, buffers[index][1])), "queue")


def copy_twice(array: Any, temporary: Any, parameter: Any) -> None:
    """Split ``(shards, count * width)`` into ``parameter``, ``(count, shards, width)``."""
    import torch

    count, shards, width = parameter.shape
    torch.split_with_sizes_copy(array, [count * width], 1, out=[temporary])
    parts = temporary.view(shards * count, width).chunk(shards)
    torch.cat(parts, 1, out=parameter.view(count, shards * width))


def _shards(problem: GpuProblem) -> tuple[int, int, int]:
    """The number of shards and of outputs, and the width of each."""
    case = problem.case
    if len(case.shape) != 2 or case.axis != 1 or case.shape[0] != 8 or len(set(case.sizes)) > 1:
        raise NotImplementedError("not called: it is for a parameter of 8 shards")
    _refuse_strides(problem)
    return case.shape[0], len(case.sizes), case.sizes[0]


def torch_per_output(problem: GpuProblem) -> GpuPrepared:
    """`torch.Tensor.copy_` per output."""
    pairs = [
        list(zip(outputs, array.split(list(problem.case.sizes), problem.case.axis), strict=True))
        for array, outputs in _tensors(problem)
    ]

    def call(index: int) -> None:
        for dst, src in pairs[index]:
            dst.copy_(src)

    return GpuPrepared(call, _given(problem), "graph")


def torch_foreach(problem: GpuProblem) -> GpuPrepared:
    """`torch._foreach_copy_` from views of all pieces."""
    import torch

    axis, sizes = problem.case.axis, list(problem.case.sizes)
    pairs = [(outputs, list(array.split(sizes, axis))) for array, outputs in _tensors(problem)]

    def call(index: int) -> None:
        torch._foreach_copy_(*pairs[index])

    return GpuPrepared(call, _given(problem), "graph")


def torch_compiled(problem: GpuProblem) -> GpuPrepared:
    """`torch.compile` of a split and a contiguous clone of each piece; allocates its outputs."""
    import cupy
    import torch

    _refuse_many(problem, 64)
    case = problem.case

    def split(array: Any) -> list[Any]:
        pieces = array.split(list(case.sizes), case.axis)
        if case.joined_at is not None:
            return [torch.cat(_rows(case, pieces), case.joined_at)]
        return [piece.clone(memory_format=torch.contiguous_format) for piece in pieces]

    torch.compiler.reset()
    fast = torch.compile(split, dynamic=False)
    tensors = _tensors(problem)
    result: dict[int, list[Any]] = {}

    def call(index: int) -> None:
        result.clear()
        result[index] = fast(tensors[index][0])

    def outputs(index: int) -> list[Any]:
        return _pieces(case, [cupy.asarray(each) for each in result[index]])

    return GpuPrepared(call, outputs, "queue")


def jax_jit(problem: GpuProblem) -> GpuPrepared:
    """`jax.jit` of `jax.numpy.split`; allocates its outputs and uses its own stream."""
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import cupy
    import jax

    jax.config.update("jax_enable_x64", True)
    _refuse_strides(problem)
    _refuse_many(problem, 300)
    case = problem.case
    ends = np.cumsum(case.sizes)[:-1]

    def split(array: Any) -> Any:
        pieces = jax.numpy.split(array, ends, case.axis)
        if case.joined_at is None:
            return pieces
        return [jax.numpy.concatenate(_rows(case, pieces), case.joined_at)]

    fast = jax.jit(split)
    arrays = [jax.dlpack.from_dlpack(entry.array) for entry in problem.sets]
    result: dict[int, list[Any]] = {}

    def call(index: int) -> object:
        result.clear()
        result[index] = fast(arrays[index])
        return result[index]

    def outputs(index: int) -> list[Any]:
        made = jax.block_until_ready(result[index])
        return _pieces(case, [cupy.from_dlpack(each) for each in made])

    return GpuPrepared(call, outputs, "wall")


def triton_kernel(problem: GpuProblem) -> GpuPrepared:
    """Our own Triton kernel: one launch, tile shape chosen by timing."""
    from benchmarks.peers_triton import prepare

    return GpuPrepared(prepare(problem), _given(problem), "graph")


def triton_one_tensor(problem: GpuProblem) -> GpuPrepared:
    """The kernel with one address for all outputs, which follow one another.

    FlagGems splits into one storage in this way (github.com/flagos-ai/FlagGems/pull/4456).
    """
    from benchmarks.peers_triton import prepare

    joined = problem.in_one_tensor()
    return GpuPrepared(prepare(joined, has_one_address=True), _given(joined), "graph")


def cub_batched(problem: GpuProblem) -> GpuPrepared:
    """CUB's `DeviceMemcpy::Batched`, one range per row and output, built with nvcc."""
    from benchmarks.peers_cub import prepare

    return GpuPrepared(prepare(problem), _given(problem), "graph")


def npp(problem: GpuProblem) -> GpuPrepared:
    """NPP's copy of packed channels to planes."""
    from benchmarks.peers_nvidia import npp_channels

    return GpuPrepared(npp_channels(problem), _given(problem), "graph")


def cutensor(problem: GpuProblem) -> GpuPrepared:
    """The permutation of cuTENSOR, one call per output."""
    from benchmarks.peers_nvidia import cutensor_permute

    return GpuPrepared(cutensor_permute(problem), _given(problem), "graph")


def cuda_core_batch(problem: GpuProblem) -> GpuPrepared:
    """`cuda.core.utils.copy_batch`: one call of the driver for the copies of all rows."""
    from benchmarks.peers_cuda_core import prepare

    return GpuPrepared(prepare(problem), _given(problem), "queue")


def _given(problem: GpuProblem) -> Callable[[int], list[Any]]:
    return lambda index: problem.sets[index].outputs


def _tensors(problem: GpuProblem) -> list[tuple[Any, list[Any]]]:
    import torch

    return [
        (torch.as_tensor(entry.array), [torch.as_tensor(out) for out in entry.outputs])
        for entry in problem.sets
    ]


def _joined(problem: GpuProblem) -> list[Any]:
    """For each set, the tensor that joins the outputs, with a piece of every row side by side."""
    import torch

    _refuse_strides(problem)
    if problem.case.joined_at is None:
        raise NotImplementedError("not called: it writes one tensor, and the outputs are separate")
    return [_rows(problem.case, [torch.as_tensor(entry.joined)])[0] for entry in problem.sets]


def _rows(case: Case, pieces: Iterable[Any]) -> list[Any]:
    """Pieces with all dimensions flattened into the one in which they are joined."""
    return [piece.reshape(*case.shape[: case.joined_at], -1) for piece in pieces]


def _pieces(case: Case, made: list[Any]) -> list[Any]:
    """The outputs that a library has made, which may be in one tensor."""
    return made if case.joined_at is None else case.parts(*made)


def _refuse_strides(problem: GpuProblem) -> None:
    if problem.case.strides is not None:
        raise NotImplementedError("takes packed inputs only; not called with a strided one")


def _refuse_many(problem: GpuProblem, most: int) -> None:
    count = len(problem.case.sizes)
    if count > most:
        raise NotImplementedError(f"not called: compiling {count} outputs takes minutes")


FAST: dict[str, GpuPeer] = {
    "dmlsplit": dmlsplit_bound,
    **COPIES,
    "torch out=": torch_out,
    "CUB batched": cub_batched,
}
PEERS: dict[str, GpuPeer] = {
    **FAST,
    "torch per output": torch_per_output,
    "torch foreach": torch_foreach,
    "torch out=, one tensor": torch_one_tensor,
    "torch cat": torch_cat,
    "torch index_select": torch_index,
    "FSDP2": fsdp2_twice,
    "CuPy per output": cupy_per_output,
    "cuda.core batch": cuda_core_batch,
    "cuTENSOR": cutensor,
    "NPP": npp,
    "Triton": triton_kernel,
    "Triton, one tensor": triton_one_tensor,
    "JAX": jax_jit,
    "torch.compile": torch_compiled,
}
