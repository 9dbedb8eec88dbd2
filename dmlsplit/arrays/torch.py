"""PyTorch's tensors, on the CPU and on CUDA devices."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import Adapter, Made, Shape, allocate, not_shared, type_name
from dmlsplit.arrays.array_view import ArrayView, device_name, device_number, type_string, view_of
from dmlsplit.arrays.packing import (
    MOST_BYTES,
    MOST_RUNS,
    OUTPUT_BYTES,
    SMALL_OUTPUTS,
    Cut,
    Packing,
)
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.checks import are_ints, piece_sizes
from dmlsplit.errors import InvalidArgumentError

_OUTSIDE = "use dmlsplit.split without out, or a tensor that has memory"
# Modules of the tensor classes that can be split: plain tensors, and those of torch's tracers.
_TRACED = ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")
HOMES = frozenset(("torch", "torch.nn.parameter", *_TRACED))
DISTRIBUTED = "torch.distributed.tensor"  # the module of DTensor


class TrackedError(InvalidArgumentError):
    """A tensor that torch differentiates, batches or traces; only `dmlsplit.split` accepts it."""


class _Torch(Adapter):
    repeats = True

    def view(self, tensor: Any, name: str) -> ArrayView:
        _check_memory(tensor, name)
        if tensor.is_conj() or tensor.is_neg():
            what = "is a lazily conjugated or negated view: its memory does not hold its values"
            raise _tracked(name, what, "resolve_conj().resolve_neg()")
        width = tensor.element_size()
        try:
            address, shape, steps = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
            if not address and tensor.numel():
                raise RuntimeError("it has no memory")
        except RuntimeError as error:
            if _private().is_transformed(tensor):
                raise _tracked(name, "is inside a transform of torch.func", _OUTSIDE) from None
            raise not_shared(tensor, name, error) from None
        strides, kind = _in_bytes(steps, width), _type_string(tensor.dtype)
        device = device_name(tensor.get_device()) if tensor.is_cuda else "cpu"
        return view_of(ArrayView, (tensor, address, shape, strides, kind, width, device, False))

    def empty(self, like: ArrayView, wanted: Packing, stream: Stream | None = None) -> Made:
        if stream is not None and like.device != "cpu":
            with _torch().cuda.stream(_external(stream, device_number(like.device))):
                return self.empty(like, wanted)
        # Each has memory of its own, because torch makes a tensor faster than a view of a block.
        kind = like.owner.dtype if wanted.dtype is None else _dtype(wanted.dtype)
        empty, device = _torch().empty, like.owner.device

        def make(shapes: Iterable[Shape], kind: Any) -> list[Any]:
            return [empty(shape, dtype=kind, device=device) for shape in shapes]

        made = allocate(like, make, wanted.shapes, kind)
        return made, [tensor.data_ptr() for tensor in made]

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        width = packed.element_size()
        return packed.as_strided(shape, [step // width for step in strides])

    def packed_addresses(
        self, like: Any, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]
    ) -> list[int] | None:
        private = _private()
        # `like` has memory, and no mode is active.
        if not like.is_cpu or private.is_forward():
            return None
        plain, dtype = private.PLAIN, like.dtype
        may_be_conj, addresses = dtype.is_complex, []
        try:
            for index, array in enumerate(arrays):  # takes less time than zip(strict=True)
                if (
                    type(array) not in plain
                    or array.shape != shapes[index]
                    or array.dtype is not dtype
                    or not array.is_cpu
                    or not array.is_contiguous()
                    or array.is_neg()
                    or (may_be_conj and array.is_conj())
                    or (array.requires_grad and private.torch.is_grad_enabled())
                ):
                    return None
                addresses.append(array.data_ptr())
        except RuntimeError:  # a tensor without memory or strides
            return None
        return None if 0 in addresses else addresses

    def copy_into(self, tensor: Any, cut: Cut, outputs: Sequence[Any]) -> bool:
        try:
            _torch().split_with_sizes_copy(tensor, cut.sizes, cut.axis, out=outputs)
        except RuntimeError:  # an output was made in inference mode
            return False
        return True

    def write_count(self, arrays: Sequence[Any]) -> Callable[[], None] | None:
        # As with torch's own functions, autograd then rejects saved values that were overwritten.
        torch = _torch()
        tensors = tuple(array for array in arrays if isinstance(array, torch.Tensor))
        return partial(_private().increment_version, tensors)

    def current_stream(self, tensor: Any) -> Callable[[], int] | None:
        return partial(_private().current_stream(), tensor.get_device()) if tensor.is_cuda else None

    def held(self, tensor: Any) -> int:
        size: int = tensor.untyped_storage().nbytes()  # its own `nbytes` only multiplies sizes
        return size

    def used_on(self, tensor: Any, stream: Stream) -> None:
        # Otherwise torch reuses the memory as soon as the stream that it was allocated on is done.
        if tensor.is_cuda:
            tensor.record_stream(_external(stream, tensor.get_device()))

    def packed(self, tensor: Any, name: str) -> Any:
        _check_memory(tensor, name)
        return tensor.detach().resolve_conj().resolve_neg().contiguous()

    def reinterpreted(self, tensor: Any, dtype: Any, shape: Shape) -> Any:
        kind = _dtype(dtype) if isinstance(dtype, str) else dtype
        return super().reinterpreted(tensor, kind, shape)


def quickly(
    tensor: Any, axis: Any, sizes_or_count: Any, out: Any, known: Callable[..., tuple[Any, Any]]
) -> list[Any] | None:
    """Fast path: new pieces of a small tensor, or a copy that an earlier call has kept.

    None for a tensor that is not on the CPU, or whose split a compiler or a mode must see. This is
    one function, because a call takes as long as two questions to a tensor. `known` gives the
    shapes of pieces, and the copies that were kept, by their addresses.
    """
    torch = sys.modules["torch"]
    if torch.compiler.is_dynamo_compiling():  # first, because it must not trace what follows
        return None
    private = _private()
    try:
        if (
            type(tensor) not in private.PLAIN
            or not tensor.is_cpu
            or tensor.is_nested
            or private.dispatch_modes()
            or private.jit_trace()
            or not (address := tensor.data_ptr())
        ):
            return None
    except RuntimeError:  # sparse, or inside a transform
        return None
    if type(sizes_or_count) is list:
        sizes_or_count = tuple(sizes_or_count)
    if not are_ints(axis, sizes_or_count):
        axis, sizes_or_count = piece_sizes(tuple(tensor.shape), sizes_or_count, axis)
    if out is not None:
        kept = known(tensor.shape, tensor.stride(), tensor.dtype, axis, sizes_or_count)
        return _again(tensor, address, out, *kept)
    sizes, axis = _small(tensor.shape, tensor.dtype, axis, sizes_or_count)
    try:  # This operator supports gradients.
        return list(torch.split_with_sizes_copy(tensor, sizes, axis)) if sizes else None
    except RuntimeError:  # Fall through: the allocating path raises an error with the size.
        return None


def _again(
    tensor: Any, address: int, out: Any, shapes: Sequence[tuple[int, ...]], copies: Any
) -> list[Any] | None:
    """Repeat the copy that an earlier call with these addresses has kept."""
    if (
        not copies
        or type(out) not in (list, tuple)
        or len(out) != len(shapes)
        or tensor.requires_grad
        or tensor.is_neg()
        or (tensor.dtype.is_complex and tensor.is_conj())
        or not (addresses := TORCH.packed_addresses(tensor, out, shapes))
        or not (copy := copies.get((address, *addresses)))
    ):
        return None
    copy()  # These addresses were found not to overlap.
    _private().increment_version(out)
    return list(out)


@lru_cache(maxsize=1024)
def _small(
    shape: tuple[int, ...], dtype: Any, axis: int, sizes_or_count: int | tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """The sizes of pieces that torch copies faster than the engine, else none; and the axis."""
    axis, sizes = piece_sizes(tuple(shape), sizes_or_count, axis)
    _type_string(dtype)  # Refuses elements that are not whole bytes.
    most = max(MOST_BYTES, OUTPUT_BYTES * min(len(sizes), SMALL_OUTPUTS))
    is_small = prod(shape) * dtype.itemsize < most and prod(shape[:axis]) <= MOST_RUNS
    return sizes if is_small and not is_quantized(dtype) else (), axis


@cache
def is_quantized(dtype: Any) -> bool:
    """Whether a tensor's scale and zero point give its elements their meaning."""
    return bool(_torch().empty(0, dtype=dtype, device="cpu").is_quantized)


