"""PyTorch's tensors, on the CPU and on CUDA devices."""

import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from dmlsplit.arrays.adapter import (
    Adapter,
    Allocation,
    NewArrays,
    Shape,
    allocation_error,
    sharing_error,
    type_name,
)
from dmlsplit.arrays.array_view import (
    ArrayView,
    byte_bounds,
    device_name,
    device_number_of,
    new_array_view,
    type_string,
)
from dmlsplit.arrays.types import Stream
from dmlsplit.backends.cuda.streams import stream_handle
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.forks import late_import
from dmlsplit.messages import Note

_FIX_WITHOUT_MEMORY = "use dmlsplit.split without out, or a tensor that has memory"
# Modules of the tensor classes that can be split: plain tensors, and those of torch's tracers.
_TRACED = ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")
TORCH_MODULES = frozenset(("torch", "torch.nn.parameter", *_TRACED))
DTENSOR_MODULE = "torch.distributed.tensor"
TENSOR_MODULES = TORCH_MODULES | {DTENSOR_MODULE}


class _Torch(Adapter):
    """PyTorch, for tensors that it does not track (`why_tracked`)."""

    def view(self, tensor: Any, name: str) -> ArrayView:
        if tracked := why_tracked(tensor):
            reason, fix = tracked
            fault = f"{name} {reason}; such a tensor can only be the input of dmlsplit.split"
            raise InvalidArgumentError(Note(fault, fix))
        return untracked_view(tensor, name)

    def empty(self, like: ArrayView, new: NewArrays, stream: Stream | None = None) -> Allocation:
        if stream is not None and like.device != "cpu":
            with _torch().cuda.stream(_external_stream(stream, device_number_of(like.device))):
                return self.empty(like, new)
        dtype = like.owner.dtype if new.dtype is None else getattr(_torch(), new.dtype.name)
        empty = _torch().empty
        device = like.owner.device
        remaining = iter(new.shapes)
        try:
            tensors = [empty(shape, dtype=dtype, device=device) for shape in remaining]
        except RuntimeError as error:
            raise allocation_error(like, new.shapes, remaining, dtype, error) from None
        return tensors, [tensor.data_ptr() for tensor in tensors]

    def strided(self, packed: Any, shape: Shape, strides: Shape) -> Any:
        width = packed.element_size()
        return packed.as_strided(shape, [step // width for step in strides])

    def current_stream(self, tensor: Any) -> Callable[[], int] | None:
        if not tensor.is_cuda:
            return None
        return partial(_torch_private().current_stream, tensor.get_device())

    def record_stream(self, tensor: Any, stream: Stream) -> None:
        # Otherwise torch reuses the memory as soon as the stream that it was allocated on is done.
        if tensor.is_cuda:
            tensor.record_stream(_external_stream(stream, tensor.get_device()))


def untracked_view(tensor: Any, name: str) -> ArrayView:
    """The memory of a tensor for which `why_tracked` gives no reason."""
    _check_memory(tensor, name)
    width = tensor.element_size()
    try:
        address = tensor.data_ptr()
        shape = tuple(tensor.shape)
        steps = tensor.stride()
        strides, end = _byte_layout(shape, steps, width)
        size = tensor.untyped_storage().nbytes()
        # A view without elements may begin anywhere.
        needed = tensor.storage_offset() * width + end if end else 0
    except RuntimeError as error:
        raise sharing_error(tensor, name, error) from None
    if size < needed:
        memory = "too little memory" if size else "no memory"
        fault = (
            f"{name} has {memory}: its storage was resized to {size} bytes, and must have at least "
            f"{needed}"
        )
        fix = f"untyped_storage().resize_({needed}), then fill it; with FSDP, unshard()"
        raise InvalidArgumentError(Note(fault, fix))
    if not address and end:
        raise sharing_error(tensor, name, "it has no memory")
    typestr = type_string_of(tensor.dtype)
    device = device_name(tensor.get_device()) if tensor.is_cuda else "cpu"
    fields = tensor, address, shape, strides, typestr, width, device, False
    return new_array_view(ArrayView, fields)


def why_tracked(tensor: Any) -> tuple[str, str] | None:
    """Why only `dmlsplit.split` accepts a tensor, which torch tracks, and the fix; None for others.

    Torch differentiates, batches or traces it, or its memory does not hold its values.
    """
    private = _torch_private()
    torch = private.torch
    if type(tensor) not in private.PLAIN_TYPES:
        is_fake = isinstance(tensor, (private.FakeTensor, private.FunctionalTensor))
        reason = f"is a {type_name(tensor)}, which has no memory"
        return (reason, _FIX_WITHOUT_MEMORY) if is_fake and not tensor.is_nested else None
    if private.is_transformed(tensor):
        return "is inside a transform of torch.func", _FIX_WITHOUT_MEMORY
    # With gradients disabled, torch itself lets parameters be read and written.
    if tensor.requires_grad and torch.is_grad_enabled():
        return "requires grad", "detach(), or torch.no_grad()"
    is_dual = private.is_forward_mode()
    if is_dual and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        return "has a forward-mode tangent", "forward_ad.unpack_dual(...).primal"
    if private.dispatch_modes() or private.is_pre_dispatch():
        return "is inside a mode of torch that sees every operator", "leave the mode"
    if tensor.is_meta:
        return "is on the meta device and has no memory", _FIX_WITHOUT_MEMORY
    if tensor.is_conj() or tensor.is_neg():
        reason = "is a lazily conjugated or negated view: its memory does not hold its values"
        return reason, "resolve_conj().resolve_neg()"
    return None


def _check_memory(tensor: Any, name: str) -> None:
    """Refuse tensors whose memory is elsewhere, or does not hold their elements."""
    private = _torch_private()
    if type(tensor) not in private.PLAIN_TYPES:
        raise _subclass_error(tensor, name)
    refuse_jit_tracing(name)
    if not (tensor.is_cpu or tensor.is_cuda):
        fix = _FIX_WITHOUT_MEMORY if tensor.is_meta else ".cpu()"
        fault = f"{name} is on {tensor.device}; it must be on the CPU or a CUDA device"
        raise InvalidArgumentError(Note(fault, fix))
    check_layout(tensor, name)


def refuse_jit_tracing(name: str) -> None:
    """Refuse a tensor inside torch.jit.trace, which records only operators that take tensors."""
    if _torch_private().is_jit_tracing():
        fault = f"{name} is used inside torch.jit.trace, which would not record the split"
        raise InvalidArgumentError(Note(fault, "torch.export.export"))


def check_layout(tensor: Any, name: str) -> None:
    """Refuse nested and sparse tensors, which have no strides, and quantized ones."""
    if tensor.is_nested:
        fault = f"{name} is nested; its parts have sizes of their own"
        raise InvalidArgumentError(Note(fault, "split each of unbind()"))
    if tensor.layout is not _torch().strided:
        fault = f"{name} is a {tensor.layout} tensor; it must be a torch.strided one"
        raise InvalidArgumentError(Note(fault, "to_dense()"))
    if tensor.is_quantized:
        fault = f"{name} is quantized; its pieces would lose scale and zero point"
        raise InvalidArgumentError(Note(fault, "int_repr()"))


def _subclass_error(tensor: Any, name: str) -> InvalidArgumentError:
    """The error for a tensor of a subclass: its pieces would be plain tensors."""
    private = _torch_private()
    torch = private.torch
    if tensor.is_nested:
        check_layout(tensor, name)
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        reason = "which has no memory of its own"
        fix = "split the tensors that it is made of"
        if hasattr(tensor, "to_local"):  # a DTensor
            fix = "to_local()"
    elif torch.nn.parameter.is_lazy(tensor):
        reason = "which has no elements yet"
        fix = "call its module once, or materialize(shape)"
    else:
        reason = "whose pieces would be plain tensors"
        fix = "as_subclass(torch.Tensor)"
    fault = f"{name} is a {type_name(tensor)}, {reason}; it must be a torch.Tensor or a Parameter"
    return InvalidArgumentError(Note(fault, fix))


@cache
def _torch_private() -> Any:
    """The module `torch_private`, which imports PyTorch."""
    with late_import():
        from dmlsplit.arrays import torch_private

    return torch_private


def _torch() -> Any:
    """PyTorch, which is already imported if there is a tensor."""
    return sys.modules["torch"]


def _external_stream(stream: Stream, device: int) -> Any:
    """A stream of any library as one of torch."""
    return _torch().cuda.ExternalStream(stream_handle(stream, device), device=device)


@lru_cache(maxsize=1024)
def _byte_layout(shape: Shape, element_strides: Shape, width: int) -> tuple[Shape, int]:
    """The strides of a tensor, and the end of its last element, in bytes."""
    strides = tuple(stride * width for stride in element_strides)
    return strides, byte_bounds(shape, strides, width)[1]


@cache
def type_string_of(dtype: Any) -> str:
    """NumPy's type string of a torch type; torch's own name if NumPy has none."""
    # Torch may pack several elements into a byte, of which `itemsize` says nothing. The bytes of
    # eight elements are also the bits of one.
    bits = _torch().empty(8, dtype=dtype, device="cpu").untyped_storage().nbytes()
    if bits != 8 * dtype.itemsize:
        raise InvalidArgumentError(
            f"an element of {dtype} has {bits} bits; it must have whole bytes. "
            "Fix: split the torch.uint8 tensor that holds the elements"
        )
    name = str(dtype).removeprefix("torch.")
    try:
        return type_string(np.dtype(name))
    except TypeError:
        return name


def tensors_among(arrays: Sequence[Any]) -> list[Any]:
    """The tensors among arrays."""
    torch = sys.modules.get("torch")  # imported if there is a tensor
    if torch is None or set(map(type, arrays)) == {np.ndarray}:  # torch's isinstance takes longer
        return []
    return [array for array in arrays if isinstance(array, torch.Tensor)]


def record_writes(tensors: Sequence[Any]) -> None:
    """Tell torch that tensors were written: autograd then rejects them where it has saved them."""
    _torch_private().increment_version(tensors)


TORCH = _Torch()
