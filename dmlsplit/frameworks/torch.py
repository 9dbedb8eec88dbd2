"""`dml.split` of PyTorch's tensors that are differentiated, batched or traced.

Other tensors do not come here. In a graph a split is the operator ``dmlsplit::split(array, sizes,
dim)`` or, into tensors of the caller, ``dmlsplit::split_out(array, sizes, dim, out)``. What they do
is what `dml.split` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from dmlsplit import eager
from dmlsplit.checks import axis_from_front, piece_sizes
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import piece_shapes


def split(
    array: Tensor, sizes_or_count: eager.Sizes, axis: SupportsIndex, out: Sequence[Tensor] | None
) -> list[Tensor]:
    """Split a tensor that torch tracks. `dmlsplit.split` calls this."""
    is_traced = _is_traced(array)
    dim, sizes = (_unchecked if is_traced else piece_sizes)(array.shape, sizes_or_count, axis)
    if out is None:
        return list(_way(is_traced)(array, sizes, dim))
    if not is_traced or (array.requires_grad and torch.is_grad_enabled()):
        raise InvalidArgumentError(
            "out is given, but array requires grad, has a tangent or is inside a transform of "
            "torch.func, and what is written to out has no gradient. Fix: leave out as None, or "
            "use torch.no_grad()"
        )
    _into_in_graph(array, sizes, dim, list(out))
    return list(out)


def _way(is_traced: bool) -> Any:
    """Return what splits: ``way(array, sizes, dim)``."""
    if is_traced:
        return _in_graph
    return (_Transformed if torch._C._are_functorch_transforms_active() else _Split).apply


def _is_traced(array: Tensor) -> bool:
    """Whether a compiler, or a mode that sees every operator, must see this one as well."""
    is_plain = type(array) is Tensor or type(array) is torch.nn.Parameter
    return torch.compiler.is_compiling() or not is_plain or torch._C._len_torch_dispatch_stack() > 0


def _unchecked(shape: tuple[int, ...], sizes_or_count: Any, axis: Any) -> tuple[int, Sequence[int]]:
    """Return the axis and the sizes, which the operator checks: they may be numbers of a graph."""
    if isinstance(sizes_or_count, Iterable):
        return axis, list(sizes_or_count)
    return axis, [shape[axis] // max(sizes_or_count, 1)] * sizes_or_count


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep what gradients are put together by. No tensor is kept: a split is linear."""
    array, ctx.sizes, dim = inputs
    ctx.shape, ctx.dim = array.shape, axis_from_front(dim, array.dim())
    ctx.set_materialize_grads(False)


def _joined(ctx: Any, gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, None, None]:
    """Return the gradient of the input: those of the pieces, zeros where a piece was not used."""
    known = next((gradient for gradient in gradients if gradient is not None), None)
    if known is None:
        return None, None, None
    pairs = zip(gradients, piece_shapes(ctx.shape, ctx.dim, ctx.sizes), strict=True)
    parts = [known.new_zeros(()).expand(shape) if one is None else one for one, shape in pairs]
    return torch.cat(parts, ctx.dim), None, None


class _Split(torch.autograd.Function):  # type: ignore[misc]
    """A split outside graphs, for gradients of any order: no operator, whose calls cost more."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
        _remember(ctx, (array, sizes, dim), None)
        return tuple(eager.split(array, sizes, dim))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        return _joined(ctx, gradients)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, ...]:
        # Torch's own functions, which every transform knows: also those that know no others.
        pieces = tangent.split(ctx.sizes, ctx.dim)
        return tuple(piece.clone(memory_format=torch.contiguous_format) for piece in pieces)


class _Transformed(torch.autograd.Function):  # type: ignore[misc]
    """The same in the form that torch.func asks for, which takes twice as long to call."""

    @staticmethod
    def forward(array: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
        return tuple(eager.split(array, sizes, dim))

    setup_context = staticmethod(_remember)
    backward = staticmethod(_Split.backward)
    jvp = staticmethod(_Split.jvp)

    @staticmethod
    def vmap(info: Any, in_dims: Any, array: Tensor, sizes: Any, dim: int) -> tuple[Any, Any]:
        pieces = _Transformed.apply(array.movedim(in_dims[0], 0), sizes, dim + 1)
        return pieces, (0,) * len(pieces)


def _kernel(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    # torch has seen to gradients before it calls a kernel.
    return eager.split(array.detach(), sizes, dim)


def _kernel_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    eager.split(array.detach(), sizes, dim, out=[tensor.detach() for tensor in out])


def _fake(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    at = axis_from_front(dim, array.dim())
    _check_sizes(array.shape[at], sizes)
    return [array.new_empty(shape) for shape in piece_shapes(array.shape, at, sizes)]


def _fake_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    at = axis_from_front(dim, array.dim())
    _check_sizes(array.shape[at], sizes)
    if len(out) != len(sizes):
        raise InvalidArgumentError(f"out is a list of {len(out)}; it must be one of {len(sizes)}")


def _check_sizes(whole: int, sizes: Sequence[int]) -> None:
    for size in sizes:
        torch._check_with(
            InvalidArgumentError, size >= 0, lambda: f"sizes are {sizes}; none may be negative"
        )
    torch._check_with(
        InvalidArgumentError,
        sum(sizes) == whole,
        lambda: f"sizes are {sizes}; they must add up to the {whole} of the axis",
    )


def _batched(
    info: Any, in_dims: Any, array: Tensor, sizes: Any, dim: int
) -> tuple[list[Tensor], list[int]]:
    # An axis that counts from the end stays where it is.
    pieces = _in_graph(array.movedim(in_dims[0], 0), sizes, dim if dim < 0 else dim + 1)
    return pieces, [0] * len(pieces)


_in_graph = torch.library.custom_op(
    "dmlsplit::split",
    _kernel,
    mutates_args=(),
    schema="(Tensor array, SymInt[] sizes, int dim) -> Tensor[]",
)
_in_graph.register_fake(_fake)
_in_graph.register_autograd(_joined, setup_context=_remember)
_in_graph.register_vmap(_batched)
_into_in_graph = torch.library.custom_op(
    "dmlsplit::split_out",
    _kernel_into,
    mutates_args=("out",),
    schema="(Tensor array, SymInt[] sizes, int dim, Tensor(a!)[] out) -> ()",
)
_into_in_graph.register_fake(_fake_into)