def _check_memory(tensor: Any, name: str) -> None:
    """Refuse tensors that torch tracks, and those whose memory does not hold their elements."""
    private = _private()
    torch = private.torch
    if type(tensor) not in private.PLAIN:
        raise _of_subclass(tensor, name)
    # With gradients disabled, parameters may be read and written, as in torch.
    if tensor.requires_grad and torch.is_grad_enabled():
        raise _tracked(name, "requires grad", "detach(), or torch.no_grad()")
    # What a transform wraps may have a tangent too; it is refused for having no memory.
    is_dual = private.is_forward() and not private.is_transformed(tensor)
    if is_dual and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        raise _tracked(name, "has a forward-mode tangent", "forward_ad.unpack_dual(...).primal")
    if private.dispatch_modes():
        raise _tracked(name, "is inside a mode of torch that sees every operator", "leave the mode")
    if private.jit_trace():
        raise InvalidArgumentError(
            f"{name} is used inside torch.jit.trace, which would not record the split. "
            "Fix: torch.export.export"
        )
    if not (tensor.is_cpu or tensor.is_cuda):
        if tensor.is_meta:
            raise _tracked(name, "is on the meta device and has no memory", _OUTSIDE)
        raise InvalidArgumentError(
            f"{name} is on {tensor.device}; it must be on the CPU or a CUDA device"
        )
    check_layout(tensor, name)


