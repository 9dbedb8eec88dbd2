"""`dml.split` of PyTorch tensors, which may be differentiated, batched, traced or distributed.

`dmlsplit.execution.in_memory` splits all others. In a graph, a split is an operator, whose kernel
calls `dml.split`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dmlsplit.arrays import torch_adapter, torch_private
from dmlsplit.arrays.acceptance import accept_outputs, check_output_count
from dmlsplit.checks import axis_from_front, integer, integers, is_count, piece_sizes
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution.in_memory import requirements, split_view
from dmlsplit.execution.torch_fast_path import split_small
from dmlsplit.execution.torch_operators import (
    LIBRARY,
    NO_GRADIENT,
    SPLIT,
    SPLIT_OUT,
    check_outputs_by_shape,
    check_sizes_and_axis,
)
from dmlsplit.geometry import packed_byte_strides, piece_shapes


def split(
    array: Tensor, sizes_or_count: Any, axis: Any, out: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """`dml.split` of a tensor."""
    if pieces := split_small(array, sizes_or_count, axis, out):
        return pieces
    # torch.compile must not trace what follows.
    if _is_compiling():
        return _split_tracked(array, sizes_or_count, axis, out)
    is_distributed = array.__class__.__module__ == torch_adapter.DTENSOR_MODULE
    if is_distributed or torch_adapter.why_tracked(array):
        return _split_tracked(array, sizes_or_count, axis, out)
    return _split_untracked(array, sizes_or_count, axis, out)


def _is_compiling() -> bool:
    """Whether torch.compile traces the caller."""
    # A function of its own: after a graph break, torch.compile runs the caller without tracing it,
    # but compiles what the caller calls. Compiled, this function always returns True.
    is_compiling: bool = torch.compiler.is_dynamo_compiling()
    return is_compiling


def _split_untracked(
    array: Tensor, sizes_or_count: Any, axis: Any, out: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """Split a tensor that `split_small` leaves to the engine, and that torch does not track."""
    source = torch_adapter.untracked_view(array, "array")
    return split_view(source, array, sizes_or_count, axis, out)


def _split_tracked(
    array: Tensor, sizes_or_count: Any, axis: Any, out: Sequence[Tensor] | None
) -> list[Tensor]:
    """Split a tensor that torch differentiates, batches, traces or distributes."""
    if array.__class__.__module__ == torch_adapter.DTENSOR_MODULE:
        return _split_distributed(array, sizes_or_count, axis, out)
    if not torch.compiler.is_compiling():
        torch_adapter.refuse_jit_tracing("array")
    torch_adapter.check_layout(array, "array")
    is_traced = _is_traced(array)
    if not is_traced and (array.is_conj() or array.is_neg()):
        if out is not None:
            _refuse_outputs_in(array, *piece_sizes(array.shape, sizes_or_count, axis), out)
        return split(array.resolve_conj().resolve_neg(), sizes_or_count, axis, out)
    dim, sizes = (_unchecked_sizes if is_traced else piece_sizes)(array.shape, sizes_or_count, axis)
    if out is not None:
        _check_tracked_outputs(out, len(sizes), is_traced)
    if torch.onnx.is_in_onnx_export():
        return _split_for_onnx(array, sizes, dim, out)
    if out is None:
        return list(SPLIT(array, sizes, dim))
    SPLIT_OUT(array, sizes, dim, list(out))
    return list(out)


def _refuse_outputs_in(
    lazy: Tensor, axis: int, sizes: tuple[int, ...], out: Sequence[Tensor]
) -> None:
    """Refuse outputs in the memory of a lazily conjugated or negated view, which is copied."""
    memory = lazy.detach().conj() if lazy.is_conj() else lazy.detach()
    memory = torch_private.neg_view(memory) if memory.is_neg() else memory
    source = torch_adapter.untracked_view(memory, "array")
    accept_outputs(out, source, requirements(source, axis, sizes))


def _check_tracked_outputs(out: Sequence[Tensor], count: int, is_traced: bool) -> None:
    """Refuse outputs that are not tensors, or through which no gradient can pass."""
    check_output_count(out, count)
    if not is_traced:
        is_inside = torch_private.has_transforms()
        raise InvalidArgumentError(f"{NO_GRADIENT}{'' if is_inside else ', or torch.no_grad()'}")
    for index, tensor in enumerate(out):
        if tensor.__class__.__module__ not in torch_adapter.TORCH_MODULES:
            raise InvalidArgumentError(
                f"out[{index}] has the type {tensor.__class__.__qualname__}; it must be a "
                "torch.Tensor or a Parameter"
            )


def _split_for_onnx(
    array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor] | None
) -> list[Tensor]:
    """Split by torch's own operators, the only ones that torch.onnx knows."""
    # A registered decomposition would help, but would make torch.compile fail if the variable CI is
    # set.
    pieces = torch.split_with_sizes_copy(array, sizes, check_sizes_and_axis(array, sizes, dim))
    if out is None:
        return list(pieces)
    check_outputs_by_shape(array, sizes, dim, out)  # only the checks
    return [tensor.copy_(piece) for tensor, piece in zip(out, pieces, strict=True)]


