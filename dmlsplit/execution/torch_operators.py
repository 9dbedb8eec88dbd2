"""The operators of a split in a graph of PyTorch: their gradients, transforms and shapes.

``dmlsplit::split(array, sizes, dim)`` and ``dmlsplit::split_out(array, sizes, dim, out)`` are
defined here. `dmlsplit.execution.torch` has their kernels, which call `dml.split`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dmlsplit.arrays import ArrayView, torch_private
from dmlsplit.arrays.acceptance import check_output_arrays
from dmlsplit.checks import axis_from_front
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution.in_memory import requirements
from dmlsplit.geometry import piece_shapes

NO_GRADIENT = (
    "out is given, but array requires grad, has a tangent or is inside a transform of torch.func, "
    "or out requires grad; no gradient can pass through out. Fix: out=None"
)


class _Split(torch.autograd.Function):  # type: ignore[misc]
    """A split with gradients of any order."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
        """The pieces. No tensor is kept for `backward`, because a split is linear."""
        ctx.sizes = sizes
        ctx.shape = array.shape
        ctx.dim = axis_from_front(dim, array.dim())
        ctx.set_materialize_grads(False)
        with torch_private.below_autograd():
            return tuple(SPLIT(array, sizes, dim))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        """The gradients of the pieces, joined, with zeros for pieces that were not used."""
        first = next((gradient for gradient in gradients if gradient is not None), None)
        if first is None:
            return None, None, None
        pairs = zip(gradients, piece_shapes(ctx.shape, ctx.dim, ctx.sizes), strict=True)
        zero = first.new_zeros(())
        parts = [zero.expand(shape) if gradient is None else gradient for gradient, shape in pairs]
        return torch.cat(parts, ctx.dim), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, ...]:
        """The pieces of the tangent."""
        return tuple(torch.split_with_sizes_copy(tangent, ctx.sizes, ctx.dim))


def _split_with_derivatives(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    """Split with derivatives. torch calls this before the kernel of the operator."""
    if _is_transformed():
        # Every transform, even a nested one, supports torch's own operator.
        return list(torch.split_with_sizes_copy(array, sizes, dim))
    return list(_Split.apply(array, sizes, dim))


def _tracked_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    """Split into outputs, through which no gradient can pass; torch calls it before the kernel."""
    has_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (array, *out))
    if has_grad or _is_transformed():
        raise _RefusedError(NO_GRADIENT)
    for index, tensor in enumerate(out):
        if tensor.is_conj() or tensor.is_neg():
            raise _RefusedError(
                f"out[{index}] is a lazily conjugated or negated view; its memory must hold its "
                "values. Fix: resolve_conj().resolve_neg()"
            )
    with torch_private.below_autograd():
        SPLIT_OUT(array, sizes, dim, out)


def _is_transformed() -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, is active."""
    return torch_private.is_forward_mode() or bool(torch_private.has_transforms())


class _RefusedError(InvalidArgumentError, NotImplementedError):
    """A refusal in a graph. torch.compile then leaves the graph, and the kernel raises an error."""


def _fake(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    """The pieces of a tensor without memory: their shapes."""
    # Not earlier, because importing Inductor takes seconds. It calls `_fake` before it decomposes.
    for table in torch_private.inductor_decompositions():
        table.setdefault(SPLIT, _decomposed)
    dim = check_sizes_and_axis(array, sizes, dim)
    return [array.new_empty(shape) for shape in piece_shapes(array.shape, dim, sizes)]


def check_outputs_by_shape(
    array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]
) -> None:
    """Check the arguments of a split with `out`, whose tensors may have no memory."""
    dim = check_sizes_and_axis(array, sizes, dim)
    storages = list(map(torch_private.storage_of, (array, *out)))
    # Equal storages get one address; others are so far apart that they cannot overlap.
    starts = [(1 + storages.index(storage)) << 44 for storage in storages]
    source, *outputs = map(_fake_view, (array, *out), starts)
    try:
        required = requirements(source, dim, _example_values(sizes))
        check_output_arrays(outputs, source, required)
    except InvalidArgumentError as error:
        raise _RefusedError(str(error)) from None


def _fake_view(tensor: Tensor, start: int) -> ArrayView:
    """A view of a tensor without memory, as if its storage began at address `start`."""
    width = tensor.element_size()
    (offset, *strides) = _example_values((tensor.storage_offset(), *tensor.stride()))
    steps = tuple(stride * width for stride in strides)
    address = start + offset * width
    shape = _example_values(tensor.shape)
    typestr = str(tensor.dtype)
    device = str(tensor.device)
    return ArrayView(tensor, address, shape, steps, typestr, width, device, False)


def _example_values(numbers: Sequence[int]) -> tuple[int, ...]:
    """Numbers of which some may be symbolic, as ints."""
    return tuple(map(torch_private.example_value, numbers))


def check_sizes_and_axis(array: Tensor, sizes: Sequence[int], dim: int) -> int:
    """The axis from the front; an InvalidArgumentError if the sizes do not add up to its size.

    The sizes may be symbolic. No size may be negative.
    """
    dim = axis_from_front(dim, array.dim())
    axis_size = array.shape[dim]
    check = partial(torch_private.check_with, _RefusedError)
    for size in sizes:
        check(size >= 0, lambda: f"sizes are {sizes}; none may be negative")
    check(
        sum(sizes) == axis_size,
        lambda: f"sizes are {sizes}; they must add up to the axis, of size {axis_size}",
    )
    return dim


def _decomposed(array: Tensor, sizes: Sequence[int], dim: int) -> Any:
    """Fast path: the split in Inductor's code, which on the CPU is fused with what uses it.

    A compiled graph takes 1.0 to 1.4 times the time of one with `torch.split`, else 2 to 5 times.
    """
    if array.device.type == "cpu":
        return torch.ops.aten.split_with_sizes_copy.default(array, sizes, dim)
    torch_private.keep_in_inductor(SPLIT)
    return NotImplemented


LIBRARY = torch.library.Library("dmlsplit", "DEF")
for schema in (
    "split(Tensor array, SymInt[] sizes, int dim) -> Tensor[]",
    "split_out(Tensor array, SymInt[] sizes, int dim, Tensor(a!)[] out) -> ()",
):
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
SPLIT = torch.ops.dmlsplit.split.default
SPLIT_OUT = torch.ops.dmlsplit.split_out.default
LIBRARY.impl("split", _split_with_derivatives, "Autograd")
LIBRARY.impl("split", torch.split_with_sizes_copy, "FuncTorchBatched")
for key in ("Autograd", "FuncTorchBatched"):
    LIBRARY.impl("split_out", _tracked_into, key)
torch.library.register_fake("dmlsplit::split", _fake, lib=LIBRARY)
torch.library.register_fake("dmlsplit::split_out", check_outputs_by_shape, lib=LIBRARY)
