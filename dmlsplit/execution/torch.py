"""`dml.split` of PyTorch tensors, which may be differentiated, batched, traced or distributed.

`dmlsplit.execution.in_memory` splits all others. In a graph, a split is
``dmlsplit::split(array, sizes, dim)`` or, with `out`,
``dmlsplit::split_out(array, sizes, dim, out)``. These operators call `dml.split`.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from operator import add, attrgetter
from typing import Any, NamedTuple, SupportsIndex

import torch
from torch import Tensor, UntypedStorage

from dmlsplit.arrays import ArrayView, torch_private, view
from dmlsplit.arrays.acceptance import check_output_count, check_outputs
from dmlsplit.arrays.adapter import Shape
from dmlsplit.arrays.array_view import byte_bounds
from dmlsplit.arrays.overlap import are_disjoint
from dmlsplit.arrays.torch_adapter import (
    DISTRIBUTED,
    TORCH_MODULES,
    check_layout,
    element_type,
    why_tracked,
)
from dmlsplit.backends import Program
from dmlsplit.checks import (
    are_plain_ints,
    axis_from_front,
    integer_argument,
    integers,
    is_count,
    piece_sizes,
)
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.execution.in_memory import (
    Sizes,
    prepared_split,
    requirements,
    split_view,
)
from dmlsplit.geometry import packed_byte_strides, piece_shapes

# Up to SMALL_BYTES, torch's own operator is faster than the engine, because it allocates outputs
# without Python. The exception is many runs of two or more elements but less than LONG_RUN bytes:
# torch copies them one element at a time, 6 runs of one element in the time of one such run.
SMALL_BYTES, LONG_RUN, RUN_COST, MAX_COST = 8 << 20, 32, 6, 48 << 10

_NO_GRADIENT = (
    "out is given, but array requires grad, has a tangent or is inside a transform of torch.func, "
    "or out requires grad; no gradient can pass through out. Fix: out=None, or use torch.no_grad()"
)


def split(
    array: Tensor, sizes_or_count: Sizes, axis: SupportsIndex, out: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """`dml.split` of a tensor."""
    # This is first, because torch.compile must not trace what follows.
    if _is_compiling() or array.__class__.__module__ == DISTRIBUTED:
        return _split_tracked(array, sizes_or_count, axis, out)
    if pieces := _split_small(array, sizes_or_count, axis, out):
        return pieces
    if why_tracked(array):
        return _split_tracked(array, sizes_or_count, axis, out)
    return split_view(view(array, "array"), array, sizes_or_count, axis, out)


def _is_compiling() -> bool:
    """Whether torch.compile traces the caller."""
    # A function of its own: after a graph break, torch.compile runs the caller without tracing it,
    # but compiles what the caller calls. Compiled, this function always returns True.
    return bool(torch.compiler.is_dynamo_compiling())


def _split_small(
    array: Tensor, sizes_or_count: Any, axis: Any, out: Sequence[Tensor] | None
) -> list[Tensor] | None:
    """Fast path: the pieces of a small tensor on the CPU, or `out` with them, by torch's operator.

    None for any other tensor, where a compiler or a mode must see the split, and if an output is
    not exactly as required. Three pieces of 1 KB take 4 us instead of 12, outputs 5 instead of 14.
    """
    if type(array) not in torch_private.PLAIN_TYPES or not array.is_cpu:
        return None
    if array.is_nested or array.is_quantized:
        return None
    try:
        if not array.data_ptr() or torch_private.dispatch_modes() or torch_private.jit_trace():
            return None
        if type(sizes_or_count) is list:
            sizes_or_count = tuple(sizes_or_count)
        if not are_plain_ints(axis, sizes_or_count):
            axis, sizes_or_count = piece_sizes(tuple(array.shape), sizes_or_count, axis)
        if out is not None:
            return _fill(out, array, axis, sizes_or_count)
        axis, sizes = _sizes_if_small(array.shape, array.dtype, axis, sizes_or_count)
        # This operator supports gradients.
        return list(torch.split_with_sizes_copy(array, sizes, axis)) if sizes else None
    except RuntimeError:  # Sparse, inside a transform, or no memory: the engine's path says what.
        return None


@lru_cache(maxsize=1024)
def _sizes_if_small(
    shape: tuple[int, ...], dtype: Any, axis: int, sizes_or_count: int | tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """The axis, and the piece sizes if torch copies them faster than the engine, else ()."""
    shape = tuple(shape)
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    element_type(dtype)  # Refuses elements that are not whole bytes.
    rows, inner, width = prod(shape[:axis]), prod(shape[axis + 1 :]), dtype.itemsize
    cost = rows * len(sizes) * RUN_COST
    if cost > MAX_COST:
        short = [size for size in sizes if size * inner * width < LONG_RUN]
        cost = rows * sum(1 if size * inner == 1 else RUN_COST for size in short)
    is_small = cost <= MAX_COST and rows * shape[axis] * inner * width < SMALL_BYTES
    return axis, sizes if is_small else ()


def _fill(out: Any, array: Tensor, axis: int, sizes_or_count: Any) -> list[Tensor] | None:
    """Outputs with the pieces, if each is packed and the whole of a memory of its own; else None.

    Each question is asked of all outputs at once, which takes a third of the time of `view`.
    """
    if type(out) not in (list, tuple) or not torch_private.PLAIN_TYPES.issuperset(map(type, out)):
        return None
    if (
        array.requires_grad
        or torch_private.is_forward_mode()
        or any(map(Tensor.is_neg, (array, *out)))
    ):
        return None
    required = _required(array.shape, array.stride(), array.dtype, axis, sizes_or_count)
    if list(map(_fields_of, out)) != required.fields or not all(map(Tensor.is_contiguous, out)):
        return None
    memory = [array.untyped_storage(), *map(Tensor.untyped_storage, out)]
    starts, sizes = [
        list(map(of, memory)) for of in (UntypedStorage.data_ptr, UntypedStorage.nbytes)
    ]
    is_held = sizes[0] >= array.storage_offset() * array.element_size() + required.end
    if not is_held or sizes[1:] != required.sizes:
        return None
    if not are_disjoint(starts, map(add, starts, sizes)):
        return None
    required.program.copy(array.data_ptr(), starts[1:])
    torch_private.increment_version(out)
    return list(out)


class _Required(NamedTuple):
    fields: list[tuple[Any, ...]]  # what `_fields_of` are of outputs
    sizes: list[int]  # in bytes
    end: int  # of the input's last element, in bytes from its first one
    program: Program


_fields_of = attrgetter("dtype", "shape", "is_cpu", "requires_grad")


@lru_cache(maxsize=64)
def _required(shape: Shape, steps: Shape, dtype: Any, axis: int, sizes_or_count: Any) -> _Required:
    axis, sizes = piece_sizes(tuple(shape), sizes_or_count, axis)
    element_type(dtype)  # Refuses elements that are not whole bytes.
    pieces, width = list(map(torch.Size, piece_shapes(tuple(shape), axis, sizes))), dtype.itemsize
    # Elements of complex tensors may be conjugated lazily, and then no field is equal.
    fields = [(dtype, piece, not dtype.is_complex, False) for piece in pieces]
    layout = "cpu", tuple(shape), tuple([step * width for step in steps]), width
    program, end = prepared_split(layout, axis, sizes).program, byte_bounds(*layout[1:])[1]
    return _Required(fields, [piece.numel() * width for piece in pieces], end, program)


def _split_tracked(
    array: Tensor, sizes_or_count: Sizes, axis: SupportsIndex, out: Sequence[Tensor] | None
) -> list[Tensor]:
    """Split a tensor that torch differentiates, batches, traces or distributes."""
    if array.__class__.__module__ == DISTRIBUTED:
        return _split_distributed(array, sizes_or_count, axis, out)
    check_layout(array, "array")
    is_traced = _is_traced(array)
    if not is_traced and (array.is_conj() or array.is_neg()):
        return split(array.resolve_conj().resolve_neg(), sizes_or_count, axis, out)
    dim, sizes = (_unchecked_sizes if is_traced else piece_sizes)(array.shape, sizes_or_count, axis)
    if out is not None:
        check_output_count(out, len(sizes))
        if not is_traced:
            raise InvalidArgumentError(_NO_GRADIENT)
        for index, tensor in enumerate(out):
            if tensor.__class__.__module__ not in TORCH_MODULES:
                name = f"out[{index}] is a {tensor.__class__.__qualname__}"
                raise InvalidArgumentError(f"{name}; it must be a torch.Tensor or a Parameter")
    if torch.onnx.is_in_onnx_export():
        return _split_for_onnx(array, sizes, dim, out)
    if out is None:
        return list(_SPLIT(array, sizes, dim))
    _SPLIT_OUT(array, sizes, dim, list(out))
    return list(out)


def _split_for_onnx(
    array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor] | None
) -> list[Tensor]:
    """Split by torch's own operators, the only ones that torch.onnx knows."""
    # A registered decomposition would help, but would make torch.compile fail if the variable CI is
    # set.
    pieces = torch.split_with_sizes_copy(array, sizes, _checked_axis(array, sizes, dim))
    if out is None:
        return list(pieces)
    _fake_into(array, sizes, dim, out)  # only the checks
    return [tensor.copy_(piece) for tensor, piece in zip(out, pieces, strict=True)]