def _split_distributed(array: Any, sizes_or_count: Any, axis: Any, out: object) -> list[Tensor]:
    """Split a DTensor on each device separately; nothing is sent between devices."""
    from torch.distributed.tensor import DTensor, Shard

    sizes_of = _unchecked_sizes if torch.compiler.is_compiling() else piece_sizes
    dim, sizes = sizes_of(array.shape, sizes_or_count, axis)
    for placement in array.placements:
        if not (placement.is_replicate() or (type(placement) is Shard and placement.dim != dim)):
            raise InvalidArgumentError(
                f"array is a DTensor placed {array.placements}; each device must hold all of axis "
                f"{dim}, with final values. Fix: redistribute(), which sends data, or to_local()"
            )
    if out is not None:
        raise InvalidArgumentError(
            "out is given for a DTensor; it must be None. Fix: split to_local() into local tensors"
        )
    shapes = piece_shapes(tuple(array.shape), dim, sizes)
    return [
        DTensor.from_local(
            piece, array.device_mesh, array.placements,
            run_check=False, shape=torch.Size(shape), stride=packed_byte_strides(shape, 1),
        )
        for piece, shape in zip(split(array.to_local(), sizes, dim), shapes, strict=True)
    ]  # fmt: skip


def _is_traced(array: Tensor) -> bool:
    """Whether a compiler, or a mode that sees every operator, must see this split."""
    if torch.compiler.is_compiling() or array.is_meta:
        return True
    if torch_private.dispatch_modes() or torch_private.is_pre_dispatch():
        return True
    return type(array) is not Tensor and type(array) is not torch.nn.Parameter


def _unchecked_sizes(
    shape: tuple[int, ...], sizes_or_count: Any, axis: Any
) -> tuple[int, Sequence[int]]:
    """The axis and the sizes. They may be symbolic, so the operator checks their sum."""
    dim = axis_from_front(axis, len(shape))
    if is_count(sizes_or_count):
        count = integer("count", sizes_or_count)
        if not 1 <= count < 2**31:
            if torch.compiler.is_compiling():
                return dim, [-1]  # which the operator refuses, after the graph
            raise InvalidArgumentError(f"count is {count}; it must be at least 1, and below 2^31")
        return dim, [shape[dim] // count] * count
    if isinstance(sizes_or_count, (list, tuple)) and torch.SymInt in map(type, sizes_or_count):
        return dim, sizes_or_count
    return dim, integers("sizes", sizes_or_count)


def _kernel(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    """The kernel of ``split``. torch has handled gradients before it calls one."""
    values = array.detach()
    return split_small(values, sizes, dim, None) or _split_untracked(values, sizes, dim)


def _kernel_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    """The kernel of ``split_out``."""
    values = array.detach()
    outputs = [tensor.detach() for tensor in out]
    if not split_small(values, sizes, dim, outputs):
        _split_untracked(values, sizes, dim, outputs)


# Kernels are not compiled, because dml.split would then call the operator again, and recurse.
LIBRARY.impl("split", torch_private.not_compiled(_kernel), "CompositeExplicitAutograd")
LIBRARY.impl("split_out", torch_private.not_compiled(_kernel_into), "CompositeExplicitAutograd")