def check_layout(tensor: Any, name: str) -> None:
    """Refuse a tensor without strides, or whose elements have no meaning by themselves."""
    if tensor.layout is not _torch().strided:
        raise InvalidArgumentError(
            f"{name} is a {tensor.layout} tensor; it must be a torch.strided one. Fix: to_dense()"
        )
    if tensor.is_quantized:
        raise InvalidArgumentError(
            f"{name} is quantized; its pieces would lose scale and zero point. Fix: int_repr()"
        )


def _of_subclass(tensor: Any, name: str) -> InvalidArgumentError:
    """The error for a tensor of a subclass, whose pieces would be plain tensors."""
    private = _private()
    torch = private.torch
    if isinstance(tensor, (private.FakeTensor, private.FunctionalTensor)):
        return _tracked(name, f"is a {type_name(tensor)}, which has no memory", _OUTSIDE)
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        what, fix = "which has no memory of its own", "split the tensors that it is made of"
        if hasattr(tensor, "to_local"):  # a DTensor
            fix = "to_local()"
    else:
        what, fix = "whose pieces would be plain tensors", "as_subclass(torch.Tensor)"
    return InvalidArgumentError(
        f"{name} is a {type_name(tensor)}, {what}; it must be a torch.Tensor or a Parameter. "
        f"Fix: {fix}"
    )


def _tracked(name: str, what: str, fix: str) -> TrackedError:
    rule = "such a tensor can only be the input of dmlsplit.split"
    return TrackedError(f"{name} {what}; {rule}. Fix: {fix}")


@cache
def _private() -> Any:
    # Imported here because it imports PyTorch.
    from dmlsplit.arrays import torch_private

    return torch_private


def _torch() -> Any:
    return sys.modules["torch"]  # already imported if there is a tensor


def _external(stream: Stream, device: int) -> Any:
    return _torch().cuda.ExternalStream(stream_handle(stream, device), device=device)


@lru_cache(maxsize=1024)
def _in_bytes(steps: tuple[int, ...], width: int) -> tuple[int, ...]:
    return tuple(step * width for step in steps)


@cache
def _type_string(dtype: Any) -> str:
    """NumPy's type string of a torch type; torch's own name if NumPy has none."""
    # torch may pack several elements into each byte, which `itemsize` does not say.
    stored = _torch().empty(8, dtype=dtype, device="cpu").untyped_storage().nbytes()
    if stored != 8 * dtype.itemsize:
        raise InvalidArgumentError(
            f"an element of {dtype} has {stored} bits; it must have whole bytes. "
            "Fix: split the torch.uint8 tensor that holds the elements"
        )
    name = str(dtype).removeprefix("torch.")
    try:
        return type_string(np.dtype(name))
    except TypeError:
        return name


def _dtype(name: str | np.dtype) -> Any:
    return getattr(_torch(), np.dtype(name).name)


TORCH = _Torch()