def _split_distributed(
    array: Any, sizes_or_count: Sizes, axis: SupportsIndex, out: object
) -> list[Tensor]:
    """Split a DTensor on each device separately; nothing is sent between devices."""
    from torch.distributed.tensor import DTensor, Shard

    check = _unchecked_sizes if torch.compiler.is_compiling() else piece_sizes
    dim, sizes = check(array.shape, sizes_or_count, axis)
    for placed in array.placements:
        if not (placed.is_replicate() or (type(placed) is Shard and placed.dim != dim)):
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
    if torch.compiler.is_compiling() or torch_private.dispatch_modes() or array.is_meta:
        return True
    return type(array) is not Tensor and type(array) is not torch.nn.Parameter


def _is_transformed() -> bool:
    """Whether a transform of torch.func, or forward-mode differentiation, is active."""
    return torch_private.is_forward_mode() or bool(torch_private.has_transforms())


def _unchecked_sizes(
    shape: tuple[int, ...], sizes_or_count: Any, axis: Any
) -> tuple[int, Sequence[int]]:
    """The axis and the sizes. They may be symbolic, so the operator checks their sum."""
    dim = axis_from_front(axis, len(shape))
    if is_count(sizes_or_count):
        count = integer_argument("count", sizes_or_count)
        return dim, [shape[dim] // max(count, 1)] * count
    if isinstance(sizes_or_count, (list, tuple)) and torch.SymInt in map(type, sizes_or_count):
        return dim, sizes_or_count
    return dim, integers("sizes", sizes_or_count)


class _Split(torch.autograd.Function):  # type: ignore[misc]
    """A split with gradients of any order."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
        # No tensor is kept, because a split is linear.
        ctx.sizes, ctx.shape, ctx.dim = sizes, array.shape, axis_from_front(dim, array.dim())
        ctx.set_materialize_grads(False)
        with torch_private.below_autograd():
            return tuple(_SPLIT(array, sizes, dim))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        # The gradients of the pieces, joined, with zeros for those that were not used.
        first = next((gradient for gradient in gradients if gradient is not None), None)
        if first is None:
            return None, None, None
        pairs = zip(gradients, piece_shapes(ctx.shape, ctx.dim, ctx.sizes), strict=True)
        parts = [first.new_zeros(()).expand(shape) if g is None else g for g, shape in pairs]
        return torch.cat(parts, ctx.dim), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, ...]:
        return tuple(torch.split_with_sizes_copy(tangent, ctx.sizes, ctx.dim))


def _split_with_derivatives(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    """Split with derivatives. torch calls this before the kernel of the operator."""
    if _is_transformed():
        # Every transform, even a nested one, supports torch's own operator.
        return list(torch.split_with_sizes_copy(array, sizes, dim))
    return list(_Split.apply(array, sizes, dim))


def _tracked_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    has_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (array, *out))
    if has_grad or _is_transformed():
        raise _RefusedError(_NO_GRADIENT)
    for index, tensor in enumerate(out):
        if tensor.is_conj() or tensor.is_neg():
            raise _RefusedError(f"out[{index}] is a lazily conjugated or negated view")
    with torch_private.below_autograd():
        _SPLIT_OUT(array, sizes, dim, out)


def _kernel(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    # torch has handled gradients before it calls a kernel.
    return split(array.detach(), sizes, dim)


def _kernel_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    split(array.detach(), sizes, dim, out=[tensor.detach() for tensor in out])


class _RefusedError(InvalidArgumentError, NotImplementedError):
    """A refusal in a graph. torch.compile then leaves the graph, and the kernel raises an error."""


def _fake(array: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    # Not earlier, because importing Inductor takes seconds. It calls `_fake` before it decomposes.
    for table in torch_private.inductor_decompositions():
        table.setdefault(_SPLIT, _decomposed)
    dim = _checked_axis(array, sizes, dim)
    return [array.new_empty(shape) for shape in piece_shapes(array.shape, dim, sizes)]


def _fake_into(array: Tensor, sizes: Sequence[int], dim: int, out: Sequence[Tensor]) -> None:
    dim = _checked_axis(array, sizes, dim)
    storages = list(map(torch_private.storage_of, (array, *out)))
    # Equal storages get one address; others are so far apart that they cannot overlap.
    starts = [(1 + storages.index(storage)) << 44 for storage in storages]
    source, *outputs = map(_fake_view, (array, *out), starts)
    try:
        required = requirements(source.shape, source[4:7], dim, _example_values(sizes))
        check_outputs(outputs, source, required)
    except InvalidArgumentError as error:
        raise _RefusedError(str(error)) from None


def _fake_view(tensor: Tensor, start: int) -> ArrayView:
    """A view of a tensor without memory, as if its storage began at address `start`."""
    width = tensor.element_size()
    (offset, *strides) = _example_values((tensor.storage_offset(), *tensor.stride()))
    steps = tuple(stride * width for stride in strides)
    address, shape = start + offset * width, _example_values(tensor.shape)
    typestr, device = str(tensor.dtype), str(tensor.device)
    return ArrayView(tensor, address, shape, steps, typestr, width, device, False)


def _example_values(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(torch_private.example_value, numbers))


def _checked_axis(array: Tensor, sizes: Sequence[int], dim: int) -> int:
    """The axis from the front. The sizes, which may be symbolic, must add up to its size."""
    dim = axis_from_front(dim, array.dim())
    axis_size, check = array.shape[dim], partial(torch_private.check_with, _RefusedError)
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
    torch_private.keep_in_inductor(_SPLIT)
    return NotImplemented


_LIBRARY = torch.library.Library("dmlsplit", "DEF")
for schema in (
    "split(Tensor array, SymInt[] sizes, int dim) -> Tensor[]",
    "split_out(Tensor array, SymInt[] sizes, int dim, Tensor(a!)[] out) -> ()",
):
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
_SPLIT, _SPLIT_OUT = torch.ops.dmlsplit.split.default, torch.ops.dmlsplit.split_out.default
# Kernels are not compiled, because dml.split would then call the operator again, and recurse.
_LIBRARY.impl("split", torch_private.not_compiled(_kernel), "CompositeExplicitAutograd")
_LIBRARY.impl("split", _split_with_derivatives, "Autograd")
_LIBRARY.impl("split", torch.split_with_sizes_copy, "FuncTorchBatched")
_LIBRARY.impl("split_out", torch_private.not_compiled(_kernel_into), "CompositeExplicitAutograd")
for key in ("Autograd", "FuncTorchBatched"):
    _LIBRARY.impl("split_out", _tracked_into, key)
torch.library.register_fake("dmlsplit::split", _fake, lib=_LIBRARY)
torch.library.register_fake("dmlsplit::split_out", _fake_into, lib=_LIBRARY)
